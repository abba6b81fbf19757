"""Every random choice is keyed by the seed and by what it is for, never by how far a run has come.

So a run that is resumed, or fed in another way, or shared out among GPUs, makes the same choices.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch


def generator(seed: int, *purpose: object) -> torch.Generator:
    """A generator of its own for (seed, purpose); always on the CPU, so that the device changes nothing."""
    return torch.Generator().manual_seed(_number(seed, *purpose) >> 1)


def epoch_order(count: int, seed: int, epoch: int) -> torch.Tensor:
    """The order in which epoch `epoch` visits `count` samples."""
    return torch.randperm(count, generator=generator(seed, "order", epoch))


def shard(order: torch.Tensor, rank: int, world_size: int) -> torch.Tensor:
    """What rank `rank` visits: every world_size-th sample from its own place on.

    So batch k of all ranks together is batch k of a single process, whatever their number.
    """
    return order[rank::world_size]


def sample_keys(rows: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """A 63-bit number for each sample of an epoch: all of its random transforms follow from it."""
    key = np.asarray(rows).astype(np.uint64) + np.uint64(_number(seed, "sample", epoch))
    # splitmix64: neighbouring samples get numbers that have nothing in common.
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((key ^ (key >> np.uint64(31))) >> np.uint64(1)).astype(np.int64)


def _number(seed: int, *purpose: object) -> int:
    """64 bits that (seed, purpose) decide."""
    return int.from_bytes(hashlib.sha256(repr((seed, *purpose)).encode()).digest()[:8], "big")
