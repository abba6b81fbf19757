"""Jobs in processes: a process that dies costs one item, and nothing is left behind."""

from __future__ import annotations

import dataclasses
import errno
import multiprocessing
import os
import signal
import time

import pytest

from pinfeed import workers
from pinfeed.errors import PinfeedError
from pinfeed.workers import Job


@dataclasses.dataclass(frozen=True)
class Double:
    """Doubles numbers; some of them do something else to the process."""

    fatal: tuple[int, ...] = ()
    how: int = signal.SIGSEGV

    def __call__(self, job: Job) -> list[int]:
        if set(job.items) & set(self.fatal):
            os.kill(os.getpid(), self.how)
        return [2 * item for item in job.items]


def full(job: Job) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def mistaken(job: Job) -> None:
    raise KeyError("a mistake of ours")


def slow(job: Job) -> None:
    time.sleep(60)


class CannotStart:
    """Something that no process can be given."""

    def __reduce__(self) -> tuple[object, ...]:
        return (os._exit, (3,))

    def __call__(self, job: Job) -> None: ...


def jobs(count: int, size: int = 4) -> list[Job]:
    return [Job(start, list(range(start, start + size))) for start in range(0, count, size)]


def test_all_is_done_once() -> None:
    done = list(workers.run(Double(), jobs(40), 2))
    assert sorted(number for answer in done for number in answer.result) == list(range(0, 80, 2))
    assert multiprocessing.active_children() == []


def test_a_process_that_dies_costs_its_item_only() -> None:
    done = list(workers.run(Double(fatal=(5, 6, 17)), jobs(24), 2))
    died = {answer.job.start: answer.died for answer in done if answer.died is not None}
    assert died == dict.fromkeys((5, 6, 17), -signal.SIGSEGV)
    alive = sorted(number // 2 for answer in done if answer.died is None for number in answer.result)
    assert alive == [number for number in range(24) if number not in died]
    assert workers.end_of(-11) == "was killed by SIGSEGV"


def test_a_full_disk_of_a_worker_is_an_oserror_here() -> None:
    with pytest.raises(OSError, match="No space left") as caught:
        list(workers.run(full, jobs(8), 2))
    assert caught.value.errno == errno.ENOSPC
    assert multiprocessing.active_children() == []


def test_a_mistake_in_the_task_shows_its_traceback() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)in mistaken.*a mistake of ours"):
        list(workers.run(mistaken, jobs(8), 1))


def test_processes_that_cannot_begin_are_said_and_no_file_is_blamed() -> None:
    with pytest.raises(PinfeedError, match="before it could begin") as caught:
        list(workers.run(CannotStart(), jobs(8), 1))
    assert "exit code 3" in caught.value.seen


def test_a_stop_ends_workers_in_the_middle_of_a_long_job() -> None:
    began = time.monotonic()

    def check() -> None:
        if time.monotonic() - began > 1:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        list(workers.run(slow, jobs(8), 2, check))
    assert time.monotonic() - began < 10
    assert multiprocessing.active_children() == []


def test_workers_leave_with_a_parent_that_was_killed() -> None:
    reader, writer = os.pipe()
    parent = os.fork()
    if parent == 0:
        os.close(reader)
        run = workers.run(Double(), jobs(400), 1)
        next(run)
        os.write(writer, str(multiprocessing.active_children()[0].pid).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(writer)
    os.waitpid(parent, 0)
    worker = int(os.read(reader, 20))
    os.close(reader)
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/{worker}") and "Z" not in _state(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{worker}") or "Z" in _state(worker)


def _state(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"
