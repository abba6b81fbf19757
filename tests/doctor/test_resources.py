"""Shared memory, limits and disks, on machines that have too little of them."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from doctor import resources
from tests.doctor.patients import GIB, MOUNTINFO, disk, fine, limits, patient, skipped, trouble, write

MIB = 1024**2
V1 = {
    "/proc/self/cgroup": "4:memory:/\n5:pids:/\n2:cpu,cpuacct:/\n",
    "/proc/self/mountinfo": (
        "31 30 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        "32 30 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "33 30 0:28 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
    ),
}
V2 = {
    "/proc/self/cgroup": "0::/\n",
    "/proc/self/mountinfo": "31 30 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
}
HYBRID = {
    "/proc/self/cgroup": "4:memory:/\n5:pids:/\n2:cpu,cpuacct:/\n0::/\n",
    "/proc/self/mountinfo": V1["/proc/self/mountinfo"] + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 none rw\n",
}
KERNEL = {
    "/proc/self/status": "Cpus_allowed_list:\t0-15\n",
    "/proc/meminfo": f"MemTotal:       {64 * 1024 * 1024} kB\n",
}


def memory(version: str, limit: int, used: int, kills: int = 0, cache: int = 0) -> dict[str, str]:
    """The memory files of a cgroup."""
    if version == "v2":
        return {
            **V2,
            "/sys/fs/cgroup/memory.max": str(limit),
            "/sys/fs/cgroup/memory.current": str(used),
            "/sys/fs/cgroup/memory.stat": f"anon 1\ninactive_file {cache}\n",
            "/sys/fs/cgroup/memory.events": f"low 0\noom 1\noom_kill {kills}\n",
        }
    folder = "/sys/fs/cgroup/memory"
    return {
        **(V1 if version == "v1" else HYBRID),
        f"{folder}/memory.limit_in_bytes": str(limit),
        f"{folder}/memory.usage_in_bytes": str(used),
        f"{folder}/memory.stat": f"cache 1\ntotal_inactive_file {cache}\n",
        f"{folder}/memory.oom_control": f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n",
    }


@pytest.mark.parametrize("size", [64 * MIB, 1 * MIB])
def test_little_shared_memory(tmp_path: Path, size: int) -> None:
    """Field reports B001, B066: Docker's default is 64 MiB."""
    found = resources.check_shm(patient(tmp_path, statvfs=disk(size, size)))
    trouble(found, "warn", f"/dev/shm has {size // MIB} MiB", "--shm-size=8g")


def test_no_shared_memory(tmp_path: Path) -> None:
    trouble(resources.check_shm(patient(tmp_path)), "fail", "there is no /dev/shm", "--shm-size")


def test_full_shared_memory(tmp_path: Path) -> None:
    found = resources.check_shm(patient(tmp_path, statvfs=disk(8 * GIB, 100 * MIB)))
    trouble(found, "warn", "100 MiB free", "rm /dev/shm/torch_*")


def test_enough_shared_memory(tmp_path: Path) -> None:
    fine(resources.check_shm(patient(tmp_path, statvfs=disk(8 * GIB, 8 * GIB))), "8 GiB")


def test_locked_memory_matters_with_infiniband(tmp_path: Path) -> None:
    write(tmp_path, {"/dev/infiniband/uverbs0": ""})
    sick = patient(tmp_path, limit=limits(8 * MIB, 8 * MIB))
    trouble(resources.check_memlock(sick), "warn", "locked memory: 8 MiB", "--ulimit memlock=-1")


def test_locked_memory_does_not_matter_elsewhere(tmp_path: Path) -> None:
    fine(resources.check_memlock(patient(tmp_path, limit=limits(64 * 1024, 64 * 1024))), "64 KiB")


def test_unlimited_locked_memory(tmp_path: Path) -> None:
    write(tmp_path, {"/dev/infiniband/uverbs0": ""})
    infinity = resource.RLIM_INFINITY
    fine(resources.check_memlock(patient(tmp_path, limit=limits(infinity, infinity))), "unlimited")


def test_a_hard_limit_of_files_that_is_too_low(tmp_path: Path) -> None:
    """Field report B005: received 0 items of ancdata."""
    trouble(resources.check_open_files(patient(tmp_path, limit=limits(256, 256))), "warn", "256", "--ulimit nofile=")


def test_a_soft_limit_of_files_that_can_be_raised(tmp_path: Path) -> None:
    sick = patient(tmp_path, limit=limits(1024, 524288))
    trouble(resources.check_open_files(sick), "warn", "1024 (may be raised to 524288)", "ulimit -n 65536")


def test_enough_files(tmp_path: Path) -> None:
    fine(resources.check_open_files(patient(tmp_path, limit=limits(65536, resource.RLIM_INFINITY))), "any number")


QUOTAS = {
    "v1": {
        **V1,
        "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000",
        "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
    },
    "v2": {**V2, "/sys/fs/cgroup/cpu.max": "150000 100000"},
    "hybrid": {
        **HYBRID,
        "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000",
        "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
    },
}


@pytest.mark.parametrize("version", QUOTAS)
def test_a_quota_that_torch_does_not_see(tmp_path: Path, version: str) -> None:
    """Field report B020: sixteen threads on one and a half CPUs."""
    write(tmp_path, {**KERNEL, **QUOTAS[version]})
    found = resources.check_cpu(patient(tmp_path))
    trouble(found, "warn", "1.5 CPUs of 16", "export OMP_NUM_THREADS=2")
    assert "torch will start 16 threads" in found.seen


def test_more_threads_asked_for_than_there_are_cpus(tmp_path: Path) -> None:
    write(tmp_path, {**KERNEL, **QUOTAS["v2"]})
    found = resources.check_cpu(patient(tmp_path, {"OMP_NUM_THREADS": "8"}))
    trouble(found, "warn", "start 8 threads by OMP_NUM_THREADS", "OMP_NUM_THREADS=2")


def test_threads_that_fit_the_quota(tmp_path: Path) -> None:
    write(tmp_path, {**KERNEL, **QUOTAS["v2"]})
    fine(resources.check_cpu(patient(tmp_path, {"OMP_NUM_THREADS": "2"})), "1.5 CPUs of 16")


@pytest.mark.parametrize("version", ["v1", "v2", "hybrid"])
def test_processes_that_the_kernel_killed(tmp_path: Path, version: str) -> None:
    write(tmp_path, {**KERNEL, **memory(version, 4 * GIB, GIB, kills=3)})
    trouble(resources.check_memory(patient(tmp_path)), "warn", "killed 3 processes", "--memory=16g")


@pytest.mark.parametrize("version", ["v1", "v2", "hybrid"])
def test_memory_that_is_used_up(tmp_path: Path, version: str) -> None:
    write(tmp_path, {**KERNEL, **memory(version, 4 * GIB, 4 * GIB - MIB)})
    trouble(resources.check_memory(patient(tmp_path)), "warn", "4 GiB (/sys/fs/cgroup/memory", "--memory=16g")


@pytest.mark.parametrize("version", ["v1", "v2", "hybrid"])
def test_the_file_cache_is_not_in_use(tmp_path: Path, version: str) -> None:
    write(tmp_path, {**KERNEL, **memory(version, 4 * GIB, 4 * GIB - MIB, cache=2 * GIB)})
    fine(resources.check_memory(patient(tmp_path)), "2 GiB used")


def test_little_memory(tmp_path: Path) -> None:
    write(tmp_path, {**KERNEL, **memory("v2", GIB, 100 * MIB)})
    trouble(resources.check_memory(patient(tmp_path)), "warn", "1 GiB", "--memory=16g")


def test_a_kernel_that_says_nothing_about_memory(tmp_path: Path) -> None:
    skipped(resources.check_memory(patient(tmp_path)), "the kernel does not say")


@pytest.mark.parametrize(("files", "where"), [(V1, "/sys/fs/cgroup/pids/"), (V2, "/sys/fs/cgroup/")], ids=["v1", "v2"])
@pytest.mark.parametrize(("limit", "used"), [(100, 20), (4096, 4000)])
def test_too_few_processes(tmp_path: Path, files: dict[str, str], where: str, limit: int, used: int) -> None:
    write(tmp_path, {**files, f"{where}pids.max": str(limit), f"{where}pids.current": str(used)})
    found = resources.check_processes(patient(tmp_path))
    trouble(found, "warn", f"{used} of {limit} processes", "--pids-limit=-1")


def test_no_limit_of_processes(tmp_path: Path) -> None:
    write(tmp_path, {**V2, "/sys/fs/cgroup/pids.max": "max"})
    fine(resources.check_processes(patient(tmp_path)))


def test_a_tmp_that_is_noexec(tmp_path: Path) -> None:
    write(tmp_path, {"/proc/self/mountinfo": MOUNTINFO.format(options="noexec"), "/tmp/x": ""})
    trouble(resources.check_tmp(patient(tmp_path)), "warn", "/tmp is mounted noexec", "--tmpfs /tmp:exec")


def test_a_tmp_that_is_missing(tmp_path: Path) -> None:
    found = resources.check_tmp(patient(tmp_path, {"TMPDIR": "/scratch"}))
    trouble(found, "fail", "/scratch: it does not exist", "unset TMPDIR")


def test_a_tmp_that_works(tmp_path: Path) -> None:
    write(tmp_path, {"/proc/self/mountinfo": MOUNTINFO.format(options="nosuid"), "/tmp/x": ""})
    fine(resources.check_tmp(patient(tmp_path)))
    assert os.listdir(tmp_path / "tmp") == ["x"], "the trial left something behind"


def test_a_full_disk(tmp_path: Path) -> None:
    write(tmp_path, {"/workspace/x": ""})
    found = resources.check_disk(patient(tmp_path, statvfs=disk(100 * GIB, 10 * MIB)))
    trouble(found, "fail", "/workspace: 10 MiB free", "docker system df")


def test_a_nearly_full_disk(tmp_path: Path) -> None:
    found = resources.check_disk(patient(tmp_path, statvfs=disk(100 * GIB, 500 * MIB)))
    trouble(found, "warn", "500 MiB free", "docker system df")


def test_a_disk_without_inodes(tmp_path: Path) -> None:
    found = resources.check_disk(patient(tmp_path, statvfs=disk(100 * GIB, 50 * GIB, inodes=3)))
    trouble(found, "fail", "3 inodes free", "docker system df")


def test_a_read_only_disk_is_somebodys_wish(tmp_path: Path) -> None:
    fine(resources.check_disk(patient(tmp_path, statvfs=disk(GIB, 0, flags=os.ST_RDONLY))), "/: read-only")


def test_a_small_tmpfs_is_meant_to_be_small(tmp_path: Path) -> None:
    fine(resources.check_disk(patient(tmp_path, statvfs=disk(512 * MIB, 400 * MIB))))
