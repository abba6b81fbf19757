"""The ring: the samples asked for, in the order asked for, and never a slot that somebody still reads."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from pinfeed import ring as ring_module
from pinfeed import slab
from pinfeed.packed import InMemory
from pinfeed.ring import Ring
from pinfeed.slab import CannotPin, Slab
from tests.pinfeed.late_gpu import LateGpu
from tests.pinfeed.stamps import BUGS, SlowRows, stamped, wrong
from tests.pinfeed.support import ROOT

BATCHES = 10_000


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No thread and no pinned byte is left behind by any of these tests."""
    yield
    gc.collect()
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("pinfeed")] == []
    assert slab.pinned_bytes() == 0


def seen_wrong(machine: LateGpu, data: InMemory, batches: int) -> tuple[int, int]:
    """(batches with a wrong value, batches in another order than asked for) of that many."""
    found: list[int] = []
    labels: list[torch.Tensor] = []
    orders: list[torch.Tensor] = []

    def step(batch: ring_module.Batch) -> None:
        # Read twice, as a backward pass does: what is right at first may be overwritten before the end.
        early = int(wrong(batch))
        time.sleep(0)
        found.append(early + int(wrong(batch)))
        labels.append(batch.labels.clone())

    with Ring(data, 16, seed=5, machine=machine, pin=False) as feed:
        for epoch in range(-(-batches // len(feed))):
            orders.append(feed.order(epoch))
            for batch in feed.epoch(epoch):
                machine.kernel(lambda batch=batch: step(batch))  # type: ignore[misc]
        machine.current().synchronize()
    out_of_order = torch.cat(labels) != torch.cat(orders)
    return sum(count > 0 for count in found), int(out_of_order.sum())


def test_ten_thousand_batches_are_right_on_a_device_that_is_late() -> None:
    machine = LateGpu(compute_pause=0.0004, copy_pause=0.0004)
    assert seen_wrong(machine, stamped(16 * 250), BATCHES) == (0, 0)
    machine.end()


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_the_same_test_catches_a_ring_with_one_wait_taken_out(bug: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_module, "_Slots", bug)
    machine = LateGpu(compute_pause=0.002, copy_pause=0.002)
    data = stamped(16 * 50)
    wrong_values, wrong_order = seen_wrong(machine, SlowRows(data.images, data.labels), 200)
    machine.end()
    assert wrong_values + wrong_order > 0, "the test would not notice this bug"


def test_a_ring_without_a_bug_passes_where_the_bugs_are_caught() -> None:
    machine = LateGpu(compute_pause=0.002, copy_pause=0.002)
    data = stamped(16 * 50)
    assert seen_wrong(machine, SlowRows(data.images, data.labels), 200) == (0, 0)
    machine.end()


# --- which samples ---------------------------------------------------------------------------------


def flat(batches: list[list[int]]) -> list[int]:
    return [label for batch in batches for label in batch]


def labels(batches: Iterator[ring_module.Batch]) -> list[list[int]]:
    return [batch.labels.tolist() for batch in batches]


def test_batches_follow_the_order_and_the_last_may_be_smaller() -> None:
    with Ring(stamped(50), 16, "cpu", seed=1) as feed:
        order = feed.order(0)
        assert len(feed) == 4
        batches = labels(feed.epoch(0))
        assert [len(batch) for batch in batches] == [16, 16, 16, 2]
        assert flat(batches) == order.tolist()
        assert sorted(order.tolist()) == list(range(50))
        assert not any(int(wrong(batch)) for batch in feed.epoch(1))


def test_images_are_channels_last_and_look_like_what_torch_wants() -> None:
    with Ring(stamped(20), 16, "cpu") as feed:
        for batch in feed:
            assert batch.images.shape[1:] == (3, 8, 8)
            assert batch.images.dtype is torch.uint8
            assert batch.images.is_contiguous(memory_format=torch.channels_last)


def test_drop_last_leaves_the_rest_out() -> None:
    with Ring(stamped(50), 16, "cpu", drop_last=True) as feed:
        assert [len(batch) for batch in labels(feed.epoch(3))] == [16, 16, 16]


def test_an_epoch_can_be_entered_in_its_middle() -> None:
    with Ring(stamped(50), 16, "cpu", seed=7) as feed:
        whole = labels(feed.epoch(4))
        assert labels(feed.epoch(4, first=2)) == whole[2:]
        assert labels(feed.epoch(4, first=4)) == []


def test_epochs_differ_and_seeds_differ_and_both_come_again() -> None:
    with Ring(stamped(50), 16, "cpu", seed=7) as feed, Ring(stamped(50), 16, "cpu", seed=8) as other:
        assert labels(feed.epoch(0)) == labels(feed.epoch(0))
        assert labels(feed.epoch(0)) != labels(feed.epoch(1))
        assert labels(feed.epoch(0)) != labels(other.epoch(0))
        first = labels(iter(feed))
        assert first == labels(feed.epoch(0))
        assert labels(iter(feed)) == labels(feed.epoch(1))
    with Ring(stamped(50), 16, "cpu", shuffle=False) as feed:
        assert flat(labels(feed.epoch(9))) == list(range(50))


@pytest.mark.parametrize("world_size", [1, 2, 3, 7])
def test_ranks_share_each_batch_of_a_single_process(world_size: int) -> None:
    with Ring(stamped(43), world_size * 4, "cpu", seed=2, drop_last=True) as alone:
        expected = labels(alone.epoch(1))
    shares = []
    for rank in range(world_size):
        with Ring(stamped(43), 4, "cpu", seed=2, drop_last=True, rank=rank, world_size=world_size) as feed:
            shares.append(labels(feed.epoch(1)))
    assert {len(share) for share in shares} == {len(expected)}
    for number, batch in enumerate(expected):
        assert sorted(flat([share[number] for share in shares])) == sorted(batch)


@pytest.mark.parametrize("count", [1, 5, 43])
def test_without_drop_last_each_sample_comes_once_over_all_ranks(count: int) -> None:
    seen: list[int] = []
    for rank in range(3):
        with Ring(stamped(count), 4, "cpu", rank=rank, world_size=3) as feed:
            batches = labels(feed.epoch(0))
            assert len(batches) == len(feed)
            seen += flat(batches)
    assert sorted(seen) == list(range(count))


def test_keys_depend_on_seed_epoch_and_sample_alone() -> None:
    def keys(batch_size: int, seed: int, epoch: int, rank: int = 0, world: int = 1) -> dict[int, int]:
        with Ring(stamped(40), batch_size, "cpu", seed=seed, rank=rank, world_size=world) as feed:
            pairs = [(batch.labels.tolist(), batch.keys.tolist()) for batch in feed.epoch(epoch)]
        return {label: key for one, other in pairs for label, key in zip(one, other)}

    assert keys(16, 3, 2) == keys(7, 3, 2)
    assert keys(16, 3, 2).items() >= keys(5, 3, 2, rank=1, world=3).items()
    assert keys(16, 3, 2) != keys(16, 3, 1)
    assert keys(16, 3, 2) != keys(16, 4, 2)
    assert len(set(keys(16, 3, 2).values())) == 40


def test_a_batch_larger_than_the_set_is_the_set() -> None:
    with Ring(stamped(10), 64, "cpu") as feed:
        assert [len(batch) for batch in labels(feed.epoch(0))] == [10]


@pytest.mark.parametrize("given", [{"batch_size": 0}, {"rank": 2, "world_size": 2}, {"host_slots": 0}], ids=str)
def test_nonsense_is_refused(given: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        Ring(stamped(10), **{"batch_size": 4, "device": "cpu", **given})  # type: ignore[arg-type]


# --- a batch's life --------------------------------------------------------------------------------


def test_a_clone_stays_valid() -> None:
    with Ring(stamped(64), 16, "cpu", shuffle=False) as feed:
        kept = [batch.clone() for batch in feed]
    assert [batch.labels[0].item() for batch in kept] == [0, 16, 32, 48]
    assert not any(int(wrong(batch)) for batch in kept)


def test_leaving_the_loop_early_ends_the_thread_and_the_next_epoch_is_right() -> None:
    machine = LateGpu(compute_pause=0.001, copy_pause=0.001)
    with Ring(stamped(800), 16, machine=machine, pin=False, seed=1) as feed:
        for turn in range(20):
            for number, _ in enumerate(feed.epoch(turn)):
                if number == turn % 5:
                    break
            assert "pinfeed" not in [thread.name for thread in threading.enumerate()]
            first = next(feed.epoch(turn))
            machine.current().synchronize()
            assert first.labels.tolist() == feed.order(turn)[:16].tolist()
    machine.end()


def test_a_second_loop_over_one_ring_ends_the_first_aloud() -> None:
    with Ring(stamped(64), 16, "cpu") as feed:
        first = feed.epoch(0)
        next(first)
        assert len(labels(feed.epoch(1))) == 4
        with pytest.raises(RuntimeError, match="make two rings"):
            list(first)


def test_an_error_in_the_thread_reaches_the_loop() -> None:
    class Failing(InMemory):
        def gather(self, rows: np.ndarray, target: np.ndarray) -> None:
            if 20 in rows:
                raise OSError("the disk is gone")
            super().gather(rows, target)

    data = stamped(64)
    feed = Ring(Failing(data.images, data.labels), 16, "cpu", shuffle=False)
    with feed, pytest.raises(OSError, match="the disk is gone"):
        list(feed)


def test_an_error_in_the_loop_ends_the_thread() -> None:
    feed = Ring(stamped(640), 16, "cpu")
    with pytest.raises(ZeroDivisionError), feed:
        for _ in feed:
            raise ZeroDivisionError
    with pytest.raises(ValueError, match="closed"):
        next(feed.epoch(0))


def test_the_thread_binds_its_device() -> None:
    machine = LateGpu()
    with Ring(stamped(16), 16, machine=machine, pin=False) as feed:
        list(feed)
    machine.end()
    assert machine.bound == ["pinfeed"]  # without it each rank's thread would open a context on GPU 0


def test_a_forgotten_ring_goes_with_its_memory() -> None:
    feed = Ring(stamped(64), 16, "cpu")
    next(iter(feed))
    gone = weakref.ref(feed._slots)
    del feed
    gc.collect()
    assert gone() is None


def test_a_program_that_ends_in_mid_epoch_ends_at_once_and_quietly() -> None:
    code = (
        "import torch, pinfeed\n"
        "data = pinfeed.InMemory(torch.zeros(4096, 8, 8, 3, dtype=torch.uint8), torch.zeros(4096, dtype=torch.int64))\n"
        "ring = pinfeed.Ring(data, 16, 'cpu')\n"
        "batches = iter(ring)\n"
        "next(batches)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_many_rings_leave_no_file_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with Ring(stamped(64), 16, "cpu") as feed:
            next(iter(feed))
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


# --- pinned memory ---------------------------------------------------------------------------------


class FakeCudart:
    """Stands for CUDA's runtime: notes what is registered, or refuses."""

    def __init__(self, answer: int = 0) -> None:
        self.answer = answer
        self.registered: dict[int, int] = {}
        self.log: list[str] = []

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:  # noqa: N802
        if not self.answer:
            self.registered[address] = size
        return self.answer

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        running = [thread for thread in threading.enumerate() if thread.name.startswith("pinfeed")]
        self.log.append("too early" if running else "unregister")
        del self.registered[address]
        return 0


def test_one_slab_is_pinned_and_given_back_after_the_thread_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCudart()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: cuda)
    machine = LateGpu()
    feed = Ring(stamped(640), 16, machine=machine)
    assert feed.pinned
    assert list(cuda.registered.values()) == [slab.pinned_bytes()]
    assert slab.pinned_bytes() == 3 * (16 * 8 * 8 * 3 + 256 + 256)
    next(iter(feed))
    feed.close()
    feed.close()
    machine.end()
    assert (cuda.registered, cuda.log, slab.pinned_bytes()) == ({}, ["unregister"], 0)


def test_a_batch_of_256_full_images_pins_less_than_128_mib() -> None:
    layout = ring_module._Layout.of(256, (224, 224, 3))
    assert ring_module.HOST_SLOTS * layout.size <= 128 * 2**20


def test_pinning_that_is_refused_falls_back_and_says_whose_memory_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "cudart", lambda: FakeCudart(answer=2))
    monkeypatch.setattr(slab, "_forget_cuda_error", lambda: None)
    machine = LateGpu()
    with pytest.warns(UserWarning, match="HOST memory could not be pinned .*no GPU memory"):
        feed = Ring(stamped(64), 16, machine=machine)
    assert not feed.pinned
    with feed:
        for batch in feed:
            machine.current().synchronize()
            assert int(wrong(batch)) == 0
    machine.end()
    with pytest.raises(CannotPin):
        Slab(4096, pin=True)


def test_wsl_is_named_as_a_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *given, **options: "Linux version 5.15 (Microsoft@x)")
    assert "WSL2" in slab.refusal(5 * 10**8, "CUDA error 2")
    assert "500 MB of HOST memory" in slab.refusal(5 * 10**8, "CUDA error 2")


def test_on_a_processor_nothing_is_pinned_and_nothing_is_said(recwarn: pytest.WarningsRecorder) -> None:
    with Ring(stamped(64), 16, "cpu") as feed:
        list(feed)
        assert not feed.pinned
    assert len(recwarn) == 0


def test_statistics_count_batches_images_bytes_and_waits() -> None:
    machine = LateGpu(copy_pause=0.004)
    with Ring(stamped(640), 16, machine=machine, pin=False) as feed:
        for _ in feed:
            machine.kernel(lambda: None)
        machine.current().synchronize()
        list(feed.epoch(0, first=len(feed) - 1))
        statistics = feed.statistics
        assert (statistics.batches, statistics.images) == (41, 656)
        assert statistics.bytes > 656 * 8 * 8 * 3
        assert 0.3 < statistics.gpu_wait <= 1  # nothing is computed, so all that is left is the wait
        assert statistics.copy_rate > 0
    machine.end()
