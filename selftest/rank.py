"""One rank of a small DDP training; torchrun starts it. Says `alike` when all ranks hold the same weights.

Usage: rank.py gloo|nccl
"""

from __future__ import annotations

import gc
import os
import sys
from datetime import timedelta


def main(backend: str) -> int:
    """Train a few steps on this rank's half of the data, then compare the weights."""
    import torch
    import torch.distributed as dist

    rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    dist.init_process_group(backend, timeout=timedelta(seconds=90))
    torch.manual_seed(rank)  # other data on each rank; DDP itself makes the weights alike
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 4).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        loss = model(torch.randn(32, 16, device=device)).square().mean()
        loss.backward()
        optimizer.step()
    mine = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    others = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(others, mine)
    alike = all(torch.equal(mine, other) for other in others)
    # In this order: gloo's processes abort at their end now and then while the model is still there.
    del model, optimizer, loss
    gc.collect()
    dist.destroy_process_group()
    print("alike" if alike else f"rank {rank} differs", flush=True)
    return 0 if alike else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
