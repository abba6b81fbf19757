"""Who types a command on the host: root, or an ordinary user who may use the engine."""

from __future__ import annotations

import os
from pathlib import Path

SOCKET = Path("/var/run/docker.sock")
ORDINARY = (4321, 4321)


def as_ordinary_user() -> list[str]:
    """What goes before a command, so that an ordinary user of the host runs it; nothing for one who is that."""
    if os.geteuid() != 0:
        return []
    group = SOCKET.stat().st_gid
    return ["setpriv", f"--reuid={ORDINARY[0]}", f"--regid={ORDINARY[1]}", f"--groups={group}", "--"]


def environment(home: Path) -> dict[str, str]:
    """The variables of a user who has just logged in: no client settings, no variables of a test run."""
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "TERM": "xterm"}
