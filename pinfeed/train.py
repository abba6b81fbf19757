"""The learning itself: a step, an epoch, an evaluation. It prints nothing and knows no files."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any, Optional, Protocol

import torch
from torch import nn
from torch.nn import functional

from pinfeed import seeds
from pinfeed.meter import Statistics
from pinfeed.model import Network
from pinfeed.ring import Batch

MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4
WARM_UP = 0.2  # the share of all steps in which the learning rate rises


class Feed(Protocol):
    """Where batches come from: the ring, or a DataLoader."""

    batch_size: int
    statistics: Statistics

    def batches(self, order: torch.Tensor, first: int = 0, epoch: int = 0) -> Iterator[Batch]: ...
    def close(self) -> None: ...


@dataclasses.dataclass
class Learner:
    """A model, and what teaches it."""

    model: nn.Module
    training: nn.Module  # the model behind its transform; perhaps compiled, and shared out among processes
    testing: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    device: torch.device
    amp_type: Optional[torch.dtype]

    def autocast(self) -> torch.autocast:
        """The precision of the forward pass."""
        return torch.autocast(self.device.type, dtype=self.amp_type, enabled=self.amp_type is not None)

    def state(self) -> dict[str, Any]:
        """All that must be saved for a later run to go on in the same way."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scaler.is_enabled() and state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])


def make_learner(
    model: nn.Module,
    transforms: tuple[nn.Module, nn.Module],
    device: torch.device,
    amp_type: Optional[torch.dtype],
    lr: float,
    *,
    channels_last: bool = True,
    wrap: Callable[[nn.Module], nn.Module] = lambda module: module,
) -> Learner:
    """Put the model on its device and give it an optimizer. `wrap` compiles it, or shares it out."""
    model = model.to(device)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
    training, testing = (Network(transform, model).to(device) for transform in transforms)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=lr, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY, nesterov=True,
        fused=device.type == "cuda",
    )  # fmt: skip
    # bf16 has float32's range and needs no scaler; fp16 gradients would vanish without one.
    scaler = torch.amp.GradScaler(device.type, enabled=amp_type is torch.float16)
    return Learner(model, wrap(training), testing, optimizer, scaler, device, amp_type)


def learning_rate(step: int, steps: int, peak: float) -> float:
    """Up in a straight line, down in a half cosine. It depends on the step alone: a resume needs no state."""
    warm_up = max(1, int(WARM_UP * steps))
    if step < warm_up:
        return peak * (step + 1) / warm_up
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warm_up) / (steps - warm_up)))


def epoch_order(count: int, used: int, seed: int, epoch: int) -> torch.Tensor:
    """`used` of `count` samples: whole batches. What is left over differs from epoch to epoch."""
    return seeds.epoch_order(count, seed, epoch)[:used]


def train_step(learner: Learner, batch: Batch, lr: float, tally: torch.Tensor) -> None:
    """Learn from one batch, and add (summed loss, correct answers, samples) to `tally`."""
    for group in learner.optimizer.param_groups:
        group["lr"] = lr
    with learner.autocast():
        scores = learner.training(batch.images, batch.keys)
        loss_sum = functional.cross_entropy(scores, batch.labels, reduction="sum")
        # An image that could not be read has no label, and a batch may be of such alone.
        loss = loss_sum / (batch.labels >= 0).sum().clamp(min=1)
    learner.optimizer.zero_grad(set_to_none=True)
    learner.scaler.scale(loss).backward()
    learner.scaler.step(learner.optimizer)
    learner.scaler.update()
    _add(tally, loss_sum.detach(), scores, batch.labels)


def train_epoch(
    learner: Learner,
    batches: Iterator[Batch],
    first: int,
    lr_at: Callable[[int], float],
    tally: torch.Tensor,
    on_step: Callable[[int], None],
) -> None:
    """The batches of one epoch, the first of which is number `first`. `on_step` hears how many are done."""
    learner.model.train()
    with contextlib.closing(batches):  # type: ignore[type-var]
        for number, batch in enumerate(batches, first):
            train_step(learner, batch, lr_at(number), tally)
            on_step(number + 1)


@torch.inference_mode()
def evaluate(learner: Learner, feed: Feed, order: torch.Tensor, check: Callable[[], None]) -> torch.Tensor:
    """(summed loss, correct answers, samples) of the samples in `order`. `check` may raise between batches."""
    learner.model.eval()
    tally = new_tally(learner.device)
    with contextlib.closing(feed.batches(order)) as batches:  # type: ignore[type-var]
        for batch in batches:
            with learner.autocast():
                scores = learner.testing(batch.images, batch.keys)
                loss = functional.cross_entropy(scores, batch.labels, reduction="sum")
            _add(tally, loss, scores, batch.labels)
            check()
    return tally


def new_tally(device: torch.device) -> torch.Tensor:
    """A place on the device where a loss, correct answers and samples are summed."""
    return torch.zeros(3, dtype=torch.float64, device=device)


def _add(tally: torch.Tensor, loss_sum: torch.Tensor, scores: torch.Tensor, labels: torch.Tensor) -> None:
    # Stays on the device: reading it here would make the processor wait for the GPU at each step.
    tally += torch.stack([loss_sum, (scores.argmax(1) == labels).sum(), (labels >= 0).sum()])
