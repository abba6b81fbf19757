"""The feed on a real GPU: never a wrong pixel while the GPU is late, and nothing left behind."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pinfeed  # noqa: E402
from pinfeed import prefetcher, seeds, slab, structure, transforms  # noqa: E402
from pinfeed import ring as ring_module  # noqa: E402
from pinfeed.errors import PinfeedError  # noqa: E402
from pinfeed.packed import InMemory  # noqa: E402
from pinfeed.ring import Ring  # noqa: E402
from pinfeed.transfer import Gpu  # noqa: E402
from tests.pinfeed.stamps import BUGS, wrong  # noqa: E402

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).resolve().parents[2]
SIDE, BATCH = 48, 64


class SlowGpu(Gpu):
    """A GPU whose copies begin late, now and then."""

    def __init__(self) -> None:
        super().__init__(torch.device("cuda", 0))
        self.number = 0

    def copy(self, target: Any, source: Any, stream: Any) -> None:
        self.number += 1
        if self.number % 7 in (0, 3):
            with torch.cuda.stream(stream):
                torch.cuda._sleep(400_000)  # cycles: 0.2 ms
        super().copy(target, source, stream)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    gc.collect()
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("pinfeed")] == []
    assert slab.pinned_bytes() == 0


def stamped(count: int) -> InMemory:
    """Image k is filled with k's lowest byte, and its label is k."""
    numbers = torch.arange(count)
    images = numbers.to(torch.uint8)[:, None, None, None].expand(count, SIDE, SIDE, 3).contiguous()
    return InMemory(images, numbers)


def seen_wrong(batches: int) -> tuple[int, int]:
    """(wrong values, samples out of order) in that many batches, on a GPU that computes and copies late."""
    data, machine = stamped(BATCH * 250), SlowGpu()
    labels = torch.zeros(batches, BATCH, dtype=torch.int64, device="cuda")
    found = torch.zeros((), dtype=torch.int64, device="cuda")
    orders, done = [], 0
    with Ring(data, BATCH, seed=5, machine=machine) as feed:
        assert feed.pinned
        while done < batches:
            order = feed.order(done)
            orders.append(order)
            for number, batch in enumerate(feed.batches(order), done):
                if number % 5 == 0:
                    torch.cuda._sleep(6_000_000)  # 3 ms: the loop comes to be many batches before the GPU
                found += wrong(batch)
                if number % 3 == 0:
                    torch.cuda._sleep(200_000)
                found += wrong(batch)  # a backward pass reads its input once more
                labels[number] = batch.labels
            done += len(feed)
        torch.cuda.synchronize()
    return int(found), int((labels.flatten().cpu() != torch.cat(orders)[: labels.numel()]).sum())


def test_ten_thousand_batches_are_right_while_the_gpu_is_late() -> None:
    assert seen_wrong(10_000) == (0, 0)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_the_same_test_catches_a_ring_with_one_wait_taken_out(bug: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_module, "_Slots", bug)
    values, order = seen_wrong(1_000)
    print(f"{bug.__name__}: {values} wrong values, {order} samples out of order")
    assert values + order > 0


def prefetched_wrong(batches: int) -> int:
    found = torch.zeros((), dtype=torch.int64, device="cuda")
    # Pinned beforehand: the feeder is to be as fast as it can, and so far before the GPU.
    ready = [torch.full((64, 3, SIDE, SIDE), k, dtype=torch.uint8).pin_memory() for k in range(251)]
    source = (ready[k % 251] for k in range(batches))
    for number, batch in enumerate(pinfeed.prefetch(source, "cuda")):
        torch.cuda._sleep(2_000_000)  # 1 ms
        found += (batch != number % 251).sum()
        del batch
    torch.cuda.synchronize()
    return int(found)


def test_prefetched_batches_are_right_while_the_gpu_is_late() -> None:
    assert prefetched_wrong(2_000) == 0


def test_the_same_test_catches_a_prefetch_that_frees_memory_on_the_wrong_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prefetcher, "_hand_over", lambda machine, tensors: None)
    found = prefetched_wrong(2_000)
    print(f"prefetch without record_stream: {found} wrong values")
    assert found > 0


def test_prefetch_keeps_structures_and_says_how_long_the_gpu_waited() -> None:
    batch = {"x": torch.ones(8, 4), "deep": (torch.arange(8), "text")}
    feed = pinfeed.prefetch([batch] * 20, "cuda")
    for moved in feed:
        assert moved["x"].is_cuda
        assert moved["deep"][0].is_cuda
        assert moved["deep"][1] == "text"
    assert feed.statistics.batches == 20
    assert 0 <= feed.statistics.gpu_wait <= 1


def test_a_data_set_that_returns_cuda_tensors_is_refused() -> None:
    with pytest.raises(PinfeedError, match="already on the GPU"):
        list(pinfeed.prefetch([torch.ones(3, device="cuda")], "cuda"))


class CudaInGetitem(torch.utils.data.Dataset):  # type: ignore[name-defined]
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return torch.ones(3).to("cuda")


def test_a_data_set_that_uses_cuda_in_a_worker_is_named() -> None:
    torch.ones(1, device="cuda")
    loader = torch.utils.data.DataLoader(CudaInGetitem(), 2, num_workers=1, multiprocessing_context="fork")
    with pytest.raises(PinfeedError, match="uses CUDA in a worker process"):
        list(pinfeed.prefetch(loader, "cuda"))


def test_unpinned_leaves_are_pinned_on_the_way() -> None:
    assert structure.pinned(torch.ones(4)).is_pinned()


def test_leaving_early_and_closing_give_all_memory_back() -> None:
    torch.cuda.synchronize()
    gc.collect()
    device, host = torch.cuda.memory_allocated(), torch.cuda.host_memory_stats().get("allocated_bytes.current", 0)
    files = len(os.listdir("/proc/self/fd"))
    for turn in range(10):
        feed = Ring(stamped(BATCH * 20), BATCH, "cuda")
        for number, batch in enumerate(feed):
            batch.images.float().mean()
            if number == turn:
                break
        del batch
        feed.close()
    gc.collect()
    assert torch.cuda.memory_allocated() == device
    assert torch.cuda.host_memory_stats().get("allocated_bytes.current", 0) == host
    assert len(os.listdir("/proc/self/fd")) == files


def test_a_program_that_ends_in_mid_epoch_ends_at_once_and_quietly() -> None:
    code = (
        "import torch, pinfeed\n"
        "images = torch.zeros(9999, 64, 64, 3, dtype=torch.uint8)\n"
        "data = pinfeed.InMemory(images, torch.zeros(9999, dtype=torch.int64))\n"
        "ring = pinfeed.Ring(data, 64, 'cuda')\n"
        "batches = iter(ring)\n"
        "print(next(batches).images.float().mean().item())\n"
    )
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "0.0\n")
    assert time.monotonic() - began < 60


def test_pinning_more_than_the_machine_has_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def cudaHostRegister(self, *given: int) -> int:  # noqa: N802
            return 2

    monkeypatch.setattr(torch.cuda, "cudart", Refusing)
    with pytest.warns(UserWarning, match="HOST memory"), Ring(stamped(256), BATCH, "cuda") as feed:
        assert not any(int(wrong(batch)) for batch in feed)


def test_crops_on_the_gpu_are_those_of_the_processor() -> None:
    random = torch.Generator().manual_seed(0)
    images = torch.nn.functional.interpolate(torch.rand(64, 3, 12, 12, generator=random) * 255, (256, 256))
    images = (images + torch.randn(images.shape, generator=random) * 10).clamp(0, 255).to(torch.uint8)
    keys = torch.arange(64) * 7919
    boxes = transforms.random_boxes(keys, 256, 256, (0.08, 1.0), (3 / 4, 4 / 3))
    assert torch.equal(boxes, transforms.random_boxes(keys.cuda(), 256, 256, (0.08, 1.0), (3 / 4, 4 / 3)).cpu())
    mirrored = transforms.flips(keys)
    on_cpu = transforms.resized_crop(images, boxes, 224, mirrored)
    on_gpu = transforms.resized_crop(images.cuda(), boxes.cuda(), 224, mirrored.cuda()).float().cpu()
    error = (on_cpu - on_gpu).square().mean((1, 2, 3)).max()
    print(f"largest difference {float((on_cpu - on_gpu).abs().max()):.3f} grey levels")
    assert 10 * torch.log10(255**2 / error) > 55


def test_a_compiled_transform_on_the_gpu_gives_the_same() -> None:
    images = torch.randint(0, 256, (32, 3, 128, 128), dtype=torch.uint8, device="cuda")
    keys = torch.from_numpy(seeds.sample_keys(range(32), 1, 0)).cuda()
    transform = transforms.TrainTransform(96).cuda()
    assert torch.allclose(torch.compile(transform)(images, keys), transform(images, keys), atol=2e-2)


FEEDS = ("ring", "prefetch", "loader")


def feed_of(kind: str, data: InMemory) -> Any:
    from pinfeed.feeds import Wish, make

    return make(data, 50, Wish(kind, torch.device("cuda", 0), 3, True, 0, 1, print, print))


def test_all_feeds_bring_the_same_bits_to_the_gpu() -> None:
    images = torch.randint(0, 256, (1000, 32, 32, 3), dtype=torch.uint8)
    data = InMemory(images, torch.arange(1000))
    order = seeds.epoch_order(1000, 1, 0)
    seen = {}
    for kind in FEEDS:
        feed = feed_of(kind, data)
        seen[kind] = [tuple(part.clone() for part in batch) for batch in feed.batches(order, 1, 2)]
        feed.close()
    for kind in FEEDS[1:]:
        for one, other in zip(seen["ring"], seen[kind], strict=True):
            assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_the_loss_does_not_depend_on_the_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    from pinfeed import model, train

    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    torch.manual_seed(0)
    images = torch.randint(0, 256, (1000, 32, 32, 3), dtype=torch.uint8)
    data = InMemory(images, torch.randint(0, 10, (1000,)))
    order = seeds.epoch_order(1000, 1, 0)
    losses = {}
    for kind in FEEDS:
        torch.manual_seed(1)
        prepare = (transforms.TrainTransform(32), transforms.EvalTransform(32))
        network = model.make("small-cnn", 10, 3, 32)
        learner = train.make_learner(network, prepare, torch.device("cuda", 0), None, 0.01)
        tally, feed = train.new_tally(torch.device("cuda", 0)), feed_of(kind, data)
        train.train_epoch(learner, feed.batches(order), 0, lambda step: 0.01, tally, lambda done: None)
        feed.close()
        losses[kind] = float(tally[0]) / float(tally[2])
    print(losses)
    assert losses["prefetch"] == pytest.approx(losses["ring"], rel=1e-4)
    assert losses["loader"] == pytest.approx(losses["ring"], rel=1e-4)
