"""What `--data` means: where the samples come from, split honestly into train, validation and test.

The test part is never trained on and never used to choose anything. Where the data have no part for
validation, one is taken from the training part by the seed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Optional, Union

import numpy as np
import torch

from pinfeed import data, images, packed, packfiles, seeds, transforms
from pinfeed.config import TrainConfig
from pinfeed.errors import BAD_DATA, USAGE, PinfeedError
from pinfeed.images import ImageFolder
from pinfeed.packed import InMemory, Packed, Rows

SYNTHETIC = "synthetic"
SMALL = 64  # a side from which on images are taken for photographs

_TEST_NAMES = ("test", "val", "validation", "valid")  # in this order; what is left of them validates
_HELD_OUT = 12  # one of so many training samples validates, or tests, where the data have no part for it
_GREY = ((72.94,), (90.02,))  # mean and deviation of Fashion-MNIST's training images
_COLOUR = (transforms.IMAGENET_MEAN, transforms.IMAGENET_STD)
_SYNTHETIC_COUNT = 2048

Samples = Union[Rows, "FolderSamples"]


class Subset:
    """Some of another set's samples, under new numbers."""

    def __init__(self, rows: Rows, chosen: np.ndarray) -> None:
        self._rows, self._chosen = rows, chosen
        self.shape = rows.shape
        self.labels = rows.labels[torch.from_numpy(chosen)]

    def __len__(self) -> int:
        return len(self._chosen)

    def gather(self, rows: np.ndarray, target: np.ndarray) -> None:
        """The images numbered `rows`, into `target`."""
        self._rows.gather(self._chosen[rows], target)


@dataclasses.dataclass(frozen=True)
class FolderSamples:
    """Samples that are files, decoded when they are needed to squares of `side`."""

    listing: ImageFolder
    side: int
    chosen: np.ndarray

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width, channels."""
        return self.side, self.side, 3

    @property
    def labels(self) -> torch.Tensor:
        """int64, one a sample."""
        return torch.from_numpy(self.listing.labels[self.chosen])

    def __len__(self) -> int:
        return len(self.chosen)


@dataclasses.dataclass(frozen=True)
class Splits:
    """What a run uses, and where it came from."""

    train: Samples
    validation: Samples
    test: Samples
    classes: tuple[str, ...]
    place: str
    fingerprint: str

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width, channels of an image as it lies in memory."""
        return self.train.shape

    @property
    def levels(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """(mean, deviation) of each channel, from which images are normalised."""
        return _GREY if self.shape[2] == 1 else _COLOUR


def load(config: TrainConfig, environ: Mapping[str, str], *, checksum: bool) -> Splits:
    """Find, read, check and split the data set that `--data` names."""
    if config.data == SYNTHETIC:
        return _synthetic(config)
    if config.data and config.data not in data.NAMES:
        folder = Path(config.data)
        sets = _packed_sets(folder)
        if sets:
            return _split(_opened(sets), folder, config)
        # Only now: a list of a million files takes seconds.
        if folder.is_dir() and not _has_idx(folder):
            return _split(_listed(folder, config), folder, config)
    found = data.load(config.data, environ, seed=config.seed, limit=config.limit, checksum=checksum)
    train, validation, test = (
        InMemory(part.images.permute(0, 2, 3, 1), part.labels) for part in (found.train, found.validation, found.test)
    )
    return Splits(train, validation, test, data.CLASSES, str(found.folder.absolute()), found.fingerprint)


# --- the kinds of data ---------------------------------------------------------------------------


def _has_idx(folder: Path) -> bool:
    """Is one of Fashion-MNIST's files here? A folder that has some, but not all, is told so by `data`."""
    return any((folder / f"{name}{ending}").exists() for name in data.SHA256 for ending in ("", ".gz"))


def _packed_sets(folder: Path) -> dict[str, Path]:
    """The packed sets in a folder: {"": folder}, or one for each part."""
    for place in (folder, *(folder / name for name in images.PARTS)):
        if place.is_dir():
            packfiles.refuse_unfinished(place)
    if packed.is_packed(folder):
        return {"": folder}
    return {name: folder / name for name in images.PARTS if packed.is_packed(folder / name)}


def _opened(sets: dict[str, Path]) -> dict[str, tuple[Samples, tuple[str, ...], str]]:
    opened: dict[str, tuple[Samples, tuple[str, ...], str]] = {}
    for name, path in sets.items():
        rows = Packed(path)
        opened[name] = (rows, rows.classes, rows.fingerprint)
    return opened


def _listed(folder: Path, config: TrainConfig) -> dict[str, tuple[Samples, tuple[str, ...], str]]:
    side = round((config.image_size or 224) * 256 / 224)  # room for crops
    listed: dict[str, tuple[Samples, tuple[str, ...], str]] = {}
    classes: Optional[tuple[str, ...]] = None
    for name, path in images.parts_of(folder).items():
        listing = images.list_folder(path, classes)
        classes = classes or listing.classes
        everything = FolderSamples(listing, side, np.arange(len(listing)))
        listed[name] = (everything, listing.classes, listing.fingerprint())
    return listed


def _synthetic(config: TrainConfig) -> Splits:
    """Noise with a pattern for each of ten classes: for trying things out, where no data are."""
    side, count = config.image_size or SMALL, config.limit or _SYNTHETIC_COUNT
    generator = seeds.generator(config.seed, SYNTHETIC)
    held_out = math.ceil(count / 10)
    total = count + 2 * held_out
    labels = torch.arange(total) % 10
    labels = labels[torch.randperm(total, generator=generator)]
    patterns = torch.randint(0, 120, (10, side, side, 3), generator=generator, dtype=torch.uint8)
    pixels = torch.randint(0, 120, (total, side, side, 3), generator=generator, dtype=torch.uint8)
    pixels += patterns[labels]
    ends = (0, count, count + held_out, total)
    train, validation, test = (InMemory(pixels[a:b], labels[a:b]) for a, b in zip(ends, ends[1:]))
    names = tuple(f"class {number}" for number in range(10))
    place, fingerprint = f"made up by --seed {config.seed}", f"{SYNTHETIC} {config.seed} {side} {count}"
    return Splits(train, validation, test, names, place, fingerprint)


# --- the split -----------------------------------------------------------------------------------


def _split(sets: dict[str, tuple[Samples, tuple[str, ...], str]], folder: Path, config: TrainConfig) -> Splits:
    """Train, validation and test of a folder's parts; what is missing is taken from the training part."""
    whole, classes, _ = sets.get("train") or sets.get("") or _no_training_part(folder, sets)
    others = [sets[name] for name in _TEST_NAMES if name in sets]
    _check_classes(folder, classes, [names for _, names, _ in others])
    order = torch.randperm(len(whole), generator=seeds.generator(config.seed, "split")).numpy()
    share = max(1, len(whole) // _HELD_OUT)
    held: list[Samples] = [samples for samples, _, _ in others[:2]]
    held.reverse()  # validation, test
    while len(held) < 2:
        taken, order = order[:share], order[share:]
        held.insert(0, _some(whole, taken))
    if len(order) < 1:
        raise PinfeedError(
            f"{folder} has too few images", f"{len(whole)} in all", "at least three are needed", BAD_DATA
        )
    parts = [_some(whole, order), *held]
    if config.limit is not None:
        few = math.ceil(config.limit / 10)
        parts = [_first(part, most) for part, most in zip(parts, (config.limit, few, few))]
    digest = hashlib.sha256("\n".join(f"{name} {sets[name][2]}" for name in sorted(sets)).encode()).hexdigest()
    return Splits(parts[0], parts[1], parts[2], classes, str(folder.absolute()), digest)


def _some(samples: Samples, chosen: np.ndarray) -> Samples:
    if isinstance(samples, FolderSamples):
        return dataclasses.replace(samples, chosen=samples.chosen[chosen])
    return Subset(samples, chosen)


def _first(samples: Samples, most: int) -> Samples:
    return samples if len(samples) <= most else _some(samples, np.arange(most))


def _check_classes(folder: Path, classes: tuple[str, ...], others: list[tuple[str, ...]]) -> None:
    if len(classes) < 2:
        raise PinfeedError(
            "there is only one class, so nothing can be learned",
            f"{', '.join(classes)} in {folder}",
            "give a folder that has at least two classes",
            BAD_DATA,
        )
    for names in others:
        if names != classes:
            raise PinfeedError(
                f"the parts of {folder} have different classes",
                f"{len(classes)} and {len(names)}, or others by name",
                "pack them from one folder with train/ and val/",
                BAD_DATA,
            )


def _no_training_part(folder: Path, sets: Mapping[str, object]) -> tuple[Samples, tuple[str, ...], str]:
    raise PinfeedError(
        f"{folder} has no training part", f"in it: {', '.join(sets)}", "give the folder that has train/ in it", USAGE
    )
