"""Which program listens on a port of this machine, from /proc alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_LISTENING = "0A"


def holder(port: int, proc: Path = Path("/proc")) -> str:
    """Name the program and its process id; what belongs to others only root can see."""
    inodes = {inode for inode, one in _sockets(proc) if one == port}
    for folder in proc.glob("[0-9]*"):
        if inodes & set(_open_sockets(folder)):
            return f"{_name(folder)} (pid {folder.name})"
    return "a program of another user" if inodes else ""


def _sockets(proc: Path) -> Iterator[tuple[str, int]]:
    """Inode and port of each listening socket."""
    for table in ("net/tcp", "net/tcp6"):
        for line in _read(proc / table).splitlines()[1:]:
            field = line.split()
            if len(field) > 9 and field[3] == _LISTENING:
                yield field[9], int(field[1].rpartition(":")[2], 16)


def _open_sockets(folder: Path) -> Iterator[str]:
    try:
        for link in (folder / "fd").iterdir():
            found = re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink()))
            if found:
                yield found[1]
    except OSError:
        return  # ended meanwhile, or another user's


def _name(folder: Path) -> str:
    return _read(folder / "comm").strip() or "a program"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
