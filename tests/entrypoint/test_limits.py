"""What the container may use, on machines that the tests make up."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

import pytest

from doctor import limits

V1 = {
    "proc/self/cgroup": "4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n0::/docker/abc\n",
    # The engine binds the container's own group: root is the group's path.
    "proc/self/mountinfo": (
        "30 22 0:25 / / rw - overlay overlay rw\n"
        "31 30 0:26 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro master:9 - cgroup cgroup rw,cpu,cpuacct\n"
        "32 30 0:27 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
        "33 30 0:28 /docker/abc /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset\n"
    ),
    "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "150000\n",
    "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "2147483648\n",
}
V2 = {
    "proc/self/cgroup": "0::/\n",
    "proc/self/mountinfo": "31 30 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw,nsdelegate\n",
    "sys/fs/cgroup/cpu.max": "50000 100000\n",
    "sys/fs/cgroup/memory.max": "1073741824\n",
}
HYBRID = {
    "proc/self/cgroup": "9:name=systemd:/s\n4:memory:/pod/a\n1:cpu:/pod/a\n0::/s/unit\n",
    "proc/self/mountinfo": (
        "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    ),
    # The parent is tighter than the group itself.
    "sys/fs/cgroup/cpu/pod/a/cpu.cfs_quota_us": "-1\n",
    "sys/fs/cgroup/cpu/pod/a/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us": "300000\n",
    "sys/fs/cgroup/cpu/pod/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/memory/pod/a/memory.limit_in_bytes": "9223372036854771712\n",
    "sys/fs/cgroup/memory/pod/memory.limit_in_bytes": "4294967296\n",
}
NESTED = {
    "proc/self/cgroup": "0::/kubepods/pod1/box\n",
    "proc/self/mountinfo": "31 30 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
    "sys/fs/cgroup/cpu.max": "max 100000\n",
    "sys/fs/cgroup/kubepods/cpu.max": "800000 100000\n",
    "sys/fs/cgroup/kubepods/pod1/cpu.max": "200000 100000\n",
    "sys/fs/cgroup/kubepods/pod1/box/cpu.max": "max 100000\n",
    "sys/fs/cgroup/kubepods/memory.max": "max\n",
    "sys/fs/cgroup/kubepods/pod1/memory.max": "3221225472\n",
    "sys/fs/cgroup/kubepods/pod1/box/memory.max": "max\n",
}
OUTSIDE = {
    "proc/self/cgroup": "0::/../other\n",
    "proc/self/mountinfo": "31 30 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
    "sys/fs/cgroup/cpu.max": "100000 100000\n",
    "sys/fs/cgroup/memory.max": "max\n",
    # Not a cgroup: where the path would lead if it were followed out of the mount.
    "sys/other/cpu.max": "10000 100000\n",
}
BELOW_THE_MOUNT = {
    "proc/self/cgroup": "0::/docker/abc/inner\n",
    "proc/self/mountinfo": "31 30 0:26 /docker /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
    "sys/fs/cgroup/abc/inner/cpu.max": "400000 100000\n",
    "sys/fs/cgroup/abc/inner/memory.max": "5368709120\n",
}
NO_LIMIT = {**V2, "sys/fs/cgroup/cpu.max": "max 100000\n", "sys/fs/cgroup/memory.max": "max\n"}
NO_CGROUP = {"proc/self/mountinfo": "30 22 0:25 / / rw - overlay overlay rw\n"}

GIB = 1024**3


def build(root: Path, files: dict[str, str], cpus: str = "0-7", gib: int = 16) -> str:
    base = {
        "proc/self/status": f"Name:\tpython\nCpus_allowed:\tff\nCpus_allowed_list:\t{cpus}\n",
        "proc/meminfo": f"MemTotal:       {gib * 1024 * 1024} kB\nMemFree: 1 kB\n",
        "proc/self/limits": "Limit  Soft Limit  Hard Limit  Units\nMax open files  1024  524288  files\n",
    }
    for name, text in {**base, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


@pytest.mark.parametrize(
    ("files", "quota", "source"),
    [
        (V1, 1.5, "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us"),
        (V2, 0.5, "/sys/fs/cgroup/cpu.max"),
        (HYBRID, 3.0, "/sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us"),
        (NESTED, 2.0, "/sys/fs/cgroup/kubepods/pod1/cpu.max"),
        (OUTSIDE, 1.0, "/sys/fs/cgroup/cpu.max"),
        (BELOW_THE_MOUNT, 4.0, "/sys/fs/cgroup/abc/inner/cpu.max"),
        (NO_LIMIT, None, "affinity"),
        (NO_CGROUP, None, "affinity"),
    ],
    ids=["v1", "v2", "hybrid", "nested", "outside", "below the mount", "no limit", "no cgroup"],
)
def test_the_cpu_quota_is_found(tmp_path: Path, files: dict[str, str], quota: Optional[float], source: str) -> None:
    found = limits.cpu_limit(build(tmp_path, files))
    assert (found.affinity, found.quota, found.source) == (8, quota, source)
    assert found.cpus == (quota or 8)


@pytest.mark.parametrize(
    ("cpus", "affinity"), [("0", 1), ("0-3", 4), ("0-1,4", 3), ("1,3,5-6", 4), ("0-63,128-191", 128)]
)
def test_the_affinity_is_counted(tmp_path: Path, cpus: str, affinity: int) -> None:
    assert limits.cpu_limit(build(tmp_path, NO_LIMIT, cpus)).affinity == affinity


def test_the_smaller_of_both_counts(tmp_path: Path) -> None:
    found = limits.cpu_limit(build(tmp_path, HYBRID, cpus="0-1"))
    assert (found.cpus, found.source) == (2, "affinity")


@pytest.mark.parametrize(("quota", "workers"), [(None, 8), (0.5, 1), (1.0, 1), (1.5, 2), (2.0, 2), (64.0, 8)])
def test_workers_are_rounded_up_and_never_none(quota: Optional[float], workers: int) -> None:
    assert limits.CpuLimit(8, quota, "").workers == workers


@pytest.mark.parametrize(
    ("files", "size", "source"),
    [
        (V1, 2 * GIB, "/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        (V2, 1 * GIB, "/sys/fs/cgroup/memory.max"),
        (HYBRID, 4 * GIB, "/sys/fs/cgroup/memory/pod/memory.limit_in_bytes"),
        (NESTED, 3 * GIB, "/sys/fs/cgroup/kubepods/pod1/memory.max"),
        (BELOW_THE_MOUNT, 5 * GIB, "/sys/fs/cgroup/abc/inner/memory.max"),
        (NO_LIMIT, 16 * GIB, "machine"),
        (NO_CGROUP, 16 * GIB, "machine"),
    ],
    ids=["v1", "v2", "hybrid", "nested", "below the mount", "no limit", "no cgroup"],
)
def test_the_memory_limit_is_found(tmp_path: Path, files: dict[str, str], size: int, source: str) -> None:
    assert limits.memory_limit(build(tmp_path, files)) == limits.MemoryLimit(size, source)


def test_a_limit_above_the_machine_is_the_machine(tmp_path: Path) -> None:
    assert limits.memory_limit(build(tmp_path, V1, gib=1)) == limits.MemoryLimit(GIB, "machine")


def test_another_controllers_group_is_not_taken(tmp_path: Path) -> None:
    files = {**HYBRID, "proc/self/cgroup": "4:memory:/pod/a\n1:cpuset:/pod/a\n"}
    assert limits.cpu_limit(build(tmp_path, files)).quota is None


def test_a_machine_without_proc_is_no_error(tmp_path: Path) -> None:
    root = str(tmp_path)
    assert limits.cpu_limit(root).affinity == (os.cpu_count() or 1)
    assert limits.memory_limit(root) is None
    assert limits.shared_memory(root) is None
    assert limits.open_files(root) == limits.OpenFiles(None, None)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("1024 524288", (1024, 524288)),
        ("unlimited unlimited", (None, None)),
        ("1024 unlimited", (1024, None)),
    ],
)
def test_the_limit_of_open_files(tmp_path: Path, line: str, expected: tuple[Optional[int], Optional[int]]) -> None:
    root = build(tmp_path, {"proc/self/limits": f"Max open files            {line}   files\n"})
    assert limits.open_files(root) == limits.OpenFiles(*expected)


def test_shared_memory_is_that_of_the_mount(tmp_path: Path) -> None:
    (tmp_path / "dev" / "shm").mkdir(parents=True)
    found, seen = limits.shared_memory(str(tmp_path)), os.statvfs(tmp_path)
    assert found
    assert found.total == seen.f_blocks * seen.f_frsize
    assert 0 <= found.free <= found.total


def test_this_machine_can_be_read() -> None:
    memory = limits.memory_limit()
    assert limits.cpu_limit().affinity == len(os.sched_getaffinity(0))
    assert memory and memory.bytes > 2**20
