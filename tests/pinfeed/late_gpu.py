"""A device that is late on purpose: copies, kernels and marks happen when it has the time, as on a GPU.

Each stream is a thread with a queue. So what a feed forgets to wait for is really overtaken, on any machine;
the same tests run on a real GPU in tests/gpu.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Optional

import torch


class LateEvent:
    def __init__(self) -> None:
        self._over: Optional[threading.Event] = None  # of the last record; None: never recorded
        self.at = 0.0

    def record(self, stream: LateStream) -> None:
        over = self._over = threading.Event()

        def pass_by() -> None:
            self.at = time.perf_counter()
            over.set()

        stream.do(pass_by)

    def synchronize(self) -> None:
        if self._over is not None:
            self._over.wait()

    def query(self) -> bool:
        return self._over is None or self._over.is_set()

    def elapsed_time(self, end: LateEvent) -> float:
        return (end.at - self.at) * 1e3

    def moment(self) -> Callable[[], object]:
        """The wait for what is recorded now, whatever is recorded later."""
        over = self._over
        return (lambda: None) if over is None else over.wait


class LateStream:
    """Work in order, each piece after a pause."""

    def __init__(self, longest_pause: float, seed: int) -> None:
        self._work: queue.SimpleQueue[Optional[Callable[[], object]]] = queue.SimpleQueue()
        self._random = random.Random(seed)
        self._longest = longest_pause
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def do(self, work: Callable[[], object]) -> None:
        self._work.put(work)

    def wait_event(self, event: LateEvent) -> None:
        self.do(event.moment())

    def synchronize(self) -> None:
        event = LateEvent()
        event.record(self)
        event.synchronize()

    def end(self) -> None:
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            if self._longest and self._random.random() < 0.3:
                time.sleep(self._random.random() * self._longest)
            work()


class LateGpu:
    """Stands for a `pinfeed.transfer.Machine`. `kernel` is what a training step would start."""

    asynchronous = True

    def __init__(self, compute_pause: float = 0.0, copy_pause: float = 0.0) -> None:
        self.device = torch.device("cpu")
        self._copy_pause = copy_pause
        self._main = LateStream(compute_pause, seed=1)
        self._streams = [self._main]
        self.bound: list[str] = []

    def bind(self) -> None:
        self.bound.append(threading.current_thread().name)

    def stream(self) -> LateStream:
        stream = LateStream(self._copy_pause, seed=2)
        self._streams.append(stream)
        return stream

    def current(self) -> LateStream:
        return self._main

    def event(self, *, timed: bool = False) -> LateEvent:
        return LateEvent()

    @contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        yield

    def empty(self, size: int) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.uint8)

    def copy(self, target: torch.Tensor, source: torch.Tensor, stream: LateStream) -> None:
        stream.do(lambda: target.copy_(source))

    def kernel(self, work: Callable[[], object]) -> None:
        self._main.do(work)

    def end(self) -> None:
        for stream in self._streams:
            stream.end()
