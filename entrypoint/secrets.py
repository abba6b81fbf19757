"""Reading the files that users name: secrets, certificates. Messages name the file, never what is in it.

A path may lie on a volume that an earlier container's user could write to, so root never simply opens
one. The file is read as the user; where that is refused, root reads it only along a path that no user
can have bent: every link on it is root's and stays inside one mount (Kubernetes mounts secrets so).
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Callable, Optional

from entrypoint.errors import StartError
from entrypoint.privileges import run_as
from entrypoint.settings import BY_NAME, Given, check_text

if TYPE_CHECKING:
    from entrypoint.identity import Identity

_LARGEST = 64 * 1024
_MOST_LINKS = 40
Reader = Callable[[str], bytes]


class UnreadableError(Exception):
    """Why a file could not be read, in words for the user."""


def reveal(given: Given, read: Reader) -> Optional[str]:
    """The value itself: as it was given, or out of its file by `read`; None when there is none."""
    if given.path is None:
        return given.value
    name = f"{given.name}_FILE"
    try:
        text = _one_ending_less(read(given.path).decode("utf-8"))
    except (UnreadableError, UnicodeDecodeError) as error:
        why = str(error) if isinstance(error, UnreadableError) else "it is not UTF-8 text"
        raise StartError(
            f"the file that {name} names cannot be read",
            f"{given.path}: {why}",
            f"mount it readable: docker run -v $PWD/FILE:{given.path}:ro -e {name}={given.path} ...",
        ) from None
    if not text:
        raise StartError(
            f"the file that {name} names is empty",
            given.path,
            f"write the value into it, or leave {name} out",
        )
    return _checked(given, text)


def _checked(given: Given, text: str) -> str:
    try:
        return check_text(BY_NAME[given.name], text)
    except StartError as error:
        raise StartError(error.what, f"{given.path}: {error.seen}", f"write such a value into {given.path}") from None


def _one_ending_less(text: str) -> str:
    """Take off the line end that editors and `echo` leave, once."""
    if text.endswith("\r\n"):
        return text[:-2]
    return text[:-1] if text.endswith("\n") else text


def reader_for(identity: Identity) -> Reader:
    """How this start reads a file: as the user first, and as root only if this process is root."""

    def read(path: str) -> bytes:
        text, why = run_as(identity, lambda: _answer(path))
        if text is not None:
            return str(text).encode("latin-1")
        if not identity.drop:
            raise UnreadableError(why)
        return read_as_root(path)

    return read


def _answer(path: str) -> tuple[Optional[str], str]:
    """What `read_as_user` does, in a form that passes from one process to another."""
    try:
        return read_as_user(path).decode("latin-1"), ""
    except UnreadableError as error:
        return None, str(error)


def read_as_user(path: str) -> bytes:
    """Read a regular file with this process's own rights; a fifo or a device must not hang the start."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UnreadableError(_why(error)) from error
    return _read_and_close(descriptor)


def read_as_root(path: str) -> bytes:
    """Read a regular file with root's rights, following only links that no user can have made."""
    walk = _Walk()
    try:
        return _read_and_close(walk.open(path))
    except OSError as error:
        raise UnreadableError(_why(error)) from error
    finally:
        walk.close()


class _Walk:
    """A path taken one name at a time, so that nothing can be exchanged between a check and its use."""

    def __init__(self) -> None:
        self._opened: list[int] = []
        self._links = 0

    def open(self, path: str) -> int:
        """Return a descriptor for reading what the path leads to."""
        found = self._resolve(path, self._keep("/"))
        info = os.fstat(found)
        if self._links and info.st_uid != 0:
            raise UnreadableError("a link leads to it, and it is not root's")
        if not stat.S_ISREG(info.st_mode):
            raise UnreadableError("it is not a regular file")
        if info.st_nlink > 1:
            raise UnreadableError("it has a second name (a hard link), and only root may read it")
        # Opened through its descriptor: by its name it might be another file by now.
        return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def close(self) -> None:
        """Close every directory that was passed."""
        for descriptor in self._opened:
            os.close(descriptor)

    def _keep(self, name: str, directory: Optional[int] = None) -> int:
        descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        self._opened.append(descriptor)
        return descriptor

    def _resolve(self, path: str, directory: int) -> int:
        at = self._opened[0] if path.startswith("/") else directory
        for name in filter(None, path.split("/")):
            entry = self._keep(name, at)
            at = self._follow(entry, at) if stat.S_ISLNK(os.fstat(entry).st_mode) else entry
        return at

    def _follow(self, link: int, directory: int) -> int:
        self._links += 1
        if self._links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if os.fstat(link).st_uid != 0:
            raise UnreadableError("a link on the way is not root's")
        target = self._resolve(os.readlink("", dir_fd=link), directory)
        if _mount_id(target) != _mount_id(link):
            raise UnreadableError("a link on the way leaves its mount")
        return target


def _mount_id(descriptor: int) -> str:
    with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as file:
        return next(line for line in file if line.startswith("mnt_id:"))


def _read_and_close(descriptor: int) -> bytes:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnreadableError("it is not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise UnreadableError(f"it is larger than {_LARGEST} bytes")
    return data


def _why(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "there is no such file in the container"
    return (error.strerror or str(error)).lower()
