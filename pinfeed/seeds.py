"""Every random choice is keyed by the seed and by what it is for, never by how far a run has come.

So a run that is resumed, or fed in another way, makes the same choices.
"""

from __future__ import annotations

import hashlib

import torch


def generator(seed: int, *purpose: object) -> torch.Generator:
    """A generator of its own for (seed, purpose); always on the CPU, so that the device changes nothing."""
    key = hashlib.sha256(repr((seed, *purpose)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(key[:8], "big") >> 1)


def epoch_order(count: int, seed: int, epoch: int) -> torch.Tensor:
    """The order in which epoch `epoch` visits `count` samples."""
    return torch.randperm(count, generator=generator(seed, "order", epoch))


def epoch_flips(count: int, seed: int, epoch: int) -> torch.Tensor:
    """For each place in that order: is the image shown mirrored?"""
    return torch.rand(count, generator=generator(seed, "flip", epoch)) < 0.5
