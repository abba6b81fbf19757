"""The settings of a training run: one frozen dataclass, and its ranges are checked here."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Any, Optional

from pinfeed.errors import PinfeedError

DEVICES = ("auto", "cpu", "cuda")
AMP_MODES = ("auto", "bf16", "fp16", "off")
MODELS = ("auto", "small-cnn", "resnet18", "resnet50")
AUGMENTS = ("auto", "none", "flip", "zoom", "crop")
FEEDS = ("auto", "ring", "prefetch", "loader")

# What decides the weights that come out. A resumed run must have the same; the rest may change.
RECIPE = ("epochs", "batch_size", "seed", "lr", "limit", "model", "augment", "image_size")

_MAX_SEED = 2**63 - 1


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Everything `pinfeed train` can be told. Making one with a value out of range raises PinfeedError."""

    data: str = "fashion-mnist"
    out: Optional[str] = None
    epochs: int = 5
    batch_size: int = 128
    seed: int = 0
    lr: float = 0.1
    device: str = "auto"
    amp: str = "auto"
    model: str = "auto"
    augment: str = "auto"
    image_size: Optional[int] = None
    channels_last: bool = True
    compile: bool = False
    feed: str = "auto"
    save_every: Optional[int] = None
    pin_memory: bool = True
    workers: Optional[int] = None
    resume: Optional[str] = None
    limit: Optional[int] = None
    checksum: bool = True
    dry_run: bool = False

    def __post_init__(self) -> None:
        self._check_whole("epochs", 1, 100_000, "5")
        self._check_whole("batch_size", 1, 1_000_000, "128")
        self._check_whole("seed", 0, _MAX_SEED, "0")
        if self.workers is not None:
            self._check_whole("workers", 0, 1024, "auto")
        if self.limit is not None:
            self._check_whole("limit", 1, 1_000_000_000, "2000")
        if self.image_size is not None:
            self._check_whole("image_size", 8, 4096, "224")
        if self.save_every is not None:
            self._check_whole("save_every", 1, 1_000_000_000, "1000")
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise PinfeedError("--lr must be a number above 0", f"--lr {self.lr:g}", "pinfeed train --lr 0.1 ...")
        self._check_choice("device", DEVICES)
        self._check_choice("amp", AMP_MODES)
        self._check_choice("model", MODELS)
        self._check_choice("augment", AUGMENTS)
        self._check_choice("feed", FEEDS)

    def recipe(self) -> dict[str, Any]:
        """The settings that decide the result, as they are kept in the checkpoint."""
        return {name: getattr(self, name) for name in RECIPE}

    def _check_whole(self, name: str, low: int, high: int, example: str) -> None:
        value = getattr(self, name)
        if not low <= value <= high:
            flag = _flag(name)
            raise PinfeedError(
                f"{flag} must be a whole number from {low} to {high}",
                f"{flag} {value}",
                f"pinfeed train {flag} {example} ...",
            )

    def _check_choice(self, name: str, choices: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if value not in choices:
            flag = _flag(name)
            raise PinfeedError(
                f"{flag} must be one of {', '.join(choices)}",
                f"{flag} {value}",
                f"pinfeed train {flag} auto ...",
            )


def pin_memory_from(environ: Mapping[str, str]) -> bool:
    """PIN_MEMORY=0 is the same as --no-pin-memory; unset or empty means pinned."""
    value = environ.get("PIN_MEMORY", "")
    if value not in ("", "0", "1"):
        raise PinfeedError("PIN_MEMORY must be 0 or 1", f"PIN_MEMORY={value}", "PIN_MEMORY=0 turns pinned memory off")
    return value != "0"


def with_recipe_of(config: TrainConfig, given: frozenset[str], recipe: dict[str, Any]) -> TrainConfig:
    """`config` with the recipe of a checkpoint. A recipe setting that the user gave must agree with it."""
    differing = [name for name in RECIPE if name in given and getattr(config, name) != recipe[name]]
    if differing:
        asked = ", ".join(f"{_flag(name)} {getattr(config, name)}" for name in differing)
        kept = ", ".join(f"{_flag(name)} {recipe[name]}" for name in differing)
        raise PinfeedError(
            "a resumed run must go on with the settings that it began with",
            f"asked for {asked}; the checkpoint has {kept}",
            f"leave {' and '.join(map(_flag, differing))} out, or start anew: no --resume, another --out",
        )
    return dataclasses.replace(config, **recipe)


# In the image: where the user's folder is mounted. /workspace above it ends with the container.
MOUNTED = "/workspace/code"


def default_out(data: str, now: str, folder: str | None = None) -> str:
    """Where a run goes that was given no --out: a folder of its own, named after data and time.

    Below `folder` (by default the one we are in); from /workspace, where a container starts, below /workspace/code.
    """
    here = os.getcwd() if folder is None else folder
    above = MOUNTED if here == os.path.dirname(MOUNTED) and os.path.isdir(MOUNTED) else ""
    return os.path.join(above, "runs", f"{os.path.basename(os.path.normpath(data))}-{now}")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
