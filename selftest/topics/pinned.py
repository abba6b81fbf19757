"""Pinned memory: that it is pinned, that it is faster, that copies overlap, and that the traps are traps."""

from __future__ import annotations

import time
from typing import Any

from selftest.checks import GPU, check, require

_MIB = 1 << 20
_ROUNDS = 20


@check("pin_memory() pins, and the DataLoader's batches are pinned", needs=GPU)
def memory_is_pinned() -> None:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    require(torch.ones(8).pin_memory().is_pinned(), "tensor.pin_memory() is not pinned")
    require(not torch.ones(8).is_pinned(), "plain memory says that it is pinned")
    batch = next(iter(DataLoader(TensorDataset(torch.ones(64, 4)), batch_size=16, pin_memory=True)))[0]
    require(batch.is_pinned(), "the DataLoader's batch is not pinned")


@check("a copy from pinned memory is faster than from pageable memory", needs=GPU)
def pinned_is_faster() -> str:
    import torch

    pageable = torch.randint(0, 255, (256 * _MIB,), dtype=torch.uint8)
    speeds = {"pageable": _speed(pageable), "pinned": _speed(pageable.pin_memory())}
    told = ", ".join(f"{name} {speed:.1f} GiB/s" for name, speed in speeds.items())
    require(speeds["pinned"] > 1.2 * speeds["pageable"], told)
    return told


@check("a non-blocking copy from pinned memory comes back at once", needs=GPU)
def copy_does_not_block() -> str:
    import torch

    source = torch.empty(512 * _MIB, dtype=torch.uint8).pin_memory()
    target = torch.empty_like(source, device="cuda")
    target.copy_(source)
    torch.cuda.synchronize()
    begun = time.perf_counter()
    target.copy_(source, non_blocking=True)
    called = time.perf_counter() - begun
    torch.cuda.synchronize()
    whole = time.perf_counter() - begun
    told = f"the call {1e3 * called:.2f} ms, the copy {1e3 * whole:.2f} ms"
    require(called < whole / 4, told)
    return told


@check("a copy overlaps with computing on another stream", needs=GPU)
def copy_overlaps() -> str:
    import torch

    source = torch.empty(512 * _MIB, dtype=torch.uint8).pin_memory()
    target = torch.empty_like(source, device="cuda")
    matrix = torch.randn(4096, 4096, device="cuda")
    stream = torch.cuda.Stream()

    def work(copies: int, products: int) -> None:
        if copies:
            with torch.cuda.stream(stream):
                target.copy_(source, non_blocking=True)
        for _ in range(products):
            torch.mm(matrix, matrix)

    copying = _timed(lambda: work(1, 0))
    # As much computing as the copy takes: then the two together show the overlap best.
    products = max(10, int(10 * copying / _timed(lambda: work(0, 10))))
    computing, both = _timed(lambda: work(0, products)), _timed(lambda: work(1, products))
    told = f"copy {1e3 * copying:.1f} ms, computing {1e3 * computing:.1f} ms, both {1e3 * both:.1f} ms"
    require(both < 0.8 * (copying + computing), told)
    return told


@check("what arrives on the GPU and comes back is what was sent", needs=GPU)
def copies_are_right() -> None:
    import torch

    for _ in range(_ROUNDS):
        source = torch.randint(0, 2**31, (4 * _MIB,), dtype=torch.int32).pin_memory()
        back = torch.empty_like(source).pin_memory()
        device = source.to("cuda", non_blocking=True)
        back.copy_(device, non_blocking=True)
        torch.cuda.current_stream().synchronize()
        require(torch.equal(source, back), "a copy changed what it carried")


@check("a pinned buffer is safe to fill again once its event says so", needs=GPU)
def buffer_is_reused_safely() -> str:
    import torch

    buffer, event = torch.empty(64 * _MIB, dtype=torch.uint8).pin_memory(), torch.cuda.Event()
    targets = []
    for value in range(8):
        event.synchronize()
        buffer.fill_(value)
        targets.append(buffer.to("cuda", non_blocking=True))
        event.record()
    torch.cuda.synchronize()
    wrong = [value for value, target in enumerate(targets) if not bool((target == value).all())]
    require(not wrong, f"batches {wrong} hold what was written later")
    return "8 batches of 64 MiB through one buffer"


@check("the trap is real: read before the event, a copy back is not there yet", needs=GPU)
def trap_is_real() -> str:
    import torch

    device = torch.full((256 * _MIB,), 7, dtype=torch.uint8, device="cuda")
    back = torch.zeros(256 * _MIB, dtype=torch.uint8).pin_memory()
    early = 0
    for _ in range(_ROUNDS):
        back.zero_()
        torch.cuda.synchronize()
        back.copy_(device, non_blocking=True)
        early += int(back[-1] != 7)
        torch.cuda.synchronize()
        require(bool((back == 7).all()), "after synchronize() the copy is still not there")
    require(early, "no early read was wrong: this test shows nothing")
    return f"{early} of {_ROUNDS} early reads were wrong, none after synchronize()"


def _speed(source: Any) -> float:
    import torch

    target = torch.empty_like(source, device="cuda")
    return _ROUNDS * source.numel() / 2**30 / _timed(lambda: _copy_often(source, target))


def _copy_often(source: Any, target: Any) -> None:
    for _ in range(_ROUNDS):
        target.copy_(source, non_blocking=True)


def _timed(work: Any) -> float:
    """Seconds, the best of three after one that is not counted."""
    import torch

    times = []
    for _ in range(4):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    return min(times[1:])
