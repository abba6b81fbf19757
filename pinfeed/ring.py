"""The ring: packed data to the device without a wait, a worker process, or an allocation.

    with pinfeed.Ring(pinfeed.Packed("data/train"), batch_size=256, device="cuda", seed=0) as ring:
        for epoch in range(10):
            for batch in ring.epoch(epoch):
                step(batch.images, batch.labels)       # valid until the next one is asked for

A thread gathers rows into one of three slots of pinned memory, and sends each slot to one of two on the device,
on a stream of its own. Nothing is filled before its last reader is done; these are the waits that make it so:

    1  copied[h]     the copy that last read host slot h is over: the gather may overwrite it
    2  (gather)
    3  free          the loop has *recorded* consumed[d]. Waiting for a mark that was never set waits for nothing
    4  consumed[d]   the step that last read device slot d is over: the copy may overwrite it
    5  ready[d]      the copy is over: the loop's own stream may read device slot d

tests/pinfeed/test_ring.py takes out each of 1, 4 and 5, and shows that wrong pixels are then seen.
"""

from __future__ import annotations

import dataclasses
import queue
import threading
import warnings
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import Any, NamedTuple, Optional

import numpy as np
import torch

from pinfeed import seeds
from pinfeed.meter import Meter, Statistics
from pinfeed.packed import Rows
from pinfeed.slab import CannotPin, Slab
from pinfeed.transfer import Machine, machine_for

HOST_SLOTS = 3
DEVICE_SLOTS = 2

_ALIGNED = 256  # bytes; kernels want their tensors to begin at round addresses


class Batch(NamedTuple):
    """Samples on the device. Valid until the next batch is asked for; `clone()` keeps one."""

    images: torch.Tensor  # uint8, N x channels x height x width, channels last in memory
    labels: torch.Tensor  # int64
    keys: torch.Tensor  # int64; what random transforms of each sample are drawn from

    def clone(self) -> Batch:
        """A copy that stays valid."""
        return Batch(*(part.clone() for part in self))


class Ring:
    """Batches of `data` on `device`. On a processor the same code runs, and nothing is pinned.

    With `world_size` ranks each takes every world_size-th sample of one permutation. `drop_last` leaves a last
    batch out that is not full, so that all ranks have as many; without it each sample comes exactly once, and
    the ranks may differ by one sample.
    """

    def __init__(
        self,
        data: Rows,
        batch_size: int,
        device: torch.device | str | None = None,
        *,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        pin: bool = True,
        host_slots: int = HOST_SLOTS,
        device_slots: int = DEVICE_SLOTS,
        machine: Optional[Machine] = None,
    ) -> None:
        if batch_size < 1 or not 0 <= rank < world_size or min(host_slots, device_slots) < 1:
            raise ValueError(f"batch_size {batch_size}, rank {rank} of {world_size}, slots {host_slots}/{device_slots}")
        self.batch_size = batch_size
        self.statistics = Statistics()
        self._data, self._seed, self._shuffle, self._drop_last = data, seed, shuffle, drop_last
        self._rank, self._world_size = rank, world_size
        self._machine = machine or machine_for(device)
        self._slots = self._make_slots(host_slots, device_slots, pin and self._machine.asynchronous)
        # Also called when the ring is forgotten, or the interpreter ends.
        self._finalizer = weakref.finalize(self, self._slots.close)
        self._next_epoch = 0

    # --- which samples ---------------------------------------------------------------------------

    def __len__(self) -> int:
        """Batches in an epoch."""
        own = len(range(self._rank, len(self._data), self._world_size))
        if self._drop_last:
            return len(self._data) // self._world_size // self.batch_size
        return -(-own // self.batch_size)

    def order(self, epoch: int) -> torch.Tensor:
        """The samples that this rank visits in `epoch`, in order."""
        count = len(self._data)
        whole = seeds.epoch_order(count, self._seed, epoch) if self._shuffle else torch.arange(count)
        own = seeds.shard(whole, self._rank, self._world_size)
        return own[: len(self) * self.batch_size] if self._drop_last else own

    def epoch(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """The batches of `epoch`, from number `first` on: a run that was stopped goes on in its middle."""
        return self.batches(self.order(epoch), first, epoch)

    def __iter__(self) -> Iterator[Batch]:
        """The next epoch, each time."""
        self._next_epoch += 1
        return self.epoch(self._next_epoch - 1)

    # --- the loop's side -------------------------------------------------------------------------

    def batches(self, order: torch.Tensor, first: int = 0, epoch: int = 0) -> Iterator[Batch]:
        """The samples that `order` lists, from batch `first` on; the last batch may be smaller."""
        if not self._finalizer.alive:
            raise ValueError("the ring is closed")
        slots, machine = self._slots, self._machine
        session = _Session(len(slots.device))
        slots.begin(session)
        chunks = [rows.numpy() for rows in order.split(self.batch_size)[first:]] if len(order) else []
        feeder = threading.Thread(
            target=_feed, args=(slots, session, self._data, chunks, (self._seed, epoch)), name="pinfeed", daemon=True
        )
        session.feeder = feeder
        meter = Meter(machine, self.statistics)
        feeder.start()
        try:
            while True:
                meter.before_wait(machine.current())
                arrived = session.arrived.get()
                if arrived is None:
                    session.check_current()
                    return
                if isinstance(arrived, BaseException):
                    raise arrived
                number, count = arrived
                slots.await_copy(number, machine.current())
                meter.after_wait(machine.current())
                self._count(count)
                try:
                    yield slots.batch(number, count)
                finally:
                    # At the end of the step, on the stream that did it.
                    slots.consumed[number].record(machine.current())
                    session.free.put(number)
        finally:
            session.stop()

    def _count(self, images: int) -> None:
        self.statistics.batches += 1
        self.statistics.images += images
        self.statistics.bytes += self._slots.layout.size
        self.statistics.copy_seconds, self.statistics.copy_bytes = self._slots.timed

    # --- memory ----------------------------------------------------------------------------------

    def _make_slots(self, host_slots: int, device_slots: int, pin: bool) -> _Slots:
        layout = _Layout.of(min(self.batch_size, len(self._data)), self._data.shape)
        try:
            slab = Slab(host_slots * layout.size, pin=pin)
        except CannotPin as refused:
            warnings.warn(f"pinfeed goes on without pinned memory, and copies are slower: {refused}", stacklevel=4)
            slab = Slab(host_slots * layout.size, pin=False)
        return _Slots(self._machine, layout, slab, host_slots, device_slots)

    @property
    def pinned(self) -> bool:
        """Is the host side in pinned memory?"""
        return self._slots.slab.pinned

    def close(self) -> None:
        """Join the thread, then give the memory back. Batches handed out before are no longer valid."""
        self._finalizer()

    def __enter__(self) -> Ring:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()


@dataclasses.dataclass(frozen=True)
class _Layout:
    """Where the parts of a batch lie in its slot: all of it is one copy."""

    count: int
    shape: tuple[int, int, int]
    labels: int
    keys: int
    size: int

    @classmethod
    def of(cls, count: int, shape: tuple[int, int, int]) -> _Layout:
        height, width, channels = shape
        labels = _rounded(count * height * width * channels)
        keys = labels + _rounded(8 * count)
        return cls(count, shape, labels, keys, keys + _rounded(8 * count))

    def parts(self, slot: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(images N x height x width x channels, labels, keys) in these bytes."""
        height, width, channels = self.shape
        images = slot[: self.count * height * width * channels].view(self.count, height, width, channels)
        labels = slot[self.labels : self.labels + 8 * self.count].view(torch.int64)
        keys = slot[self.keys : self.keys + 8 * self.count].view(torch.int64)
        return images, labels, keys


def _rounded(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


class _Slots:
    """Host slots, device slots, and the marks that say who is done with which. They last as long as the ring."""

    def __init__(self, machine: Machine, layout: _Layout, slab: Slab, host_slots: int, device_slots: int) -> None:
        self.machine, self.layout, self.slab = machine, layout, slab
        self.stream = machine.stream()  # one, for good: a stream of each epoch would cost memory in each
        self.host = list(slab.bytes.split(layout.size))
        self.device = [machine.empty(layout.size) for _ in range(device_slots)]
        self.began = [machine.event(timed=True) for _ in range(host_slots)]
        self.copied = [machine.event(timed=True) for _ in range(host_slots)]
        self.ready = [machine.event() for _ in range(device_slots)]
        self.consumed = [machine.event() for _ in range(device_slots)]
        self.timed = (0.0, 0)  # seconds and bytes of the copies that are over
        self._read_by = [False] * host_slots
        self._arrays = [tuple(part.numpy() for part in layout.parts(slot)) for slot in self.host]
        self._batches = [self._views(slot) for slot in self.device]
        self._session: Optional[_Session] = None

    def begin(self, session: _Session) -> None:
        """A new epoch. One that is still open ends here: its batches would share these slots."""
        if self._session is not None:
            self._session.superseded = self._session.feeder is not None
            self._session.stop()
        self._session = session
        for mark in self.consumed:  # whatever still reads a slot was queued before this moment
            mark.record(self.machine.current())

    # The waits, each a method of its own, so that a test can take it out.

    def await_host(self, number: int) -> None:
        """Wait until the copy that last read host slot `number` is over."""
        if self._read_by[number]:
            self.copied[number].synchronize()
            seconds, size = self.timed
            self.timed = (seconds + self.began[number].elapsed_time(self.copied[number]) / 1e3, size + self.layout.size)

    def send(self, host: int, device: int) -> None:
        """Copy host slot to device slot, once the step that reads the latter is over."""
        self.await_consumed(device)
        self.began[host].record(self.stream)
        self.machine.copy(self.device[device], self.host[host], self.stream)
        self.copied[host].record(self.stream)
        self._read_by[host] = True
        self.ready[device].record(self.stream)

    def await_consumed(self, device: int) -> None:
        """Let the copy stream wait for the step that last read device slot `device`."""
        self.stream.wait_event(self.consumed[device])

    def await_copy(self, device: int, stream: Any) -> None:
        """Let the loop's stream wait for the copy into device slot `device`."""
        stream.wait_event(self.ready[device])

    def fill(self, host: int, data: Rows, rows: np.ndarray, key: tuple[int, int]) -> None:
        """Gather the samples `rows` into host slot `host`."""
        images, labels, keys = self._arrays[host]
        data.gather(rows, images[: len(rows)])
        np.take(data.labels.numpy(), rows, out=labels[: len(rows)], mode="clip")
        keys[: len(rows)] = seeds.sample_keys(rows, *key)

    def batch(self, device: int, count: int) -> Batch:
        """What lies in device slot `device`."""
        whole = self._batches[device]
        return whole if count == self.layout.count else Batch(*(part[:count] for part in whole))

    def _views(self, slot: torch.Tensor) -> Batch:
        images, labels, keys = self.layout.parts(slot)
        return Batch(images.permute(0, 3, 1, 2), labels, keys)

    def close(self) -> None:
        """First the thread ends, then the copies, then the memory goes."""
        if self._session is not None:
            self._session.stop()
        for number, read in enumerate(self._read_by):
            if read:
                self.copied[number].synchronize()
        for mark in self.consumed:  # the device memory goes back to torch, which may hand it to another stream
            mark.synchronize()
        self.host, self._arrays, self._batches, self.device = [], [], [], []
        self.slab.close()


class _Session:
    """One epoch under way: what loop and feeder hand each other."""

    def __init__(self, device_slots: int) -> None:
        self.free: queue.SimpleQueue[Optional[int]] = queue.SimpleQueue()
        self.arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.feeder: Optional[threading.Thread] = None
        self.stopped = False
        self.superseded = False
        for number in range(device_slots):
            self.free.put(number)

    def check_current(self) -> None:
        """Raise when this epoch has not ended but was ended, by another loop over the same ring."""
        if self.superseded:
            raise RuntimeError("another epoch of this ring has begun; for two at a time, make two rings")

    def stop(self) -> None:
        """End the feeder, wherever it is, and wait until it has ended."""
        self.stopped = True
        self.free.put(None)
        feeder, self.feeder = self.feeder, None
        if feeder is not None and feeder is not threading.current_thread():
            feeder.join()
        # Whoever still asks this epoch for a batch hears that it is over.
        self.arrived.put(None)


def _feed(slots: _Slots, session: _Session, data: Rows, chunks: list[np.ndarray], key: tuple[int, int]) -> None:
    """The feeder's thread. It holds no reference to the ring, so that a forgotten ring can go."""
    try:
        slots.machine.bind()
        for number, rows in enumerate(chunks):
            host = number % len(slots.host)
            slots.await_host(host)
            if session.stopped:
                return
            slots.fill(host, data, rows, key)
            device = session.free.get()
            if device is None or session.stopped:
                return
            slots.send(host, device)
            session.arrived.put((device, len(rows)))
        session.arrived.put(None)
    except BaseException as error:  # it belongs to the loop, which raises it
        session.arrived.put(error)
