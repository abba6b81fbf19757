"""The files of a packed set, as `pinfeed pack` writes them. `pinfeed.packed` reads them.

images.npy   uint8, N x height x width x channels
labels.npy   int64, N
files.txt    which file each row comes from, a line a row (not for Fashion-MNIST)
meta.json    shape, classes, source, and sha256 of the others; written last, so a set that has it is whole
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path

from pinfeed.errors import BAD_DATA, NO_INPUT, PinfeedError

VERSION = 1
IMAGES, LABELS, FILES, META = "images.npy", "labels.npy", "files.txt", "meta.json"
JOURNAL = ".pack"  # a folder beside them while packing is under way
HEADER = 128  # bytes before the first row, whatever the shape

_MAGIC = b"\x93NUMPY\x01\x00"
_AT_ONCE = 16 << 20


def header(kind: str, shape: tuple[int, ...]) -> bytes:
    """The first 128 bytes of a .npy file of this type and shape, as NumPy writes them too."""
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape!r}, }}"
    room = HEADER - len(_MAGIC) - 2
    return _MAGIC + struct.pack("<H", room) + text.ljust(room - 1).encode() + b"\n"


def digest(path: Path, check: Callable[[], None] = lambda: None) -> str:
    """The sha256 of a file. `check` is called now and then, and may raise."""
    total = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_AT_ONCE):
            total.update(block)
            check()
    return total.hexdigest()


def verify(folder: Path, check: Callable[[], None] = lambda: None) -> None:
    """Compare all files of a set with the sha256 of its meta.json: reads everything."""
    for name, meant in json.loads((folder / META).read_bytes())["sha256"].items():
        found = digest(folder / name, check)
        if found != meant:
            raise PinfeedError(
                f"the packed file {folder / name} is damaged",
                f"sha256 {found[:16]}..., where meta.json has {meant[:16]}...",
                "pack the set again, or take a fresh copy of it",
                BAD_DATA,
            )


def is_there(folder: Path) -> bool:
    """Does the folder hold a packed set, or one that is being packed?"""
    return any((folder / name).exists() for name in (META, IMAGES, JOURNAL))


def refuse_unfinished(folder: Path) -> None:
    """Raise PinfeedError if the packing of this set was interrupted."""
    if (folder / JOURNAL).exists() and not (folder / META).exists():
        raise PinfeedError(
            f"{folder} has not been packed to its end",
            f"{JOURNAL} is there, {META} is not",
            f"go on with it: pinfeed pack --resume --data ... --out {folder}",
            NO_INPUT,
        )
