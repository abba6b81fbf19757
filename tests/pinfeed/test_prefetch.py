"""prefetch: anybody's loader, any structure of batch, and a named cause for what goes wrong in it."""

from __future__ import annotations

import collections
import dataclasses
import gc
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

import pinfeed
from pinfeed import prefetcher, structure
from pinfeed.errors import PinfeedError
from tests.pinfeed.late_gpu import LateGpu


class Pair(NamedTuple):
    x: Any
    y: Any


class Point(tuple):  # a tuple with a name, as some libraries have
    pass


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: torch.Tensor
    name: str = "a"
    y: Any = None


class NamedDict(dict):  # a class of the user's own
    extra = 1


class Movable:
    """Like torch_geometric's batches and the tokenizers' encodings."""

    def __init__(self, x: torch.Tensor, log: list[str]) -> None:
        self.x, self.log = x, log

    def pin_memory(self) -> Movable:
        self.log.append("pin")
        return self

    def to(self, device: torch.device, non_blocking: bool = False) -> Movable:
        self.log.append(f"to {device} {non_blocking}")
        return Movable(self.x.to(device), self.log)


class Strict(Movable):
    def to(self, device: torch.device) -> Strict:  # type: ignore[override]
        return Strict(self.x.to(device), self.log)


class Stuck:
    """Holds a tensor, and has no way to move it."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    gc.collect()
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("pinfeed")] == []


def one() -> torch.Tensor:
    return torch.arange(4.0)


BATCHES = [
    one(), [one(), 3], (one(), "text"), {"x": one(), "n": None}, Pair(one(), {"deep": [one()]}), Point((one(), one())),
    Frozen(one(), "b", (one(),)), collections.OrderedDict(x=one()), NamedDict(x=one()),
    collections.defaultdict(list, x=one()), [[one()], ()], {"bytes": b"raw", "path": "a/b"}, 5, None,
]  # fmt: skip


@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: type(batch).__name__)
def test_a_batch_keeps_class_and_values_and_each_tensor_is_moved(batch: Any) -> None:
    before = repr(batch)
    moved = structure.mapped(batch, lambda leaf: leaf + 1)
    assert type(moved) is type(batch)
    assert repr(batch) == before  # the loader's own is not changed
    old, new = structure.leaves(batch), structure.leaves(moved)
    assert len(old) == len(new)
    assert all(torch.equal(a + 1, b) for a, b in zip(old, new))
    (again,) = list(pinfeed.prefetch([batch], "cpu"))
    assert type(again) is type(batch)
    assert repr(again) == before


def test_a_default_dict_stays_one_and_attributes_stay() -> None:
    given = NamedDict(x=one())
    given.extra = 7
    moved = structure.mapped({"a": collections.defaultdict(list, x=one()), "b": given}, lambda leaf: leaf)
    assert moved["a"]["new"] == []
    assert moved["b"].extra == 7
    assert structure.mapped(Frozen(one(), "b"), lambda leaf: leaf).name == "b"


def test_an_object_with_methods_of_its_own_is_asked_to_move_itself() -> None:
    log: list[str] = []
    machine = LateGpu()
    machine.asynchronous = False  # no allocator of CUDA's here
    batch = {"x": Movable(one(), log), "y": Strict(one(), log)}
    feed = pinfeed.Prefetch([batch], machine=machine)
    feed._pin = prefetcher._Pinning(True)
    (moved,) = list(feed)
    machine.end()
    assert isinstance(moved["x"], Movable)
    assert isinstance(moved["y"], Strict)
    assert log == ["pin", "pin", "to cpu True"]


def test_a_class_that_cannot_be_moved_is_named_once() -> None:
    with pytest.warns(UserWarning, match=r"batch type Stuck was not moved: give it .pin_memory\(\)") as warned:
        list(pinfeed.prefetch([{"x": [Stuck(one())]}] * 3, "cpu"))
    assert len(warned) == 1


def test_a_class_that_cannot_be_pinned_is_named_once() -> None:
    class Unpinned:
        def __init__(self) -> None:
            self.x = one()

        def to(self, device: torch.device, non_blocking: bool = False) -> Unpinned:
            return self

    pinning = prefetcher._Pinning(True)
    with pytest.warns(UserWarning, match="batch type .*Unpinned was not pinned") as warned:
        pinning.apply((Unpinned(),))
        pinning.apply((Unpinned(),))
    assert len(warned) == 1


def test_pinning_that_fails_falls_back_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(leaf: object) -> None:
        raise RuntimeError("CUDA error: out of memory\nmore")

    monkeypatch.setattr(structure, "pinned", refuse)
    pinning = prefetcher._Pinning(True)
    with pytest.warns(UserWarning, match="HOST memory could not be pinned .*out of memory") as warned:
        for _ in range(3):
            assert torch.equal(pinning.apply([one()])[0], one())
    assert len(warned) == 1


def test_a_data_set_that_returns_cuda_tensors_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda self: True))
    with pytest.raises(PinfeedError, match="already on the GPU") as caught:
        list(pinfeed.prefetch([(one(),)], "cpu"))
    assert "return CPU tensors" in caught.value.do


# --- loaders ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_gives_the_same_as_without_prefetch(workers: int) -> None:
    data = TensorDataset(torch.arange(50), torch.arange(50) * 2)
    loader = DataLoader(data, batch_size=16, num_workers=workers)
    feed = pinfeed.prefetch(loader, "cpu")
    assert len(feed) == 4
    for _ in range(2):  # epochs
        for (a, b), (x, y) in zip(loader, feed, strict=True):
            assert torch.equal(a, x)
            assert torch.equal(b, y)
    assert (feed.statistics.batches, feed.statistics.images) == (8, 100)
    assert feed.statistics.bytes == 2 * 50 * 16


def test_the_loop_may_end_early_and_an_empty_loader_is_none() -> None:
    feed = pinfeed.prefetch([one()] * 100, "cpu")
    for number, _ in enumerate(feed):
        if number == 3:
            break
    assert list(pinfeed.prefetch([], "cpu")) == []


def test_the_loader_is_not_read_further_ahead_than_asked() -> None:
    read: list[int] = []

    def source() -> Iterator[torch.Tensor]:
        for number in range(100):
            read.append(number)
            yield one()

    feed = iter(pinfeed.prefetch(source(), "cpu", ahead=3))
    for number in range(1, 20):
        next(feed)
        threading.Event().wait(0.002)
        assert len(read) <= number + 3
    feed.close()  # type: ignore[attr-defined]


def test_an_error_of_the_loader_reaches_the_loop() -> None:
    def source() -> Iterator[torch.Tensor]:
        yield one()
        raise KeyError("sample 17")

    with pytest.raises(KeyError, match="sample 17"):
        list(pinfeed.prefetch(source(), "cpu"))


def test_no_warning_of_torch_about_pinning_on_a_processor() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(pinfeed.prefetch(DataLoader(TensorDataset(torch.arange(4)), 2), "cpu"))


class Deadly(Dataset[torch.Tensor]):
    """The worker that is asked for sample 5 dies."""

    def __init__(self, signum: int) -> None:
        self.signum = signum

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 5:
            os.kill(os.getpid(), self.signum)
        return one()


@pytest.mark.parametrize(("signum", "cause"), [(signal.SIGKILL, "memory that ran out"), (signal.SIGBUS, "/dev/shm")])
def test_a_worker_that_dies_is_named_with_its_cause(signum: int, cause: str) -> None:
    with pytest.raises(PinfeedError, match="a worker process of the DataLoader died") as caught:
        list(pinfeed.prefetch(DataLoader(Deadly(signum), 1, num_workers=1), "cpu"))
    assert cause in caught.value.seen
    assert caught.value.code == 69


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("DataLoader worker (pid 12) is killed by signal: Bus error. It is possible that ...", "--shm-size"),
        ("DataLoader worker (pid(s) 12, 13) exited unexpectedly", "--workers 0"),
        ("Caught RuntimeError in worker\nCannot re-initialize CUDA in forked subprocess. To use", "CPU tensors"),
        ("received 0 items of ancdata", "--ulimit nofile"),
    ],
    ids=["bus", "exit", "cuda", "files"],
)
def test_known_errors_of_a_loader_are_explained(text: str, part: str) -> None:
    told = prefetcher.explained(RuntimeError(text))
    assert told is not None
    assert part in told.do
    assert prefetcher.explained(RuntimeError("something else")) is None


# --- lifetime --------------------------------------------------------------------------------------


def test_batches_are_right_on_a_device_that_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = LateGpu(compute_pause=0.001, copy_pause=0.001)
    monkeypatch.setattr(prefetcher, "_hand_over", lambda machine, tensors: None)

    def late(leaf: torch.Tensor, device: torch.device) -> torch.Tensor:
        target = torch.full_like(leaf, -1)
        machine._streams[-1].do(lambda: target.copy_(leaf))
        return target

    monkeypatch.setattr(prefetcher, "_moved", late)
    feed = pinfeed.Prefetch([torch.full((4,), float(k)) for k in range(500)], machine=machine, pin=False)
    seen: list[float] = []
    for number, batch in enumerate(feed):
        machine.kernel(lambda batch=batch, number=number: seen.append(float((batch - number).abs().max())))  # type: ignore[misc]
    machine.current().synchronize()
    machine.end()
    assert seen == [0.0] * 500
