"""The public SSH keys of who types: they may log in, unless the caller says otherwise."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path

from scripts.engine import caller

VARIABLE = "SSH_PUBLIC_KEY"


def folder() -> Path:
    """Give the caller's ~/.ssh: under sudo that is not root's."""
    try:
        return Path(pwd.getpwuid(caller()[0]).pw_dir, ".ssh")
    except KeyError:
        return Path.home() / ".ssh"


def found(where: Path | None = None) -> dict[Path, str]:
    """Read ~/.ssh/id_*.pub: each key by the file that it stands in."""
    keys = {}
    for path in sorted((where or folder()).glob("id_*.pub")):
        try:
            keys[path] = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            continue  # one that cannot be read is no key of this caller's
    return keys


def to_pass(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Give the variable that lets the caller log in; nothing when one was given, or when there is no key."""
    if VARIABLE in environ or f"{VARIABLE}_FILE" in environ:
        return {}
    keys = "\n".join(found().values())
    return {VARIABLE: keys} if keys else {}


def private_key(allowed: str, where: Path | None = None) -> Path | None:
    """Find the caller's private key among those that may log in; `allowed` is an authorized_keys file."""
    for path, key in found(where).items():
        if _body(key) in {_body(line) for line in allowed.splitlines()} and path.with_suffix("").exists():
            return path.with_suffix("")
    return None


def _body(line: str) -> str:
    """Leave out the options before a key and the comment behind it."""
    words = line.split()
    kinds = [number for number, word in enumerate(words) if word.startswith(("ssh-", "ecdsa-", "sk-"))]
    return " ".join(words[kinds[0] : kinds[0] + 2]) if kinds else ""
