"""How much of the machine this container may use: CPUs, memory, /dev/shm, open files.

Every function takes the root under which /proc, /sys and /dev lie, so that tests can show it other machines.
"""

from __future__ import annotations

import math
import os
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class CpuLimit:
    """CPUs that may be used; `source` is "affinity", or the cgroup file that sets the quota."""

    affinity: int
    quota: Optional[float]
    source: str

    @property
    def cpus(self) -> float:
        """As much as the scheduler will give, fractions included."""
        return min(float(self.affinity), self.quota or math.inf)

    @property
    def workers(self) -> int:
        """How many threads or processes keep them busy; never less than one."""
        return math.ceil(self.cpus)


@dataclass(frozen=True)
class MemoryLimit:
    """Bytes that may be used; `source` is "machine", or the cgroup file that sets the limit."""

    bytes: int
    source: str


@dataclass(frozen=True)
class SharedMemory:
    """Size and free bytes of /dev/shm."""

    total: int
    free: int


@dataclass(frozen=True)
class OpenFiles:
    """How many files a process may have open; None means no limit."""

    soft: Optional[int]
    hard: Optional[int]


@dataclass(frozen=True)
class _Mount:
    kind: str
    root: str
    point: str


def cpu_limit(root: str = "/") -> CpuLimit:
    """The smaller of the affinity and of every cgroup quota from this process's group up."""
    affinity = _affinity(root)
    quotas = [found for folder in _groups(root, "cpu") for found in (_cpu_max(folder), _cfs_quota(folder)) if found]
    quota, source = min(quotas, default=(math.inf, ""))
    if quota == math.inf:
        return CpuLimit(affinity, None, "affinity")
    return CpuLimit(affinity, quota, _outside(root, source) if quota < affinity else "affinity")


def memory_limit(root: str = "/") -> Optional[MemoryLimit]:
    """The smaller of the machine's memory and of every cgroup limit from this process's group up."""
    found = [
        (limit, _outside(root, path))
        for folder in _groups(root, "memory")
        for path in (f"{folder}/memory.max", f"{folder}/memory.limit_in_bytes")
        for limit in (_number(_read(path)),)
        if limit is not None
    ]
    total = re.search(r"^MemTotal:\s*(\d+) kB", _read(_under(root, "/proc/meminfo")), re.MULTILINE)
    if total:
        found.append((int(total.group(1)) * 1024, "machine"))
    return MemoryLimit(*min(found)) if found else None


def shared_memory(root: str = "/") -> Optional[SharedMemory]:
    """What /dev/shm holds; None when there is none."""
    try:
        seen = os.statvfs(_under(root, "/dev/shm"))
    except OSError:
        return None
    return SharedMemory(total=seen.f_blocks * seen.f_frsize, free=seen.f_bavail * seen.f_frsize)


def open_files(root: str = "/") -> OpenFiles:
    """The limit of open files of this process."""
    limits = _read(_under(root, "/proc/self/limits"))
    found = re.search(r"^Max open files\s+(\S+)\s+(\S+)", limits, re.MULTILINE)
    return OpenFiles(_number(found.group(1)), _number(found.group(2))) if found else OpenFiles(None, None)


def memory_used(root: str = "/") -> Optional[int]:
    """Bytes in use in this process's group, without the file cache that the kernel can drop."""
    for folder in _groups(root, "memory"):
        for name, idle in (
            ("memory.current", "inactive_file"),
            ("memory.usage_in_bytes", "total_inactive_file"),
        ):
            used = _number(_read(f"{folder}/{name}"))
            if used is not None:
                return max(0, used - _field(_read(f"{folder}/memory.stat"), idle))
    return None


def memory_kills(root: str = "/") -> int:
    """How many processes the kernel killed in this process's group because the memory was used up."""
    texts = (
        _read(f"{folder}/{name}")
        for folder in _groups(root, "memory")
        for name in ("memory.events", "memory.oom_control")
    )
    return next((_field(text, "oom_kill") for text in texts if text), 0)


def process_limit(root: str = "/") -> Optional[tuple[int, int]]:
    """The tightest limit of processes and threads, and how many there are; None when there is no limit."""
    found = [
        (limit, _number(_read(f"{folder}/pids.current")) or 0)
        for folder in _groups(root, "pids")
        for limit in (_number(_read(f"{folder}/pids.max")),)
        if limit is not None
    ]
    return min(found, key=lambda pair: pair[0] - pair[1]) if found else None


def _field(text: str, name: str) -> int:
    """The number behind a name in a file of `name number` lines; 0 when it is not there."""
    found = re.search(rf"^{name} (\d+)$", text, re.MULTILINE)
    return int(found.group(1)) if found else 0


def _affinity(root: str) -> int:
    listed = re.search(r"^Cpus_allowed_list:\s*(\S+)", _read(_under(root, "/proc/self/status")), re.MULTILINE)
    if not listed:
        return os.cpu_count() or 1
    ranges = (part.split("-") for part in listed.group(1).split(","))
    return sum(int(part[-1]) - int(part[0]) + 1 for part in ranges)


def _groups(root: str, controller: str) -> Iterator[str]:
    """This process's cgroup folders for a controller, each up to its mount; v1, v2, or both (hybrid)."""
    mounts = list(_cgroup_mounts(root))
    for line in _read(_under(root, "/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        kind = "cgroup" if controllers else "cgroup2"
        if kind == "cgroup" and controller not in controllers.split(","):
            continue
        for mount in mounts:
            if mount.kind == kind:  # a v1 mount of another controller has none of the files asked for
                yield from _way_up(root, mount, path)


def _way_up(root: str, mount: _Mount, path: str) -> Iterator[str]:
    """The group's folder, then its parents up to the mount point.

    The mount may show a part of the tree only (`mount.root`): Docker binds the container's own group.
    A group that lies outside what is shown has only the mount point to ask.
    """
    inside = posixpath.relpath(path, mount.root)
    parts = [] if inside.startswith("..") or inside == "." else inside.split("/")
    for length in range(len(parts), -1, -1):
        yield _under(root, posixpath.join(mount.point, *parts[:length]))


def _cgroup_mounts(root: str) -> Iterator[_Mount]:
    for line in _read(_under(root, "/proc/self/mountinfo")).splitlines():
        before, _, after = line.partition(" - ")
        mount, kind = before.split(), after.split()
        if kind and kind[0] in ("cgroup", "cgroup2"):
            yield _Mount(kind[0], mount[3], mount[4])


def _cpu_max(folder: str) -> Optional[tuple[float, str]]:
    path = f"{folder}/cpu.max"
    fields = _read(path).split()
    quota = _number(fields[0]) if len(fields) == 2 else None
    return (quota / int(fields[1]), path) if quota else None


def _cfs_quota(folder: str) -> Optional[tuple[float, str]]:
    path = f"{folder}/cpu.cfs_quota_us"
    quota, period = _number(_read(path)), _number(_read(f"{folder}/cpu.cfs_period_us"))
    return (quota / period, path) if quota and period else None


def _number(text: str) -> Optional[int]:
    """A limit; `max`, `unlimited` and -1 are none."""
    return int(text) if text.strip().isdigit() else None


def _under(root: str, path: str) -> str:
    return posixpath.join(root, path.lstrip("/"))


def _outside(root: str, path: str) -> str:
    return "/" + posixpath.relpath(path, root)


def _read(path: str) -> str:
    """A file of the kernel; one that is not there says nothing."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
