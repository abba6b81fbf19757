"""The way of the data to the device: each sample arrives once, whole, in the order asked for."""

from __future__ import annotations

import importlib.util
from typing import Any

from selftest.checks import GPU, CannotRunError, check, require

_COUNT, _BATCH = 1000, 64  # the last batch is not full


@check("pinfeed's ring brings every sample once and unchanged, on the CPU")
def ring_is_right_on_the_cpu() -> str:
    return _compare("cpu")


@check("pinfeed's ring brings every sample once and unchanged, through pinned memory", needs=GPU)
def ring_is_right_on_the_gpu() -> str:
    return _compare("cuda")


@check("pinfeed's prefetch brings a DataLoader's samples once and unchanged to the GPU", needs=GPU)
def prefetch_is_right() -> str:
    pinfeed = _pinfeed()
    return _load(lambda loader: (batch[0] for batch in pinfeed.prefetch(loader, "cuda")))


@check("a DataLoader with workers and pinned memory brings every sample once and unchanged to the GPU", needs=GPU)
def loader_is_right() -> str:
    return _load(lambda loader: (batch[0].to("cuda", non_blocking=True) for batch in loader))


def _compare(device: str) -> str:
    """The whole set, in a random order that the ring is given."""
    import torch

    pinfeed = _pinfeed()
    images = torch.randint(0, 255, (_COUNT, 8, 8, 3), dtype=torch.uint8)
    labels = torch.randint(0, 10, (_COUNT,))
    order = torch.randperm(_COUNT)
    with pinfeed.Ring(pinfeed.InMemory(images, labels), _BATCH, device) as ring:
        # A batch is valid until the next one is asked for.
        batches = [batch.clone() for batch in ring.batches(order)]
    seen = torch.cat([batch.images for batch in batches]).permute(0, 2, 3, 1).cpu()
    require(torch.equal(seen, images[order]), "images differ")
    require(torch.equal(torch.cat([batch.labels for batch in batches]).cpu(), labels[order]), "labels differ")
    return f"{_COUNT} samples in {len(batches)} batches"


def _load(bring: Any) -> str:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    images = torch.randint(0, 255, (_COUNT, 3, 16, 16), dtype=torch.uint8)
    loader = DataLoader(TensorDataset(images), batch_size=_BATCH, num_workers=2, pin_memory=True)
    seen = torch.cat([batch.clone() for batch in bring(loader)])
    torch.cuda.synchronize()
    require(torch.equal(seen.cpu(), images), "what arrived is not what was sent")
    return f"{_COUNT} samples"


def _pinfeed() -> Any:
    if importlib.util.find_spec("pinfeed") is None:
        raise CannotRunError("pinfeed is not here")
    import pinfeed

    return pinfeed
