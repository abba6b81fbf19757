"""Step, schedule and network."""

from __future__ import annotations

import pytest
import torch

from pinfeed import model, seeds, train, transforms
from pinfeed.ring import Batch

CPU = torch.device("cpu")


def test_the_learning_rate_rises_to_its_peak_and_falls_to_nothing() -> None:
    rates = [train.learning_rate(step, 100, 0.1) for step in range(100)]
    assert rates[:20] == sorted(rates[:20])
    assert rates[20:] == sorted(rates[20:], reverse=True)
    assert max(rates) == pytest.approx(0.1)
    assert 0 < rates[0] < 0.01
    assert 0 < rates[-1] < 0.001


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_a_run_of_few_steps_has_a_learning_rate_too(steps: int) -> None:
    assert all(0 < train.learning_rate(step, steps, 0.1) <= 0.1 for step in range(steps))


def test_steps_lower_the_loss_and_are_counted() -> None:
    torch.manual_seed(0)
    plain = transforms.TrainTransform(flip=False, mean=(72.9,), std=(90.0,))
    learner = train.make_learner(model.small_cnn(10), (plain, plain), CPU, None, 0.05)
    labels = torch.arange(40) % 10
    images = torch.randint(0, 256, (40, 1, 28, 28), dtype=torch.uint8)
    losses = []
    for _ in range(15):
        tally = train.new_tally(CPU)
        train.train_step(learner, Batch(images, labels, torch.arange(40)), 0.05, tally)
        losses.append(float(tally[0]) / 40)
    assert losses[-1] < losses[0] / 4
    assert float(tally[1]) >= 36


def test_the_network_has_the_size_that_its_description_says() -> None:
    assert model.parameter_count(model.small_cnn(10)) == 29_178


def test_random_choices_depend_on_seed_and_epoch_alone() -> None:
    assert torch.equal(seeds.epoch_order(100, 3, 7), seeds.epoch_order(100, 3, 7))
    assert not torch.equal(seeds.epoch_order(100, 3, 7), seeds.epoch_order(100, 3, 8))
    assert not torch.equal(seeds.epoch_order(100, 3, 7), seeds.epoch_order(100, 4, 7))
    assert seeds.epoch_order(100, 3, 7).sort().values.tolist() == list(range(100))


def test_a_plan_has_whole_batches_and_leaves_out_another_rest_each_time() -> None:
    orders = [train.epoch_order(100, 96, seed=0, epoch=epoch).tolist() for epoch in range(2)]
    assert [len(set(order)) for order in orders] == [96, 96]
    assert set(orders[0]) != set(orders[1])
