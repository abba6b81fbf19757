"""Stamped samples, and the wrong feeds: the same code with one wait taken out."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from pinfeed import ring
from pinfeed.packed import InMemory

SIDE = 8


def stamped(count: int) -> InMemory:
    """Image k and label k say k: all of its bytes are k's lowest, its label is k."""
    numbers = torch.arange(count)
    images = numbers.to(torch.uint8)[:, None, None, None].expand(count, SIDE, SIDE, 3).contiguous()
    return InMemory(images, numbers)


class SlowRows(InMemory):
    """Rows whose gather writes in two halves, as large ones do: a copy in between takes both."""

    def gather(self, rows: np.ndarray, target: np.ndarray) -> None:
        half = len(rows) // 2
        super().gather(rows[:half], target[:half])
        time.sleep(0.0002)
        super().gather(rows[half:], target[half:])


class NoWaitForCopied(ring._Slots):
    """Bug 1: the gather overwrites a host slot that a copy still reads."""

    def await_host(self, number: int) -> None: ...


class NoWaitForConsumed(ring._Slots):
    """Bug 2: the copy overwrites a device slot that a step still reads."""

    def await_consumed(self, device: int) -> None: ...


class WrongStream(ring._Slots):
    """Bug 3: it is the copy stream that waits for the copy, and not the one that computes."""

    def await_copy(self, device: int, stream: Any) -> None:
        self.stream.wait_event(self.ready[device])


BUGS = (NoWaitForCopied, NoWaitForConsumed, WrongStream)


def wrong(batch: ring.Batch) -> torch.Tensor:
    """How many values of the batch do not fit its labels; computed where the batch is."""
    meant = batch.labels.to(torch.uint8)[:, None, None, None]
    return (batch.images != meant).sum()
