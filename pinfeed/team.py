"""Several processes, one a GPU, that train together: started by torchrun, or one alone."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Mapping
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch import nn

from pinfeed.errors import UNAVAILABLE, USAGE, PinfeedError

_STOP_EVERY = 4  # steps between two questions whether someone was told to stop


@dataclasses.dataclass
class Team:
    """This process's place among the others."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    _control: Any = None  # a group on the processor, for what must not wait for the GPU

    @property
    def leads(self) -> bool:
        """Does this process write and talk?"""
        return self.rank == 0

    def join(self, device: torch.device) -> None:
        """Meet the others. The device has been set before: NCCL takes the current one."""
        if self.size == 1:
            return
        try:
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
            self._control = dist.new_group(backend="gloo")
        except (RuntimeError, ValueError, dist.DistError) as error:
            raise PinfeedError(
                "the processes of this run did not find each other",
                str(error).splitlines()[0],
                "start them by torchrun, all with the same --nnodes and master address",
                UNAVAILABLE,
            ) from None

    def wrapped(self, module: nn.Module, device: torch.device) -> nn.Module:
        """`module` with its gradients averaged over all processes."""
        if self.size == 1:
            return module
        ids = [device.index] if device.type == "cuda" else None
        return nn.parallel.DistributedDataParallel(
            module, device_ids=ids, gradient_as_bucket_view=True, static_graph=True
        )

    def total(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum over all processes; each must ask."""
        if self.size > 1:
            tensor = tensor.clone()
            dist.all_reduce(tensor)
        return tensor

    def highest(self, number: int, step: int = 0) -> int:
        """The highest of all processes' numbers. To save time only every few steps; then it is the same for all."""
        if self.size == 1:
            return number
        if step % _STOP_EVERY:
            return 0
        told = torch.tensor([number])
        dist.all_reduce(told, dist.ReduceOp.MAX, group=self._control)
        return int(told)

    def same_buffers(self, module: nn.Module) -> None:
        """Give all processes the first one's running averages, so that they evaluate one and the same network."""
        if self.size > 1:
            for buffer in module.buffers():
                dist.broadcast(buffer, 0)

    def leave(self) -> None:
        """Part from the others. The caller has let go of model and optimizer."""
        if self.size > 1 and dist.is_initialized():
            # What DDP still holds would make gloo abort at exit now and then.
            gc.collect()
            dist.destroy_process_group()


def team_of(environ: Mapping[str, str]) -> Team:
    """What torchrun has said about this process; one alone when it was not started so."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    given = [environ.get(name) for name in names]
    if None in given[:3]:
        return Team()
    try:
        rank, size, local_rank, local_size = (int(value or 1) for value in given)
    except ValueError:
        seen = ", ".join(f"{name}={value}" for name, value in zip(names, given))
        raise PinfeedError("torchrun's variables are no numbers", seen, "unset them, or use torchrun", USAGE) from None
    return Team(rank, size, local_rank, local_size)


def share_of(batch_size: int, team: Optional[Team]) -> int:
    """How many images of a step are this process's."""
    size = team.size if team else 1
    if batch_size % size:
        raise PinfeedError(
            "--batch-size cannot be shared out evenly",
            f"--batch-size {batch_size} (of all processes together), {size} processes",
            f"pinfeed train --batch-size {-(-batch_size // size) * size} ...",
        )
    return batch_size // size
