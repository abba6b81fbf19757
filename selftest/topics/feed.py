"""The way of the data to the device: each sample arrives once, whole, in the order asked for."""

from __future__ import annotations

import importlib.util
from typing import Any

from selftest.checks import GPU, CannotRunError, check, require


@check("pinfeed's feed brings every sample once and unchanged, on the CPU")
def feed_is_right_on_the_cpu() -> str:
    return _compare("cpu", pin=False)


@check("pinfeed's feed brings every sample once and unchanged, through pinned memory", needs=GPU)
def feed_is_right_on_the_gpu() -> str:
    return _compare("cuda", pin=True)


@check("a prefetching DataLoader brings every sample once and unchanged to the GPU", needs=GPU)
def loader_is_right() -> str:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    images = torch.randint(0, 255, (4096, 3, 16, 16), dtype=torch.uint8)
    loader = DataLoader(TensorDataset(images), batch_size=96, num_workers=2, pin_memory=True)
    seen = torch.cat([batch[0].to("cuda", non_blocking=True) for batch in loader])
    torch.cuda.synchronize()
    require(torch.equal(seen.cpu(), images), "what arrived is not what was sent")
    return f"{len(images)} samples"


def _compare(device: str, pin: bool) -> str:
    """The whole set, in a random order, with a last batch that is not full."""
    import torch

    if importlib.util.find_spec("pinfeed") is None:
        raise CannotRunError("pinfeed is not here")
    from pinfeed.data import Part
    from pinfeed.feed import Feed

    images = torch.randint(0, 255, (1000, 8, 8), dtype=torch.uint8)
    labels = torch.randint(0, 10, (1000,))
    order = torch.randperm(1000)
    feed: Any = Feed(Part(images, labels), 64, torch.device(device), pin=pin)
    # clone(): a batch is valid until the next one is asked for
    batches = [(batch.images.clone(), batch.labels.clone()) for batch in feed.batches(order)]
    require(torch.equal(torch.cat([one for one, _ in batches]).cpu(), images[order]), "images differ")
    require(torch.equal(torch.cat([one for _, one in batches]).cpu(), labels[order]), "labels differ")
    return f"{len(order)} samples in {len(batches)} batches"
