"""How a topic says what it checks, and what a check needs."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any, Callable, Optional

HOME_OF_THE_IMAGE = "/opt/pytorch-cuda"
GPU, TWO_GPUS, IMAGE = "gpu", "two gpus", "image"
NOT_IN_THE_IMAGE = "not in the image"
NO_GPU = "no GPU"


class CannotRunError(Exception):
    """Raised by a check that cannot be done here; its text is the reason."""


@dataclass(frozen=True)
class Check:
    """A sentence that is true when the function comes back."""

    topic: str
    sentence: str
    function: Callable[[], Any]
    needs: str = ""

    def obstacle(self) -> Optional[str]:
        """Why it cannot be done here, if so."""
        return _OBSTACLES[self.needs]() if self.needs else None


# Filled while a topic's module is imported.
FOUND: list[Check] = []


def check(sentence: str, needs: str = "") -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Declare a check. It fails by any exception; what it returns is shown beside its name."""

    def declare(function: Callable[[], Any]) -> Callable[[], Any]:
        FOUND.append(Check(function.__module__.rpartition(".")[2], sentence, function, needs))
        return function

    return declare


def require(condition: Any, seen: str) -> None:
    """An assertion that is not switched off by -O, and says what was seen."""
    if not condition:
        raise AssertionError(seen)


def in_image() -> bool:
    """Whether this runs on the image's own environment, and not from a checkout elsewhere."""
    return os.path.isdir(HOME_OF_THE_IMAGE) and sys.prefix.startswith("/opt/conda/envs/pytorch")


def gpus() -> int:
    """How many GPUs torch may use."""
    import torch

    return int(torch.cuda.device_count()) if torch.cuda.is_available() else 0


def _no_gpu() -> Optional[str]:
    return None if gpus() else NO_GPU


def _no_second_gpu() -> Optional[str]:
    return _no_gpu() or (None if gpus() > 1 else "needs a second GPU")


def _not_in_the_image() -> Optional[str]:
    return None if in_image() else NOT_IN_THE_IMAGE


_OBSTACLES: dict[str, Callable[[], Optional[str]]] = {
    GPU: _no_gpu,
    TWO_GPUS: _no_second_gpu,
    IMAGE: _not_in_the_image,
}
