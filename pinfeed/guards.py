"""Does the demand fit the machine? Asked before the start, not found out in the middle.

Pure functions plan (`plan_loader`); `measure` looks and `raise_open_files` acts. A demand that does not fit
is lowered with a line that says so; one that cannot be lowered is refused, with numbers and the flag that
helps.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Optional, TypeVar

from pinfeed.errors import UNAVAILABLE, PinfeedError

Allocated = TypeVar("Allocated")

PREFETCH = 2  # DataLoader's prefetch_factor
# Of a worker that has loaded torch; measured on torch 2.7 and 2.13: 190 to 260 MB of its own.
WORKER_BYTES = 300 << 20
_OWN_FILES = 64  # open files of a training process by itself
_FILES_PER_WORKER = 8  # its pipes, sentinel and queues in the parent
_PINNED_SHARE = 0.5  # of memory that is left; what is pinned cannot be swapped out, nor lent to the file cache


@dataclasses.dataclass(frozen=True)
class Demand:
    """What a DataLoader is to hold. `asked` tells workers the user chose from those that were chosen for him."""

    batch_bytes: int
    workers: int
    prefetch: int = PREFETCH
    tensors: int = 2  # in a batch
    pin: bool = True
    asked: bool = False


@dataclasses.dataclass(frozen=True)
class Room:
    """What the machine, or this container, has left. None means that it is not known, or has no limit."""

    cpus: int
    shm: Optional[int] = None
    memory: Optional[int] = None
    open_files: Optional[int] = None  # after raise_open_files


@dataclasses.dataclass(frozen=True)
class LoaderPlan:
    """What will be done, and a line for each thing that is less than the demand."""

    workers: int
    prefetch: int
    pin: bool
    notes: tuple[str, ...] = ()


def power_of_two(size: int) -> int:
    """What torch pins for a block of `size` bytes: the next power of two."""
    return 1 << max(0, size - 1).bit_length()


def shm_bytes(batch_bytes: int, workers: int, prefetch: int = PREFETCH) -> int:
    """The most that a DataLoader's workers have in /dev/shm: each has `prefetch` batches under way."""
    return prefetch * workers * batch_bytes


def pinned_bytes(batch_bytes: int, workers: int, prefetch: int = PREFETCH) -> int:
    """The most that a DataLoader pins. One thread of the main process pins, not the workers."""
    return (prefetch * workers + 2) * power_of_two(batch_bytes)


def explained(batch_bytes: int, workers: int, prefetch: int = PREFETCH) -> str:
    """Both formulas with their numbers, for people."""
    return (
        f"a DataLoader of {workers} workers, prefetch {prefetch}, batches of {size(batch_bytes)}:"
        f" pinned memory <= ({prefetch} x {workers} + 2) x {size(power_of_two(batch_bytes))}"
        f" = {size(pinned_bytes(batch_bytes, workers, prefetch))},"
        f" /dev/shm <= {prefetch} x {workers} x {size(batch_bytes)}"
        f" = {size(shm_bytes(batch_bytes, workers, prefetch))}"
    )


def plan_loader(demand: Demand, room: Room) -> LoaderPlan:
    """Fit a DataLoader to the machine. Raises PinfeedError where fewer workers would not help."""
    plan = LoaderPlan(demand.workers, demand.prefetch, demand.pin)
    for fit in (_fit_cpus, _fit_shm, _fit_memory, _fit_open_files, _fit_pinned):
        plan = fit(plan, demand, room)
    return plan


def _fit_cpus(plan: LoaderPlan, demand: Demand, room: Room) -> LoaderPlan:
    if plan.workers <= room.cpus or demand.asked:  # more of them than processors is slow, but no mistake
        return plan
    return _fewer(plan, room.cpus, f"{room.cpus} CPUs may be used")


def _fit_shm(plan: LoaderPlan, demand: Demand, room: Room) -> LoaderPlan:
    batch = demand.batch_bytes
    if plan.workers == 0 or room.shm is None or shm_bytes(batch, plan.workers, plan.prefetch) <= room.shm:
        return plan
    if batch > room.shm:
        if not demand.asked:
            return _fewer(plan, 0, f"/dev/shm has {size(room.shm)} free, and one batch takes {size(batch)}")
        raise PinfeedError(
            "/dev/shm is too small for even one batch: fewer workers will not help",
            f"one batch is {size(batch)}, /dev/shm has {size(room.shm)} free",
            f"docker run --shm-size={_shm_size(batch, plan)} (or --ipc=host; compose: shm_size); or --workers 0",
            UNAVAILABLE,
        )
    fitting = [
        (workers, prefetch)
        for prefetch in range(plan.prefetch, 0, -1)
        for workers in range(plan.workers, 0, -1)
        if shm_bytes(batch, workers, prefetch) <= room.shm
    ]
    # As many batches under way as fit; of those that hold as many, the one with more workers.
    workers, prefetch = max(fitting, key=lambda pair: (pair[0] * pair[1], pair[0]))
    need = size(shm_bytes(batch, plan.workers, plan.prefetch))
    note = (
        f"/dev/shm has {size(room.shm)} free, {plan.workers} workers x prefetch {plan.prefetch} x {size(batch)}"
        f" need {need}: going on with {workers} x {prefetch};"
        f" docker run --shm-size={_shm_size(batch, plan)} would allow all"
    )
    return dataclasses.replace(plan, workers=workers, prefetch=prefetch, notes=(*plan.notes, note))


def _fit_memory(plan: LoaderPlan, demand: Demand, room: Room) -> LoaderPlan:
    if room.memory is None:
        return plan
    each = WORKER_BYTES + plan.prefetch * demand.batch_bytes
    if demand.batch_bytes > room.memory:
        raise PinfeedError(
            "one batch is larger than the memory that is left",
            f"one batch is {size(demand.batch_bytes)}, {size(room.memory)} are left",
            "a smaller --batch-size, or docker run --memory with more",
            UNAVAILABLE,
        )
    if plan.workers * each <= room.memory:
        return plan
    why = f"{size(room.memory)} of memory are left, and a worker takes about {size(each)}"
    return _fewer(plan, int(room.memory // each), why)


def _fit_open_files(plan: LoaderPlan, demand: Demand, room: Room) -> LoaderPlan:
    each = _FILES_PER_WORKER + plan.prefetch * demand.tensors  # a tensor handed over is an open file
    if room.open_files is None or _OWN_FILES + plan.workers * each <= room.open_files:
        return plan
    fitting = max(0, (room.open_files - _OWN_FILES) // each)
    need = _OWN_FILES + plan.workers * each
    if fitting == 0 and demand.asked:
        raise PinfeedError(
            "the limit of open files is too low for even one worker",
            f"at most {room.open_files} open files, {need} are needed for {plan.workers} workers",
            "docker run --ulimit nofile=65536:65536; or --workers 0",
            UNAVAILABLE,
        )
    why = f"{room.open_files} files may be open, {need} are needed (docker run --ulimit nofile=65536:65536)"
    return _fewer(plan, fitting, why)


def _fit_pinned(plan: LoaderPlan, demand: Demand, room: Room) -> LoaderPlan:
    need = pinned_bytes(demand.batch_bytes, plan.workers, plan.prefetch)
    if not plan.pin or room.memory is None or need <= _PINNED_SHARE * room.memory:
        return plan
    note = (
        f"pinned memory off: up to {size(need)} would be pinned, more than half of the {size(room.memory)}"
        " of memory that are left; a smaller --batch-size or fewer --workers brings it back"
    )
    return dataclasses.replace(plan, pin=False, notes=(*plan.notes, note))


def _fewer(plan: LoaderPlan, workers: int, why: str) -> LoaderPlan:
    note = f"{workers} workers instead of {plan.workers}: {why}"
    return dataclasses.replace(plan, workers=workers, notes=(*plan.notes, note))


def _shm_size(batch: int, plan: LoaderPlan) -> str:
    """A value for --shm-size under which the plan fits, with a tenth to spare."""
    mib = 1 << 20
    return f"{math.ceil(1.1 * shm_bytes(batch, plan.workers, plan.prefetch) / mib)}m"


# --- looking at the machine, and acting ----------------------------------------------------------


def usable_cpus() -> int:
    """The processors that this process may really use: its affinity and its cgroup's quota."""
    try:
        from doctor import limits
    except ImportError:  # pinfeed was installed by itself
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return limits.cpu_limit().workers


def measure(root: str = "/") -> Room:
    """What is left of the machine that lies below `root`."""
    try:
        from doctor import limits
    except ImportError:
        return Room(usable_cpus(), open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    shm, memory = limits.shared_memory(root), limits.memory_limit(root)
    left = _available(root)
    if memory and memory.source != "machine":
        free = max(0, memory.bytes - (limits.memory_used(root) or 0))
        left = free if left is None else min(free, left)
    return Room(
        limits.cpu_limit(root).workers,
        shm.free if shm else None,
        left,
        limits.open_files(root).soft,
    )


def raise_open_files() -> None:
    """Let this process open as many files as it may: the soft limit is often 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # macOS names a hard limit that it does not grant
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def pinned_or_not(
    allocate: Callable[[bool], Allocated],
    need: int,
    say: Callable[[str], None],
    version: Path = Path("/proc/version"),
) -> tuple[Allocated, bool]:
    """allocate(True), which pins, or allocate(False) when that fails; and whether it is pinned.

    The failure of pinning says "CUDA out of memory" while the GPU is empty. Said here is what it means.
    """
    try:
        return allocate(True), True
    except (RuntimeError, MemoryError) as error:
        say(_unpinned(need, error, wsl2(version)))
    return allocate(False), False


def wsl2(version: Path = Path("/proc/version")) -> bool:
    """Is this Linux one inside Windows, where little memory can be pinned?"""
    try:
        return "microsoft" in version.read_text(errors="replace").lower()
    except OSError:
        return False


def _unpinned(need: int, error: Exception, windows: bool) -> str:
    why = (
        "WSL2 pins only a part of its memory: give it more in .wslconfig"
        if windows
        else "a limit of the host, whatever the GPU has free"
    )
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return (
        f"warning: could not pin {size(need)} of pinned HOST memory, not GPU memory ({first}): {why};"
        " going on with ordinary memory, which copies slower (--no-pin-memory says so at once)"
    )


def _available(root: str) -> Optional[int]:
    try:
        lines = Path(root, "proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(found[0][1]) * 1024 if found else None


def size(count: float) -> str:
    """Bytes for people, in the units that --shm-size and --memory use."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"
