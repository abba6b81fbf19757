"""Many small jobs in a few processes. A job that kills its process costs one item, never the run.

Processes are spawned, not forked: nothing of the parent's threads, locks or CUDA comes along.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import connection
from typing import Any, Optional

from pinfeed.errors import UNAVAILABLE, PinfeedError
from pinfeed.stop import SIGNALS

# A second job lies ready while the parent is busy with what came back, writing its journal say.
_AHEAD = 2
_LOOK_AROUND = 0.25  # seconds between two looks for a signal


@dataclasses.dataclass(frozen=True)
class Job:
    """Some items, numbered from `start` on."""

    start: int
    items: list[Any]


@dataclasses.dataclass(frozen=True)
class Done:
    """What a job gave; or, for a job of one item that no process survived, how the process ended."""

    job: Job
    result: Any
    died: Optional[int] = None  # the exit code; the negative of a signal's number


def run(
    task: Callable[[Job], Any], jobs: Iterable[Job], count: int, check: Callable[[], None] = lambda: None
) -> Iterator[Done]:
    """Do `jobs` by `task` (it must be picklable) in `count` processes, in whatever order they end.

    A process that dies is replaced, and its job is done again item by item, so that only the guilty one
    is lost. An OSError of the task is raised here. `check` is called often, and may raise.
    """
    waiting = iter(jobs)
    again: deque[Job] = deque()
    crew: list[_Worker] = []
    try:
        crew.extend(_Worker(task) for _ in range(count))
        while True:
            check()
            for worker in crew:
                _hand_out(worker, again, waiting)
            busy = [worker for worker in crew if worker.jobs]
            if not busy:
                return
            ready = connection.wait([worker.pipe for worker in busy], _LOOK_AROUND)
            for worker in [worker for worker in busy if worker.pipe in ready]:
                try:
                    done = worker.receive()
                except (EOFError, ConnectionError):
                    crew.remove(worker)
                    yield from _bury(worker, again)
                    crew.append(_Worker(task))
                    continue
                if done is not None:
                    yield done
    finally:
        for worker in crew:
            worker.dismiss()


class _Worker:
    """A process, the pipe to it, and the jobs that it has."""

    def __init__(self, task: Callable[[Job], Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, far_end = context.Pipe()
        self.jobs: deque[Job] = deque()
        self.process = context.Process(target=_serve, args=(task, far_end), daemon=True)
        # The mask is inherited: a Ctrl-C before the process has set itself up would print its traceback.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        far_end.close()  # or its end would never be noticed
        self.ready = False

    def receive(self) -> Optional[Done]:
        """What the process says: an answer, or only that it has begun. Raises EOFError when it is dead."""
        result = self.pipe.recv()
        if not self.ready:
            self.ready = True
            return None
        if isinstance(result, Exception):
            raise result
        return Done(self.jobs.popleft(), result)

    def dismiss(self) -> None:
        """End the process: it reads the end of its pipe, or is killed over a long job."""
        self.pipe.close()
        self.process.join(1)
        if self.process.exitcode is None:
            self.process.kill()  # it holds nothing that must be put in order
            self.process.join()
        self.process.close()


def _hand_out(worker: _Worker, again: deque[Job], waiting: Iterator[Job]) -> None:
    while len(worker.jobs) < _AHEAD:
        job = again.popleft() if again else next(waiting, None)
        if job is None:
            return
        worker.jobs.append(job)
        try:
            worker.pipe.send(job)
        except (BrokenPipeError, ConnectionError):
            return  # `receive` will find it dead


def _bury(worker: _Worker, again: deque[Job]) -> Iterator[Done]:
    """A dead worker's jobs go back: the first, in which it died, item by item."""
    worker.process.join(5)
    code = worker.process.exitcode
    worker.dismiss()
    if not worker.ready:
        raise PinfeedError(
            "a worker process ended before it could begin",
            f"exit code {code}" if code is None or code >= 0 else _killed_by(-code),
            "look at its message above; fewer --workers need less memory",
            UNAVAILABLE,
        )
    guilty, *innocent = worker.jobs
    again.extendleft(reversed(innocent))
    if len(guilty.items) == 1:
        yield Done(guilty, None, code if code is not None else -1)
    else:
        again.extendleft(Job(guilty.start + k, [item]) for k, item in reversed(list(enumerate(guilty.items))))


def end_of(code: int) -> str:
    """How a process ended, in words."""
    return _killed_by(-code) if code < 0 else f"ended with exit code {code}"


def _killed_by(signum: int) -> str:
    return f"was killed by {signal.Signals(signum).name}"


def _serve(task: Callable[[Job], Any], pipe: connection.Connection) -> None:
    """A worker's life. Signals are the parent's business: it closes the pipe when all is over."""
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    pipe.send("ready")
    while True:
        try:
            job = pipe.recv()
        except (EOFError, ConnectionError):
            return
        try:
            answer = task(job)
        except OSError as error:
            answer = error
        except Exception:
            answer = RuntimeError(f"in worker {os.getpid()}:\n{traceback.format_exc()}")
        try:
            pipe.send(answer)
        except (BrokenPipeError, ConnectionError):
            return
