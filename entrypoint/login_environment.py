"""The container's environment for those whom no engine starts: sessions of sshd, and what sudo runs.

sshd gives a session a fresh environment. A file that bash reads once a session gives it the container's; programs
that no shell starts get the simple values from sshd itself (SetEnv). Nothing secret is in either.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from entrypoint.identity import Identity
from entrypoint.rundir import write_file

FILE = "environment.sh"
SUDO_FILE = "environment.sudo"
# In the image's ENV, so that whatever the engine starts has it, and no session of sshd does (lib/session.sh).
MARKER = b"PYTORCH_CUDA_SESSION"

# What belongs to one process or session, and would be wrong in another.
_NOT_PASSED = frozenset(
    b"HOME USER LOGNAME SHELL HOSTNAME SHLVL PWD OLDPWD _ TERM MAIL "
    b"SSH_CLIENT SSH_CONNECTION SSH_TTY SSH_ORIGINAL_COMMAND".split()
) | {MARKER}
# An agent that was mounted, unless the client forwards its own: sshd, unlike a shell's file, knows which.
_LEFT_TO_SSHD = frozenset({b"SSH_AUTH_SOCK"})
# bash's own; an assignment to one is an error that ends the reading of the file.
_READONLY = frozenset(b"BASHOPTS BASH_VERSINFO EUID PPID SHELLOPTS UID".split())
_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
# OpenSSH 8 has no way to write a quotation mark, takes # for a comment even in quotes, and none can write a newline.
_SIMPLE = re.compile(rb'[^"#\\\x00-\x1f\x7f]*')


def passed_on(environ: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """The part of the user's environment that a session gets."""
    return {name: environ[name] for name in sorted(environ) if name not in _NOT_PASSED}


def write_login_environment(environ: Mapping[bytes, bytes], identity: Identity, rundir: Path) -> None:
    """The file for the user's shells: all values, some of which the user may not want others to see."""
    write_file(rundir / FILE, render_shell(environ), 0o640, gid=identity.gid)


def render_shell(environ: Mapping[bytes, bytes]) -> bytes:
    """Commands for bash that set the variables to exactly these bytes."""
    lines = [
        b"export " + name + b"=" + _quote(value)
        for name, value in passed_on(environ).items()
        if _NAME.fullmatch(name) and name not in _READONLY | _LEFT_TO_SSHD
    ]
    return b"\n".join([*lines, b"export " + MARKER + b"=1", b""])


def render_set_env(environ: Mapping[bytes, bytes]) -> bytes:
    """The one SetEnv line of sshd's configuration (before 8.7 only the first counts), or nothing."""
    words = [b'"' + entry + b'"' for entry in _simple_entries(environ)]
    return b"SetEnv " + b" ".join(words) + b"\n" if words else b""


def render_sudo(environ: Mapping[bytes, bytes]) -> bytes:
    """For sudo's env_file: it adds what the dynamic linker took away (LD_LIBRARY_PATH, TMPDIR), and no more."""
    simple = passed_on(environ).items()
    return b"".join(
        name + b"='" + value + b"'\n"
        for name, value in simple
        if _NAME.fullmatch(name) and _SIMPLE.fullmatch(value) and b"'" not in value
    )


def _simple_entries(environ: Mapping[bytes, bytes]) -> list[bytes]:
    entries = (name + b"=" + value for name, value in passed_on(environ).items())
    return [entry for entry in entries if _SIMPLE.fullmatch(entry)]


def _quote(value: bytes) -> bytes:
    return shlex.quote(value.decode("latin-1")).encode("latin-1")
