"""The folder of what is made at run time, and the one way in which the start writes a file."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Optional

from entrypoint.errors import StartError
from entrypoint.folders import NEW_FILE, open_folder
from entrypoint.identity import PLAIN, ROOT, USER, Identity
from entrypoint.privileges import run_as

RUN = Path("/run")
TMP = Path("/tmp")


def make_rundir(identity: Identity) -> Path:
    """Make the run directory, or take the one that an earlier start of this container left."""
    if identity.profile == PLAIN:
        return _make(TMP / f"pytorch-cuda-{identity.uid}", 0o700, "--tmpfs /tmp")
    return _make(RUN / "pytorch-cuda", 0o755, "--tmpfs /run")


def make_folder(path: Path, mode: int = 0o755) -> Path:
    """Make a folder of this process's own, or take it if it is there already and safe."""
    with suppress(FileExistsError):
        os.mkdir(path, mode)
    with open_folder(path) as fd:
        _refuse_foreign(fd, path)
        os.fchmod(fd, mode)
    return path


def write_file(path: Path, data: bytes, mode: int, uid: Optional[int] = None, gid: Optional[int] = None) -> None:
    """Write a file whole or not at all. It belongs to uid:gid, else to this process.

    Refuses a folder that anybody else may write: there a name could be a trap.
    """
    owner = (os.geteuid() if uid is None else uid, os.getegid() if gid is None else gid)
    with open_folder(path.parent) as folder:
        _refuse_foreign(folder, path.parent)
        _replace(folder, path.name, data, mode, owner)


def _make(path: Path, mode: int, remedy: str) -> Path:
    try:
        return make_folder(path, mode)
    except OSError as error:
        missing = not os.path.lexists(path)
        raise StartError(
            f"{path}, where a start keeps its own files, cannot be made or used",
            error.strerror or str(error),
            f"docker run {remedy} ...   (with --read-only: --tmpfs /run --tmpfs /tmp)"
            if missing
            else f"start a new container, or remove {path} from the volume that it lies on",
        ) from error


def _refuse_foreign(fd: int, path: Path) -> None:
    seen = os.fstat(fd)
    if seen.st_uid != os.geteuid() or seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        found = f"it belongs to uid {seen.st_uid} and has mode {stat.S_IMODE(seen.st_mode):04o}"
        raise PermissionError(errno.EPERM, f"{found}, so that others may change it", str(path))


def _replace(folder: int, name: str, data: bytes, mode: int, owner: tuple[int, int]) -> None:
    new = f".{name}.{os.urandom(8).hex()}"
    try:
        try:
            _write_new(folder, new, data, mode, owner)
        except PermissionError:
            # Without CAP_CHOWN root can not give a file away, but the user can make one.
            _remove(folder, new)
            _write_new_as_owner(folder, new, data, mode, owner)
        os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        _remove(folder, new)
        raise


def _write_new(folder: int, name: str, data: bytes, mode: int, owner: tuple[int, int]) -> None:
    fd = os.open(name, NEW_FILE, 0o600, dir_fd=folder)
    with os.fdopen(fd, "wb") as file:
        if owner != (os.geteuid(), os.getegid()):
            os.fchown(fd, *owner)
        os.fchmod(fd, mode)
        file.write(data)


def _write_new_as_owner(folder: int, name: str, data: bytes, mode: int, owner: tuple[int, int]) -> None:
    """The owner writes the file in a folder made for that moment; root moves it to its place."""
    user = Identity(*owner, groups=(), name=USER, home="/", drop=True, profile=ROOT)
    drop_box = f"{name}.d"
    os.mkdir(drop_box, 0o700, dir_fd=folder)
    try:
        with open_folder(drop_box, at=folder) as fd:
            os.fchmod(fd, 0o733)
            try:
                run_as(user, lambda: _write_new(fd, name, data, mode, owner))
                os.rename(name, name, src_dir_fd=fd, dst_dir_fd=folder)
            finally:
                _remove(fd, name)
    finally:
        os.rmdir(drop_box, dir_fd=folder)


def _remove(folder: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
