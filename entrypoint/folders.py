"""Folders opened so that no link can lead elsewhere, and files made so that none is overwritten."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Optional, Union

NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def open_folder(path: Union[str, Path], at: Optional[int] = None, follow: bool = False) -> Iterator[int]:
    """An open folder, by its descriptor. A link in the last place of `path` is an error, unless asked for."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    fd = os.open(path, flags, dir_fd=at)
    try:
        yield fd
    finally:
        os.close(fd)
