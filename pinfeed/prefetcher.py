"""The copy stream for anybody's DataLoader, in one line.

    for batch in pinfeed.prefetch(loader, "cuda"):
        ...

Batches keep their structure. A thread asks the loader, pins what is not pinned, and copies on a stream of its own,
`ahead` batches before they are needed.
"""

from __future__ import annotations

import queue
import re
import signal
import threading
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Optional

import torch

from pinfeed import structure
from pinfeed.errors import BAD_DATA, UNAVAILABLE, PinfeedError
from pinfeed.meter import Meter, Statistics
from pinfeed.slab import refusal
from pinfeed.transfer import Event, Machine, machine_for

_END = object()
_WORKER_DIED = re.compile(
    r"DataLoader worker \(pid\(?s?\)? ?([\d, ]+)\) (?:is killed by signal: |exited unexpectedly)(.*)"
)


class Prefetch:
    """`loader` with its batches on `device`. Iterate it as often as the loader; `statistics` counts along.

    Each batch is memory of its own, which is handed out again only when all work that was queued on the
    loop's stream at the moment it was dropped is over. So a batch may be kept as long as one likes.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        device: torch.device | str | None = None,
        *,
        ahead: int = 2,
        pin: bool = True,
        machine: Optional[Machine] = None,
    ) -> None:
        if ahead < 1:
            raise ValueError(f"ahead {ahead}: at least 1")
        self.loader = loader
        self.statistics = Statistics()
        self._machine = machine or machine_for(device)
        self._ahead = ahead
        self._pin = _Pinning(pin and self._machine.asynchronous)
        self._stream = self._machine.stream()

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        machine, meter = self._machine, Meter(self._machine, self.statistics)
        session = _Session(self._ahead)
        # Made here and not in the thread: forking workers is safe only while nothing else runs in this process.
        source = iter(self.loader)
        task = (source, session, machine, self._stream, self._pin)
        feeder = threading.Thread(target=_feed, args=task, name="pinfeed-prefetch", daemon=True)
        feeder.start()
        del task
        under_way: deque[Event] = deque()
        try:
            while True:
                meter.before_wait(machine.current())
                arrived = _arrived(session, source)
                if arrived is _END:
                    return
                batch, ready, tensors, size = arrived
                machine.current().wait_event(ready)
                meter.after_wait(machine.current())
                _hand_over(machine, tensors)
                self._count(batch, size)
                del arrived, tensors  # only the loop holds the batch now
                yield batch
                del batch
                session.room.release()
                _stay_close(machine, under_way, self._ahead)
        finally:
            session.stop(feeder)

    def _count(self, batch: Any, size: int) -> None:
        self.statistics.batches += 1
        self.statistics.bytes += size
        first = next((leaf for leaf in structure.leaves(batch) if isinstance(leaf, torch.Tensor) and leaf.dim()), None)
        self.statistics.images += len(first) if first is not None else 0


def prefetch(loader: Iterable[Any], device: torch.device | str | None = None, **options: Any) -> Prefetch:
    """`loader` with its batches on `device`, copied ahead on a stream of their own. See `Prefetch`."""
    return Prefetch(loader, device, **options)


def _stay_close(machine: Machine, under_way: deque[Event], ahead: int) -> None:
    """Let the processor be at most `ahead` steps before the device: more batches would only take memory."""
    mark = machine.event()
    mark.record(machine.current())
    under_way.append(mark)
    if len(under_way) > ahead:
        under_way.popleft().synchronize()


def _hand_over(machine: Machine, tensors: list[torch.Tensor]) -> None:
    """Tell the allocator that the loop's stream reads memory of the copy stream.

    Without it a dropped batch's memory would go to the next copy at once, while the step still reads it.
    """
    if machine.asynchronous:
        for tensor in tensors:
            tensor.record_stream(machine.current())


class _Session:
    """One pass over the loader: what loop and feeder hand each other."""

    def __init__(self, ahead: int) -> None:
        self.arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.room = threading.Semaphore(ahead)
        self.stopped = False

    def stop(self, feeder: threading.Thread) -> None:
        """End the feeder. It may be waiting for the loader, which then gets its time."""
        self.stopped = True
        self.room.release()
        feeder.join()


def _feed(source: Iterator[Any], session: _Session, machine: Machine, stream: Any, pin: _Pinning) -> None:
    try:
        machine.bind()
        while True:
            session.room.acquire()
            if session.stopped:
                return
            batch = next(source, _END)
            if batch is _END:
                session.arrived.put(_END)
                return
            session.arrived.put(_sent(batch, machine, stream, pin))
            del batch
    except BaseException as error:  # it belongs to the loop, which raises it
        session.arrived.put(error)


def _sent(batch: Any, machine: Machine, stream: Any, pin: _Pinning) -> tuple[Any, Event, list[torch.Tensor], int]:
    """(the batch on the device, the mark that says when, its tensors, its bytes)."""
    structure.refuse_cuda(batch)
    batch = pin.apply(batch)
    with machine.on(stream):
        # A pinned source needs no reference of ours: torch keeps the block until this copy is over.
        moved = structure.mapped(batch, lambda leaf: _moved(leaf, machine.device))
    ready = machine.event()
    ready.record(stream)
    tensors = [tensor for leaf in structure.leaves(moved) for tensor in structure.tensors_of(leaf)]
    return moved, ready, tensors, sum(tensor.nbytes for tensor in tensors)


def _moved(leaf: Any, device: torch.device) -> Any:
    try:
        return leaf.to(device, non_blocking=True)
    except TypeError:  # a `to` of the user's own that knows only the device
        return leaf.to(device)


class _Pinning:
    """Pins batches, and says once what could not be pinned."""

    def __init__(self, on: bool) -> None:
        self._on = on
        self._looked = False

    def apply(self, batch: Any) -> Any:
        """The batch in pinned memory, as far as that goes."""
        if not self._looked:
            self._look_at(batch)
        if not self._on:
            return batch
        try:
            return structure.mapped(batch, structure.pinned)
        except RuntimeError as error:
            self._on = False
            size = sum(tensor.nbytes for leaf in structure.leaves(batch) for tensor in structure.tensors_of(leaf))
            text = refusal(size, str(error).splitlines()[0])
            warnings.warn(f"pinfeed goes on without pinned memory, and copies are slower: {text}", stacklevel=2)
            return batch

    def _look_at(self, batch: Any) -> None:
        self._looked = True
        name = structure.unmovable(batch)
        if name:
            _advise(name, "was not moved: give it .pin_memory() and .to(device, non_blocking=False)")
        elif self._on:
            for leaf in structure.leaves(batch):
                if not isinstance(leaf, torch.Tensor) and not hasattr(leaf, "pin_memory"):
                    _advise(type(leaf).__qualname__, "was not pinned: give it a method .pin_memory()")


def _advise(name: str, what: str) -> None:
    warnings.warn(f"pinfeed: batch type {name} {what} that returns the batch", stacklevel=2)


def _arrived(session: _Session, source: Iterator[Any]) -> Any:
    """What the feeder has sent; its error is raised here, and explained where pinfeed knows it."""
    try:
        # torch's handler of SIGCHLD may raise in this very wait, too.
        arrived = session.arrived.get()
    except RuntimeError as error:
        arrived = error
    if isinstance(arrived, (RuntimeError, OSError, EOFError)):
        raise explained(arrived, source) or arrived
    if isinstance(arrived, BaseException):
        raise arrived
    return arrived


def explained(error: Exception, source: Any = None) -> Optional[PinfeedError]:
    """What a DataLoader's error means, in three parts; None for one that speaks for itself.

    `source` is the loader's iterator: the exit codes of its workers tell more than the text does.
    """
    text = str(error)
    died = _WORKER_DIED.search(text)
    if died or isinstance(error, (ConnectionError, EOFError)):
        killed = _killed(source)
        if killed:
            return _worker_died(*killed)
        if died:
            return _worker_died(died.group(1), died.group(2))
    if "Cannot re-initialize CUDA in forked subprocess" in text:
        return PinfeedError(
            "the data set uses CUDA in a worker process",
            "Cannot re-initialize CUDA in forked subprocess",
            "return CPU tensors, and load with map_location='cpu': moving them is the feed's work",
            BAD_DATA,
        )
    if "received 0 items of ancdata" in text or "Too many open files" in text:
        return PinfeedError(
            "the processes of the DataLoader have no file descriptors left",
            text.splitlines()[-1],
            "docker run --ulimit nofile=65536:65536 ..., or fewer --workers",
            UNAVAILABLE,
        )
    return None


def _killed(source: Any) -> Optional[tuple[str, str]]:
    """(pid, signal) of a worker that a signal has ended."""
    for worker in getattr(source, "_workers", ()):
        worker.join(timeout=0.1)  # its pipe may be closed a moment before its exit code is there
        if worker.exitcode is not None and worker.exitcode < 0:
            return str(worker.pid), signal.strsignal(-worker.exitcode) or ""
    return None


def _worker_died(pid: str, rest: str) -> PinfeedError:
    cause, do = "it exited by itself", "look for its last words above; --workers 0 shows the error in this process"
    if "Bus error" in rest:
        cause = "bus error: /dev/shm is full"
        do = "docker run --shm-size=8g ... (or --ipc=host), fewer --workers, or packed data, which needs none"
    elif "Killed" in rest:
        cause = f"killed by signal {signal.SIGKILL.value}: most often memory that ran out"
        do = "fewer --workers, a smaller --batch-size, or more memory for the container (docker run --memory)"
    elif rest.strip(" ."):
        cause = f"killed by {rest.strip(' .').split('.')[0]}"
    return PinfeedError(f"a worker process of the DataLoader died (pid {pid.strip()})", cause, do, UNAVAILABLE)
