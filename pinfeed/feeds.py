"""The feed that fits the data: the ring for what is packed, a DataLoader with prefetch for files."""

from __future__ import annotations

import dataclasses
import math
import mmap
from collections.abc import Callable

import torch

from pinfeed import guards
from pinfeed.loading import LoaderFeed
from pinfeed.ring import Ring
from pinfeed.sources import FolderSamples, Samples
from pinfeed.train import Feed

_HELD = 3  # batches that have left the workers: one in the loop, two that `prefetch` has ready


@dataclasses.dataclass(frozen=True)
class Wish:
    """What a feed is to do, and who hears what there is to say."""

    kind: str  # ring, prefetch or loader
    device: torch.device
    seed: int
    pin: bool
    workers: int | None  # None: as many as fit
    processes: int  # that share this machine
    say: Callable[[str], None]
    on_bad: Callable[[str], None]


def make(samples: Samples, batch_size: int, wish: Wish) -> Feed:
    """A feed for `samples`, fitted to the machine."""
    if wish.kind == "ring" and not isinstance(samples, FolderSamples):
        return Ring(samples, batch_size, wish.device, seed=wish.seed, pin=wish.pin)
    plan = _plan(samples, batch_size, wish)
    return LoaderFeed(
        samples,
        batch_size,
        wish.device,
        seed=wish.seed,
        workers=plan.workers,
        prefetch=plan.prefetch,
        pin=plan.pin,
        ahead=wish.kind != "loader",
        on_bad=wish.on_bad,
    )


def _plan(samples: Samples, batch_size: int, wish: Wish) -> guards.LoaderPlan:
    guards.raise_open_files()
    room = guards.measure()
    # Rows of a packed set are copied, not decoded: processes would only cost time.
    automatic = max(1, room.cpus // wish.processes) if isinstance(samples, FolderSamples) else 0
    workers = automatic if wish.workers is None else wish.workers
    prefetch, notes = guards.PREFETCH, tuple[str, ...]()
    while True:
        demand = guards.Demand(
            batch_bytes=_batch_bytes(samples, batch_size, max(1, workers * prefetch)),
            workers=workers,
            prefetch=prefetch,
            pin=wish.pin,
            asked=wish.workers is not None,
        )
        plan = guards.plan_loader(demand, room)
        notes = plan.notes or notes
        if plan.workers == 0 or (plan.workers, plan.prefetch) == (workers, prefetch):
            break
        # Of fewer, each has a larger share in what the loop holds.
        workers, prefetch = plan.workers, plan.prefetch
    for note in notes:
        wish.say(note)
    return plan


def _batch_bytes(samples: Samples, batch_size: int, ahead: int) -> int:
    """What a batch takes of /dev/shm: whole pages, and its share of those that the loop and `prefetch` still hold."""
    pages = sum(-(-size // mmap.PAGESIZE) + 1 for size in (batch_size * math.prod(samples.shape), 8 * batch_size))
    return math.ceil(pages * mmap.PAGESIZE * (ahead + _HELD) / ahead)
