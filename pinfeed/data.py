"""Fashion-MNIST from its IDX files: found, read, checked, and split honestly.

The test part is never trained on and never used to choose anything; what watches the training is a
validation part, taken from the training files by the seed.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import math
import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from pinfeed import seeds
from pinfeed.errors import BAD_DATA, NO_INPUT, PinfeedError

NAMES = ("fashion-mnist",)
CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
IMAGE_SHAPE = (28, 28)

# In the image; then where Debian's package dataset-fashion-mnist puts it.
PLACES = (Path("/opt/datasets/fashion-mnist"), Path("/usr/share/datasets/fashion-mnist"))
SOURCE = "https://github.com/zalandoresearch/fashion-mnist"

# Of the unpacked files: the .gz differ between those who packed them, the contents do not.
SHA256 = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}

_FRESH_COPY = f"take a fresh copy of the file, from {SOURCE} (data/fashion) or from the image's {PLACES[0]}"
_UNSIGNED_BYTE = 8  # IDX's code for the type of its elements


@dataclasses.dataclass(frozen=True)
class Part:
    """Images (uint8, N x 1 x 28 x 28) and labels (int64, N), in ordinary memory."""

    images: torch.Tensor
    labels: torch.Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, count: int) -> Part:
        """The first `count` samples, or all when there are fewer."""
        return Part(self.images[:count], self.labels[:count])


@dataclasses.dataclass(frozen=True)
class Splits:
    """What a run uses, and where it came from."""

    train: Part
    validation: Part
    test: Part
    folder: Path
    fingerprint: str


def load(data: str, environ: Mapping[str, str], *, seed: int, limit: int | None, checksum: bool) -> Splits:
    """Find, read, check and split the data set that `--data` names."""
    folder, train, test, digests = _read_all(data, environ, checksum)
    train, validation = _split(train, seed)
    if limit is not None:
        held_out = math.ceil(limit / 10)
        train, validation, test = train.first(limit), validation.first(held_out), test.first(held_out)
    fingerprint = hashlib.sha256("".join(sorted(digests.values())).encode()).hexdigest()
    return Splits(train, validation, test, folder, fingerprint)


def whole(data: str, environ: Mapping[str, str], *, checksum: bool) -> tuple[Path, dict[str, Part]]:
    """The folder that `--data` names, and its parts as their files have them: train and test, not split."""
    folder, train, test, _ = _read_all(data, environ, checksum)
    return folder, {"train": train, "test": test}


def _read_all(data: str, environ: Mapping[str, str], checksum: bool) -> tuple[Path, Part, Part, dict[str, str]]:
    folder = find(data, environ)
    contents = {name: _read(folder, name) for name in SHA256}
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    train = _part(folder, "train", contents)
    test = _part(folder, "t10k", contents)
    if checksum:
        _check_digests(folder, digests)
    return folder, train, test, digests


def find(data: str, environ: Mapping[str, str]) -> Path:
    """The folder that `--data` means: a known name, or a path."""
    if data in NAMES:
        return _find_known(data, environ.get("PINFEED_DATA", ""))
    if not os.path.isdir(data):
        raise PinfeedError(
            "--data is neither a data set that pinfeed knows nor a folder",
            f"--data {data}",
            f"known: {', '.join(NAMES)}; or the path of a folder with {', '.join(SHA256)} (plain or .gz)",
        )
    return Path(data)


def _find_known(data: str, given: str) -> Path:
    if given:
        places: tuple[Path, ...] = (Path(given) / data, Path(given))
    else:
        places = PLACES
    for place in places:
        if place.is_dir():
            return place
    raise PinfeedError(
        f"{data} is not on this machine",
        "no folder " + " or ".join(str(place) for place in places) + (" (from PINFEED_DATA)" if given else ""),
        f"put the four files of {SOURCE} (data/fashion) into a folder and give it by --data or PINFEED_DATA;"
        " on Debian: apt-get install dataset-fashion-mnist",
        NO_INPUT,
    )


def _read(folder: Path, name: str) -> bytes:
    """The unpacked contents of a file, which may lie there plain or as .gz."""
    plain, packed = folder / name, folder / f"{name}.gz"
    path = plain if plain.exists() or not packed.exists() else packed
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path == packed else content
    except FileNotFoundError:
        have = ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "nothing"
        raise PinfeedError(f"the data file {path} is missing", f"in {folder}: {have}", _FRESH_COPY, NO_INPUT) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise PinfeedError(f"the data file {path} is damaged", f"{error}", _FRESH_COPY, BAD_DATA) from None
    except OSError as error:
        raise PinfeedError(
            f"the data file {path} cannot be read", f"{error.strerror}", "check its permissions", NO_INPUT
        ) from None


def _part(folder: Path, prefix: str, contents: Mapping[str, bytes]) -> Part:
    images_name, labels_name = f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"
    images = _parse_idx(folder / images_name, contents[images_name], 3)
    labels = _parse_idx(folder / labels_name, contents[labels_name], 1)
    if not len(images):
        raise _damaged(folder / images_name, "no image in it")
    if images.shape[1:] != IMAGE_SHAPE:
        raise _damaged(folder / images_name, f"images of {images.shape[1]} x {images.shape[2]}, not 28 x 28")
    if len(images) != len(labels):
        raise _damaged(folder / labels_name, f"{len(labels):,} labels for {len(images):,} images")
    if labels.max() >= len(CLASSES):
        raise _damaged(folder / labels_name, f"a label of {labels.max()}, where 0 to 9 are meant")
    return Part(torch.from_numpy(images).unsqueeze(1), torch.from_numpy(labels.astype(np.int64)))


def _parse_idx(path: Path, content: bytes, dimensions: int) -> np.ndarray:
    """An IDX file is: 0, 0, type, number of dimensions, each of them (big-endian, 4 bytes), the elements."""
    header = 4 + 4 * dimensions
    magic = bytes((0, 0, _UNSIGNED_BYTE, dimensions))
    if len(content) < header:
        raise _damaged(path, f"{len(content):,} bytes, fewer than its header has")
    if content[:4] != magic:
        raise _damaged(path, f"it begins with {content[:4].hex()}, where {magic.hex()} is meant")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    promised = header + math.prod(shape)
    if len(content) != promised:
        kind = "cut off" if len(content) < promised else "too long"
        raise _damaged(path, f"{kind}: {len(content):,} bytes, where its header promises {promised:,}")
    # A copy: torch wants memory it may write to, and the bytes of a file are not.
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape).copy()


def _check_digests(folder: Path, digests: Mapping[str, str]) -> None:
    for name, digest in digests.items():
        if digest != SHA256[name]:
            raise PinfeedError(
                f"the data file {folder / name} is not Fashion-MNIST's",
                f"sha256 {digest[:16]}..., where {SHA256[name][:16]}... is meant",
                f"{_FRESH_COPY}; or, for another set in the same format (MNIST, KMNIST), add --no-checksum",
                BAD_DATA,
            )


def _split(train: Part, seed: int) -> tuple[Part, Part]:
    """Train and validation, 11 to 1 (55,000 and 5,000), chosen by the seed."""
    order = torch.randperm(len(train), generator=seeds.generator(seed, "split"))
    held_out = max(1, len(train) // 12)
    return _rows(train, order[held_out:]), _rows(train, order[:held_out])


def _rows(part: Part, rows: torch.Tensor) -> Part:
    return Part(part.images.index_select(0, rows), part.labels.index_select(0, rows))


def _damaged(path: Path, seen: str) -> PinfeedError:
    return PinfeedError(f"the data file {path} is damaged", seen, _FRESH_COPY, BAD_DATA)
