"""The environment of sessions: what passes, byte for byte, and in which form."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from entrypoint.identity import Identity
from entrypoint.login_environment import (
    FILE,
    passed_on,
    render_set_env,
    render_shell,
    render_sudo,
    write_login_environment,
)

AWKWARD = {
    b"BLANKS": b" two  words ",
    b"QUOTES": b'it\'s "so"',
    b"SHELL_SIGNS": b"$HOME `id` $(id) \\ ! * ? ~ & ; | < >",
    b"HASH": b"a # b #c",
    b"LINES": b"one\ntwo\n\n",
    b"TAB": b"a\tb",
    b"EMPTY": b"",
    b"EQUALS": b"a=b=c",
    b"UNICODE": "中文 é".encode(),
    b"NOT_UTF8": b"\xff\xfe",
    b"LONG": b"0123456789 " * 200,
    b"PERCENT": b"%h %u %%",
    b"lower_case": b"1",
}


def read_back(text: bytes, tmp_path: Path) -> dict[bytes, bytes]:
    file = tmp_path / "environment"
    file.write_bytes(text)
    command = ["bash", "--norc", "--noprofile", "-c", '. "$1"; exec env -0', "bash", str(file)]
    done = subprocess.run(command, env={"PATH": os.environ["PATH"]}, capture_output=True, check=True)
    assert done.stderr == b""
    return dict(entry.partition(b"=")[::2] for entry in done.stdout.split(b"\0") if entry)


def test_a_shell_gets_exactly_the_values(tmp_path: Path) -> None:
    found = read_back(render_shell(AWKWARD), tmp_path)
    assert {name: found.get(name) for name in AWKWARD} == AWKWARD
    assert found[b"PYTORCH_CUDA_SESSION"] == b"1"


def test_what_belongs_to_one_session_is_left_out() -> None:
    own = b"HOME USER LOGNAME SHELL HOSTNAME SHLVL PWD OLDPWD _ TERM SSH_CONNECTION SSH_TTY PYTORCH_CUDA_SESSION"
    environ = {name: b"x" for name in own.split()}
    assert passed_on(environ) == {}
    assert render_set_env(environ) == b""
    assert render_sudo(environ) == b""


def test_names_that_bash_cannot_assign_do_not_end_the_reading_of_the_file(tmp_path: Path) -> None:
    odd = {b"dotted.name": b"1", b"BASH_FUNC_f%%": b"() { :; }", b"UID": b"0", b"SHELLOPTS": b"x", b"Z": b"last"}
    found = read_back(render_shell(odd), tmp_path)
    assert found[b"Z"] == b"last"
    assert b'"dotted.name=1"' in render_set_env(odd)


def test_an_agent_is_left_to_sshd_which_knows_of_a_forwarded_one() -> None:
    environ = {b"SSH_AUTH_SOCK": b"/agent"}
    assert b"SSH_AUTH_SOCK" not in render_shell(environ)
    assert render_set_env(environ) == b'SetEnv "SSH_AUTH_SOCK=/agent"\n'


def test_sshd_gets_one_line_of_the_values_that_it_can_read() -> None:
    lines = render_set_env(AWKWARD).splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(b"SetEnv ")
    assert b'"BLANKS= two  words "' in lines[0]
    assert b'"PERCENT=%h %u %%"' in lines[0]
    for name in (b"QUOTES", b"HASH", b"LINES", b"TAB", b"SHELL_SIGNS"):
        assert name not in lines[0]


def test_sudo_gets_what_the_dynamic_linker_takes_away() -> None:
    assert render_sudo({b"LD_LIBRARY_PATH": b"/a b", b"Q": b"it's"}) == b"LD_LIBRARY_PATH='/a b'\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another group")
def test_only_root_and_the_user_can_read_the_file(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    identity = Identity(4321, 4322, (), "user", "/home/user", True, "root")
    write_login_environment({b"A": b"1"}, identity, tmp_path)
    seen = (tmp_path / FILE).stat()
    assert (seen.st_uid, seen.st_gid, seen.st_mode & 0o777) == (0, 4322, 0o640)
