"""Folders of the host that tests mount: made with any owner, read and removed whoever owns what is in them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Optional

from tests.support.containers import call

Owner = tuple[int, int]


class Folders:
    """Makes folders below one that every user of the machine may enter, and removes all in the end.

    What only root may do on the host is done in a container, so that the tests run for an ordinary user too.
    """

    def __init__(self, image: str) -> None:
        self.top = Path(tempfile.mkdtemp(prefix="pytorch-cuda-tests-"))
        self.top.chmod(0o755)  # pytest's own tmp_path is closed to the other users that some tests play
        self._image = image
        self._count = 0

    def new(self, owner: Optional[Owner] = None, mode: int = 0o755, name: str = "folder") -> Path:
        """A new empty folder."""
        path = self.missing(name)
        path.mkdir()
        path.chmod(mode)
        if owner:
            self.give(path, owner)
        return path

    def missing(self, name: str = "folder") -> Path:
        """A path that does not exist, in a folder that does."""
        self._count += 1
        parent = self.top / str(self._count)
        parent.mkdir()
        return parent / name

    def file(self, path: Path, text: str, mode: int = 0o644, owner: Optional[Owner] = None) -> Path:
        """Write a file with exactly this mode and owner."""
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)
        if owner:
            self.give(path, owner)
        return path

    def give(self, path: Path, owner: Owner) -> None:
        """Change the owner; of a link, the link's own."""
        if os.geteuid() == 0:
            os.chown(path, *owner, follow_symlinks=False)
        else:
            self._as_root("chown", "-h", f"{owner[0]}:{owner[1]}", f"/mnt/{path.relative_to(self.top)}")

    def close(self) -> None:
        """Remove them all."""
        self._as_root("rm", "-rf", *(f"/mnt/{entry.name}" for entry in self.top.iterdir()))
        self.top.rmdir()

    def _as_root(self, *command: str) -> None:
        mount = f"{self.top}:/mnt"
        program = ["--entrypoint", "/bin/busybox", self._image]
        call("docker", "run", "--rm", "--network", "none", "--volume", mount, *program, *command).ok()


def owner(path: Path) -> Owner:
    """Whose it is; of a link, the link's own."""
    seen = path.lstat()
    return seen.st_uid, seen.st_gid
