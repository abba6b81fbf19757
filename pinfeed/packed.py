"""Packed data: plain NumPy files that are one gather away from a batch. `pinfeed pack` writes them.

A folder holds `images.npy` (uint8, N x height x width x channels), `labels.npy` (int64, N) and `meta.json`
(version, classes, shape, source, sha256). Anybody's NumPy can read and write them.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, Optional, Protocol

import numpy as np
import torch

from pinfeed.errors import BAD_DATA, NO_INPUT, PinfeedError

VERSION = 1
FILES = ("images.npy", "labels.npy", "meta.json")

# Of the memory there is, the share that a memory map may take. Above it rows are read one by one: a map would
# throw out of memory what other programs use, and be read page by page.
_MAP_SHARE = 0.5


class Rows(Protocol):
    """What a Ring draws from: samples by number, written straight into memory that it is given."""

    shape: tuple[int, int, int]  # height, width, channels
    labels: torch.Tensor

    def __len__(self) -> int: ...
    def gather(self, rows: np.ndarray, target: np.ndarray) -> None: ...


class InMemory:
    """Samples in ordinary memory: `images` N x height x width x channels, `labels` N."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        self.images = images
        self.labels = labels
        self.shape: tuple[int, int, int] = tuple(images.shape[1:])
        if images.dtype is not torch.uint8 or images.dim() != 4 or len(images) != len(labels):
            raise ValueError(f"uint8 images N x H x W x C and N labels are meant, not {images.shape}, {labels.shape}")
        self._array = images.contiguous().numpy()

    def __len__(self) -> int:
        return len(self.labels)

    def gather(self, rows: np.ndarray, target: np.ndarray) -> None:
        """The images numbered `rows`, into `target`."""
        # One thread, and without the GIL. In its default mode take makes a copy first: six times slower.
        np.take(self._array, rows, axis=0, out=target, mode="clip")


class Packed:
    """A packed folder. Rows come from a memory map, or from the file where the set is larger than memory.

    `io` is "map", "read" or "auto". A set that is cut off or changed while it is read is an error that names
    the file; with "map" a file cut off in the very moment of reading still kills (SIGBUS), with "read" never.
    """

    def __init__(self, folder: str | os.PathLike[str], io: str = "auto") -> None:
        self.folder = Path(folder)
        self.meta = _meta(self.folder)
        self.classes: tuple[str, ...] = tuple(self.meta["classes"])
        self.labels = _labels(self.folder, len(self.classes))
        self._path = self.folder / "images.npy"
        self._file = _open(self._path)
        self._state = _state(self._file.fileno())
        count, self.shape, self._offset = _header(self._path, self._file)
        self._row = math.prod(self.shape)
        self._check(count)
        self._map: Optional[np.ndarray] = None
        if io == "map" or (io == "auto" and count * self._row <= _MAP_SHARE * _memory()):
            self._map = np.memmap(self._file, np.uint8, "r", self._offset, (count, *self.shape)).view(np.ndarray)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def fingerprint(self) -> str:
        """What tells this set from another: the packer's checksum, or size and time where there is none."""
        return str(self.meta.get("sha256") or self._state)

    def gather(self, rows: np.ndarray, target: np.ndarray) -> None:
        """The images numbered `rows`, into `target`. Raises when the file is no longer what it was."""
        if _state(self._file.fileno()) != self._state:
            raise _changed(self._path)
        if self._map is not None:
            np.take(self._map, rows, axis=0, out=target, mode="clip")
            return
        for place, row in zip(target, rows.tolist()):
            read = os.preadv(self._file.fileno(), [place.data], self._offset + row * self._row)
            if read != self._row:
                raise _changed(self._path)

    def __reduce__(self) -> tuple[Any, ...]:
        """In a worker process it is opened anew."""
        return type(self), (self.folder, "read" if self._map is None else "map")

    def close(self) -> None:
        """Let go of file and map."""
        self._map = None
        self._file.close()

    def _check(self, count: int) -> None:
        size = self._state[0]
        if size != self._offset + count * self._row:
            kind = "cut off" if size < self._offset + count * self._row else "too long"
            promised = self._offset + count * self._row
            raise _damaged(self._path, f"{kind}: {size:,} bytes, where its header promises {promised:,}")
        if not count:
            raise _damaged(self._path, "no image in it")
        if count != len(self.labels):
            raise _damaged(self.folder / "labels.npy", f"{len(self.labels):,} labels for {count:,} images")
        told = self.meta.get("shape")
        if told is not None and tuple(told)[-3:] != self.shape:
            raise _damaged(self._path, f"images of {self.shape}, where meta.json says {tuple(told)}")


def is_packed(folder: Path) -> bool:
    """Does this folder look like packed data, whole or damaged?"""
    return (folder / "images.npy").exists() or (folder / "meta.json").exists()


def _meta(folder: Path) -> dict[str, Any]:
    path = folder / "meta.json"
    try:
        meta = json.loads(_open(path).read())
    except ValueError as error:
        raise _damaged(path, f"no JSON: {error}") from None
    if not isinstance(meta, dict) or meta.get("version") != VERSION or not isinstance(meta.get("classes"), list):
        seen = meta.get("version") if isinstance(meta, dict) else type(meta).__name__
        raise _damaged(path, f"version {seen!r}, where this pinfeed reads {VERSION}, with a list of classes")
    return meta


def _labels(folder: Path, classes: int) -> torch.Tensor:
    path = folder / "labels.npy"
    try:
        labels = np.load(_open(path), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise _damaged(path, str(error).splitlines()[0]) from None
    if labels.ndim != 1 or labels.dtype != np.int64:
        raise _damaged(path, f"{labels.dtype} of shape {labels.shape}, where int64 of one dimension is meant")
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        raise _damaged(path, f"labels from {labels.min()} to {labels.max()}, where meta.json has {classes} classes")
    return torch.from_numpy(labels)


def _header(path: Path, file: Any) -> tuple[int, tuple[int, int, int], int]:
    """(number of images, their shape, where the pixels begin)."""
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except (ValueError, EOFError) as error:
        raise _damaged(path, str(error).splitlines()[0]) from None
    if dtype != np.uint8 or len(shape) != 4 or fortran:
        raise _damaged(path, f"{dtype} of shape {shape}, where uint8 N x height x width x channels is meant")
    return shape[0], shape[1:], file.tell()


def _open(path: Path) -> Any:
    try:
        return open(path, "rb")
    except OSError as error:
        raise PinfeedError(
            f"the packed file {path} cannot be read",
            f"{error.strerror}; a packed folder has {', '.join(FILES)}",
            "make the set with `pinfeed pack`, or check its permissions",
            NO_INPUT,
        ) from None


def _state(descriptor: int) -> tuple[int, int]:
    state = os.fstat(descriptor)
    return state.st_size, state.st_mtime_ns


def _memory() -> float:
    """Bytes of memory that this process may use."""
    try:
        from doctor import limits
    except ImportError:  # pinfeed was installed by itself
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    limit = limits.memory_limit()
    return float(limit.bytes) if limit else math.inf


def _changed(path: Path) -> PinfeedError:
    return PinfeedError(
        f"the packed file {path} changed while it was read",
        "another size or time than at the start",
        "let nothing write to it during a run; then go on with --resume, or pack it again",
        BAD_DATA,
    )


def _damaged(path: Path, seen: str) -> PinfeedError:
    return PinfeedError(f"the packed file {path} is damaged", seen, "pack the set again: pinfeed pack", BAD_DATA)
