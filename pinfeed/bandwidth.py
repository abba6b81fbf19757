"""Measurements of the way from host to GPU. The clock is read with the GPU at rest; every number is a median."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any, Optional

import torch

from pinfeed.slab import CannotPin, Slab

REPEATS = 20
BATCH = 38_535_168  # 256 images of 3 x 224 x 224 in 8 bits, or 64 of them in float32
SIZES = (1 << 16, 1 << 20, BATCH // 4, BATCH, 4 * BATCH, 16 * BATCH)

_STEPS = 10  # of a training loop that is imitated
_SIDE = 4096  # of the matrices that keep the GPU busy
_PIN_STEP = 256 << 20


@dataclasses.dataclass(frozen=True)
class Copies:
    """Copies of one size in one direction, in GB/s (10^9 bytes a second)."""

    bytes: int
    direction: str  # h2d, d2h, or h2h where there is no GPU
    pinned: bool
    median: float
    slowest: float
    fastest: float
    n: int


def copies(size: int, direction: str, *, pinned: bool, device: torch.device, repeats: int = REPEATS) -> Copies:
    """Time `repeats` copies of `size` bytes, each from rest to rest. Raises CannotPin."""
    slab = Slab(size, pin=pinned)
    try:
        host = slab.bytes
        host.fill_(1)  # memory that was never written to is not there yet
        other = torch.ones(size, dtype=torch.uint8, device=device)
        target, source = (host, other) if direction == "d2h" else (other, host)
        seconds = timed(lambda: target.copy_(source, non_blocking=True), device, repeats)
    finally:
        slab.close()
    rates = sorted(size / 1e9 / second for second in seconds)
    return Copies(
        size,
        direction,
        pinned,
        round(statistics.median(rates), 2),
        round(rates[0], 2),
        round(rates[-1], 2),
        len(rates),
    )


def timed(work: Callable[[], Any], device: torch.device, repeats: int = REPEATS) -> list[float]:
    """Seconds that `work` takes on the device, `repeats` times, after two that are not counted."""
    seconds = []
    for _ in range(repeats + 2):
        rest(device)
        began = time.perf_counter()
        work()
        rest(device)
        seconds.append(time.perf_counter() - began)
    return seconds[2:]


def rest(device: torch.device) -> None:
    """Wait until the device has nothing left to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# --- copies beside computing ---------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Overlap:
    """Milliseconds of a training step that is imitated: computing, and a batch of `bytes` for the next one."""

    bytes: int
    compute: float
    copy: float  # of pinned memory, by itself
    pageable: float  # both, as `batch.to(device)` does it
    pinned: float  # both, from pinned memory on a stream of its own
    n: int

    @property
    def hidden(self) -> float:
        """The share of the copy that pinned memory and a stream hide behind the computing."""
        return _share(self.compute + self.copy - self.pinned, self.copy)


def overlap(device: torch.device, size: int = BATCH, repeats: int = REPEATS) -> Overlap:
    """Imitate a loop of steps that computes about three times as long as it copies. Raises CannotPin."""
    slab = Slab(size, pin=True)
    try:
        pageable = torch.ones(size, dtype=torch.uint8)
        slots = [torch.empty(size, dtype=torch.uint8, device=device) for _ in range(2)]
        stream = torch.cuda.Stream(device)
        copy = _median(timed(lambda: slots[0].copy_(slab.bytes, non_blocking=True), device, repeats))
        compute = _busy(device, 3 * copy)

        def steps(feed: Callable[[int], object]) -> float:
            def loop() -> None:
                for number in range(_STEPS):
                    feed(number)
                    compute()

            return _median(timed(loop, device, repeats)) / _STEPS

        def prefetched(number: int) -> None:
            step = torch.cuda.current_stream(device)
            step.wait_stream(stream)  # this step's batch is there
            stream.wait_stream(step)  # the step that last read the slot is over
            with torch.cuda.stream(stream):
                slots[number % 2].copy_(slab.bytes, non_blocking=True)

        alone = steps(lambda number: None)
        plain = steps(lambda number: slots[number % 2].copy_(pageable))
        pinned = steps(prefetched)
    finally:
        rest(device)
        slab.close()
    alone, copy, plain, pinned = (round(1e3 * value, 3) for value in (alone, copy, plain, pinned))
    return Overlap(size, alone, copy, plain, pinned, repeats)


def _busy(device: torch.device, seconds: float) -> Callable[[], None]:
    """Work that keeps the GPU busy for about that long."""
    matrix = torch.rand(_SIDE, _SIDE, device=device, dtype=torch.float16)
    out = torch.empty_like(matrix)
    one = _median(timed(lambda: torch.mm(matrix, matrix, out=out), device, 5))
    count = max(1, round(seconds / one))

    def work() -> None:
        for _ in range(count):
            torch.mm(matrix, matrix, out=out)

    return work


# --- how much can be pinned ----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Pinnable:
    """How much memory could be pinned at once. All of it has been given back."""

    bytes: int
    bound: int  # more was not tried
    refusal: Optional[str]  # None: the bound was reached
    seconds_a_gigabyte: Optional[float]


def pinnable(
    bound: int, step: int = _PIN_STEP, make: Callable[[int], Slab] = lambda size: Slab(size, pin=True)
) -> Pinnable:
    """Pin memory in steps until `bound` or a refusal, and give all of it back."""
    slabs: list[Slab] = []
    refusal: Optional[str] = None
    began = time.perf_counter()
    try:
        while (len(slabs) + 1) * step <= bound:
            try:
                slabs.append(make(step))
            except (CannotPin, OSError, RuntimeError) as error:  # OSError: the map itself, of memory that is not there
                refusal = str(error)
                break
        seconds = time.perf_counter() - began
    finally:
        count = len(slabs)
        while slabs:
            slabs.pop().close()
    pace = round(seconds / (count * step / 1e9), 3) if count else None
    return Pinnable(count * step, bound, refusal, pace)


# --- two mistakes to show ------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Hazards:
    """Of `n` tries: how often a mistake gave wrong numbers, and how often the right way did."""

    read_too_early: int  # a copy to the host, not waited for
    read_after_waiting: int
    overwritten_too_early: int  # a pinned buffer filled again while a copy still reads it
    overwritten_after_waiting: int
    n: int


def hazards(device: torch.device, tries: int = REPEATS) -> Hazards:
    """Show what non_blocking does not do. `.to(\"cpu\", non_blocking=True)` returns before the numbers are there."""
    compute = _busy(device, 0.005)
    slab = Slab(1 << 20, pin=True)
    wrong = [0, 0, 0, 0]
    try:
        host = slab.bytes
        on_gpu = torch.empty_like(host, device=device)
        for number in range(tries):
            old, new = 2 * (number % 2), 2 * (number % 2) + 1

            def to_host(old: int = old, new: int = new) -> None:
                rest(device)
                host.fill_(old)
                compute()  # what a real step does before its result is there
                on_gpu.fill_(new)
                host.copy_(on_gpu, non_blocking=True)

            def to_gpu(old: int = old) -> None:
                rest(device)
                host.fill_(old)
                compute()
                on_gpu.copy_(host, non_blocking=True)

            to_host()
            wrong[0] += not _all(host, new)
            to_host()
            rest(device)
            wrong[1] += not _all(host, new)
            to_gpu()
            host.fill_(new)
            wrong[2] += not _all(on_gpu, old)
            to_gpu()
            rest(device)
            host.fill_(new)
            wrong[3] += not _all(on_gpu, old)
    finally:
        rest(device)
        slab.close()
    return Hazards(wrong[0], wrong[1], wrong[2], wrong[3], tries)


def _all(tensor: torch.Tensor, value: int) -> bool:
    return bool((tensor == value).all())


def _median(seconds: list[float]) -> float:
    return statistics.median(seconds)


def _share(part: float, whole: float) -> float:
    return round(min(1.0, max(0.0, part / whole)), 3)
