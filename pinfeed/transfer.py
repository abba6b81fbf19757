"""What a feed needs of a device: streams, events, a copy. The same feed then runs on a GPU and on a processor.

`Gpu` is CUDA as torch gives it. `Processor` does at once what it is told, so nothing is ever waited for.
A test has a third one, whose copies and kernels are late on purpose (tests/pinfeed/late_gpu.py).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch


class Event(Protocol):
    """A mark in a stream: work before it is done once the event is."""

    def record(self, stream: Any) -> None: ...
    def synchronize(self) -> None: ...
    def query(self) -> bool: ...
    def elapsed_time(self, end: Any) -> float: ...


class Machine(Protocol):
    """A device, seen by a feed."""

    device: torch.device
    asynchronous: bool  # does a copy go on after the call that started it?

    def bind(self) -> None: ...
    def stream(self) -> Any: ...
    def current(self) -> Any: ...
    def event(self, *, timed: bool = False) -> Event: ...
    def on(self, stream: Any) -> AbstractContextManager[Any]: ...
    def empty(self, size: int) -> torch.Tensor: ...
    def copy(self, target: torch.Tensor, source: torch.Tensor, stream: Any) -> None: ...


class Gpu:
    """A CUDA device."""

    asynchronous = True

    def __init__(self, device: torch.device) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)

    def bind(self) -> None:
        """Make the device that of the calling thread. Without it a thread opens a context on GPU 0."""
        torch.cuda.set_device(self.device)

    def stream(self) -> torch.cuda.Stream:
        return torch.cuda.Stream(self.device)

    def current(self) -> torch.cuda.Stream:
        return torch.cuda.current_stream(self.device)

    def event(self, *, timed: bool = False) -> torch.cuda.Event:
        # Blocking: a wait that spins would burn the processor that the gather needs.
        return torch.cuda.Event(enable_timing=timed, blocking=True)

    def on(self, stream: torch.cuda.Stream) -> AbstractContextManager[Any]:
        return torch.cuda.stream(stream)

    def empty(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, device=self.device)

    def copy(self, target: torch.Tensor, source: torch.Tensor, stream: torch.cuda.Stream) -> None:
        with torch.cuda.stream(stream):
            target.copy_(source, non_blocking=True)


class _Done:
    """Both stream and event of a device on which all work is done when the call returns."""

    def wait_event(self, event: object) -> None: ...
    def record(self, stream: object) -> None: ...
    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: object) -> float:
        return 0.0


class Processor:
    """The processor: no stream, nothing to wait for."""

    asynchronous = False

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._done = _Done()

    def bind(self) -> None: ...

    def stream(self) -> _Done:
        return self._done

    def current(self) -> _Done:
        return self._done

    def event(self, *, timed: bool = False) -> _Done:
        return self._done

    def on(self, stream: object) -> AbstractContextManager[Any]:
        return nullcontext()

    def empty(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, device=self.device)

    def copy(self, target: torch.Tensor, source: torch.Tensor, stream: object) -> None:
        target.copy_(source)


def machine_for(device: torch.device | str | None = None) -> Machine:
    """The machine behind a torch device; by default the GPU where there is one."""
    chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    return Gpu(chosen) if chosen.type == "cuda" else Processor(chosen)
