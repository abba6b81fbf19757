"""The learning itself: a step, an epoch, an evaluation. It prints nothing and knows no files."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import nn
from torch.nn import functional

from pinfeed import seeds
from pinfeed.feed import Batch, Feed
from pinfeed.model import normalised

MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4
WARM_UP = 0.2  # the share of all steps in which the learning rate rises


@dataclasses.dataclass
class Learner:
    """A model, and what teaches it."""

    model: nn.Module
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


@dataclasses.dataclass(frozen=True)
class EpochPlan:
    """The random choices of one epoch: which sample comes when, and which are mirrored."""

    order: torch.Tensor
    flips: torch.Tensor


def plan_epoch(count: int, steps: int, batch_size: int, seed: int, epoch: int) -> EpochPlan:
    """`steps` full batches out of `count` samples; what is left over differs from epoch to epoch."""
    used = steps * batch_size
    return EpochPlan(seeds.epoch_order(count, seed, epoch)[:used], seeds.epoch_flips(used, seed, epoch))


def make_learner(model: nn.Module, device: torch.device, amp_type: Optional[torch.dtype], lr: float) -> Learner:
    """Put the model on its device and give it an optimizer."""
    model = model.to(device=device, memory_format=torch.channels_last)
    fused = device.type == "cuda"
    optimizer = torch.optim.SGD(
        model.parameters(), lr=lr, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY, nesterov=True, fused=fused
    )
    # bf16 has float32's range and needs no scaler; fp16 gradients would vanish without one.
    scaler = torch.amp.GradScaler(device.type, enabled=amp_type is torch.float16)
    return Learner(model, optimizer, scaler, device, amp_type)


def learning_rate(step: int, steps: int, peak: float) -> float:
    """Up in a straight line, down in a half cosine. It depends on the step alone: a resume needs no state."""
    warm_up = max(1, int(WARM_UP * steps))
    if step < warm_up:
        return peak * (step + 1) / warm_up
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warm_up) / (steps - warm_up)))


def train_step(learner: Learner, batch: Batch, flips: torch.Tensor, lr: float, tally: torch.Tensor) -> None:
    """Learn from one batch, and add (summed loss, correct answers) to `tally`."""
    for group in learner.optimizer.param_groups:
        group["lr"] = lr
    images = normalised(batch.images)
    images = torch.where(flips[:, None, None, None], images.flip(3), images)
    with learner.autocast():
        scores = learner.model(images)
        loss = functional.cross_entropy(scores, batch.labels)
    learner.optimizer.zero_grad(set_to_none=True)
    learner.scaler.scale(loss).backward()
    learner.scaler.step(learner.optimizer)
    learner.scaler.update()
    # Stays on the device: reading it here would make the processor wait for the GPU at each step.
    tally += torch.stack([loss.detach() * len(batch.labels), (scores.argmax(1) == batch.labels).sum()])


def train_epoch(
    learner: Learner,
    feed: Feed,
    plan: EpochPlan,
    first: int,
    lr_at: Callable[[int], float],
    tally: torch.Tensor,
    on_step: Callable[[int], None],
) -> None:
    """The batches of one epoch from number `first` on. `on_step` hears how many are done, and may raise."""
    learner.model.train()
    flips = plan.flips.to(learner.device).split(feed.batch_size)
    for number, batch in enumerate(feed.batches(plan.order, first), first):
        train_step(learner, batch, flips[number], lr_at(number), tally)
        on_step(number + 1)


@torch.inference_mode()
def evaluate(learner: Learner, feed: Feed, count: int, check: Callable[[], None]) -> tuple[float, float]:
    """Mean loss and accuracy over the feed's `count` samples. `check` may raise between batches."""
    learner.model.eval()
    tally = new_tally(learner.device)
    for batch in feed.batches(torch.arange(count)):
        with learner.autocast():
            scores = learner.model(normalised(batch.images))
            loss = functional.cross_entropy(scores, batch.labels, reduction="sum")
        tally += torch.stack([loss, (scores.argmax(1) == batch.labels).sum()])
        check()
    loss_sum, correct = tally.tolist()
    return loss_sum / count, correct / count


def new_tally(device: torch.device) -> torch.Tensor:
    """A place on the device where a loss and a count of correct answers are summed."""
    return torch.zeros(2, dtype=torch.float64, device=device)
