"""Reading files that others may have made: never through a link, never from a pipe, never without an end."""

from __future__ import annotations

import os
import stat
from typing import Optional

_MOST_BYTES = 1 << 20


def read_text(path: str) -> Optional[str]:
    """A regular file's text; None for everything else."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        try:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
        except OSError:
            return None


def names_in(folder: str) -> list[str]:
    """What lies in a folder, sorted; nothing when it cannot be listed."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
