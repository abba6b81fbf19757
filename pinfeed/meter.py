"""How long the device waited for data, counted without ever making it wait."""

from __future__ import annotations

import dataclasses
import time
from collections import deque

from pinfeed.transfer import Event, Machine


@dataclasses.dataclass
class Statistics:
    """What a feed has done since it was made. Differences of two copies tell what happened between them."""

    batches: int = 0
    images: int = 0
    bytes: int = 0  # sent to the device
    copy_seconds: float = 0.0  # that the copies took there
    copy_bytes: int = 0  # those of the copies that were timed
    wait_seconds: float = 0.0  # the device had nothing to do but to wait for a batch
    seconds: float = 0.0  # spent in epochs, from the first wait of each to its last

    @property
    def gpu_wait(self) -> float:
        """The share of time in which the device waited for data, 0 to 1."""
        return self.wait_seconds / self.seconds if self.seconds else 0.0

    @property
    def copy_rate(self) -> float:
        """Bytes a second of the timed copies."""
        return self.copy_bytes / self.copy_seconds if self.copy_seconds else 0.0


class Meter:
    """Takes the times around each wait of one epoch: by events on a GPU, by the clock on a processor."""

    def __init__(self, machine: Machine, statistics: Statistics) -> None:
        self._machine = machine
        self._statistics = statistics
        self._open: deque[tuple[Event, Event]] = deque()
        self._first: Event | None = None
        self._begin: Event | None = None
        self._clock = self._clock_first = 0.0
        self._before = statistics.seconds

    def before_wait(self, stream: object) -> None:
        """The consumer's work up to here is queued; from here on the device has only the wait."""
        if not self._machine.asynchronous:
            self._clock = time.perf_counter()
            self._clock_first = self._clock_first or self._clock
            return
        self._begin = self._machine.event(timed=True)
        self._begin.record(stream)
        self._first = self._first or self._begin

    def after_wait(self, stream: object) -> None:
        """The batch is there."""
        if not self._machine.asynchronous:
            now = time.perf_counter()
            self._statistics.wait_seconds += now - self._clock
            self._statistics.seconds = self._before + now - self._clock_first
            return
        end = self._machine.event(timed=True)
        end.record(stream)
        assert self._begin is not None
        self._open.append((self._begin, end))
        self.harvest()

    def harvest(self) -> None:
        """Count the waits that are over. Never waits itself."""
        while self._open and self._open[0][1].query():
            begin, end = self._open.popleft()
            assert self._first is not None
            self._statistics.wait_seconds += begin.elapsed_time(end) / 1e3
            self._statistics.seconds = self._before + self._first.elapsed_time(end) / 1e3
