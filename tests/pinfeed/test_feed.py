"""The feed: the samples asked for, in the order asked for, and no pinned memory reused too early."""

from __future__ import annotations

import pytest
import torch

from pinfeed.data import Part
from pinfeed.feed import SLOTS, Feed

CPU = torch.device("cpu")


def stamped(count: int) -> Part:
    """A part in which image k is filled with k, and so is its label."""
    numbers = torch.arange(count)
    images = numbers.to(torch.uint8)[:, None, None, None].expand(count, 1, 28, 28).contiguous()
    return Part(images, numbers)


def test_batches_follow_the_order_and_the_last_may_be_smaller() -> None:
    order = torch.randperm(50)
    batches = list(Feed(stamped(50), 16, CPU, pin=False).batches(order))
    assert [len(batch.labels) for batch in batches] == [16, 16, 16, 2]
    assert torch.equal(torch.cat([batch.labels for batch in batches]), order)
    for batch in batches:
        assert torch.equal(batch.images[:, 0, 13, 13].long(), batch.labels)


def test_an_epoch_can_be_entered_in_its_middle() -> None:
    order = torch.randperm(48)
    feed = Feed(stamped(48), 16, CPU, pin=False)
    rest = [batch.labels for batch in feed.batches(order, first=2)]
    assert torch.equal(torch.cat(rest), order[32:])
    assert list(feed.batches(order, first=3)) == []


class FakeEvent:
    """Stands for a CUDA event, and writes down what is done with it."""

    log: list[str]

    def __init__(self, blocking: bool) -> None:
        assert blocking, "a spinning wait would burn the processor that the gather needs"
        self.number = FakeEvent.made
        FakeEvent.made += 1

    made = 0

    def synchronize(self) -> None:
        FakeEvent.log.append(f"wait {self.number}")

    def record(self) -> None:
        FakeEvent.log.append(f"copied {self.number}")


def test_a_pinned_slot_waits_for_its_last_copy_before_it_is_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeEvent.log, FakeEvent.made = [], 0
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    plain, gather = torch.empty, torch.index_select

    def not_really_pinned(*size: object, pin_memory: bool, **options: object) -> torch.Tensor:
        assert pin_memory
        return plain(*size, **options)

    def noted_gather(*given: object, **options: object) -> torch.Tensor:
        FakeEvent.log.append("gather")
        return gather(*given, **options)

    monkeypatch.setattr(torch, "empty", not_really_pinned)
    monkeypatch.setattr(torch, "index_select", noted_gather)
    feed = Feed(stamped(64), 8, CPU, pin=True)
    for batch in feed.batches(torch.arange(64)):
        assert torch.equal(batch.images[:, 0, 0, 0].long(), batch.labels)
    once = [["wait", "gather", "gather", "copied"]] * 8
    steps = [FakeEvent.log[place : place + 4] for place in range(0, 32, 4)]
    assert [[entry.split()[0] for entry in step] for step in steps] == once
    assert [step[0].split()[1] for step in steps] == [str(number % SLOTS) for number in range(8)]
    assert all(step[0].split()[1] == step[3].split()[1] for step in steps)


@pytest.mark.gpu
def test_pinned_batches_are_right_while_the_gpu_is_slow() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    part, device = stamped(250), torch.device("cuda")
    big = torch.randn(4096, 4096, device=device)
    feed = Feed(part, 32, device, pin=True)
    for epoch in range(20):
        order = torch.randperm(250, generator=torch.Generator().manual_seed(epoch))
        seen = []
        for batch in feed.batches(order):
            big @ big  # copies queue up behind this; a slot filled too early would show
            seen.append((batch.images[:, 0, 13, 13].long(), batch.labels.clone()))
        assert torch.equal(torch.cat([labels for _, labels in seen]).cpu(), order)
        assert all(torch.equal(images, labels) for images, labels in seen)
