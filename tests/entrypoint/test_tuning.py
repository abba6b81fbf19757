"""Thread pools that fit the quota, open files, and the lines about real problems."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from doctor import start
from doctor.patient import Patient
from entrypoint import tuning

V2 = {
    "proc/self/cgroup": "0::/\n",
    "proc/self/mountinfo": "31 30 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
    "proc/self/status": "Cpus_allowed_list:\t0-15\n",
    "proc/meminfo": "MemTotal: 67108864 kB\n",
}


def machine(root: Path, **files: str) -> str:
    for name, text in {**V2, **{name.replace("__", "/"): text for name, text in files.items()}}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


QUOTA = {"sys/fs/cgroup/cpu.max": "150000 100000\n"}


def test_pools_fit_the_quota(tmp_path: Path) -> None:
    assert tuning.thread_pools({}, machine(tmp_path, **QUOTA)) == {
        "OMP_NUM_THREADS": "2",
        "TORCHINDUCTOR_COMPILE_THREADS": "2",
    }


def test_what_the_user_set_stays(tmp_path: Path) -> None:
    given = {b"OMP_NUM_THREADS": b"7"}
    assert tuning.thread_pools(given, machine(tmp_path, **QUOTA)) == {"TORCHINDUCTOR_COMPILE_THREADS": "2"}


@pytest.mark.parametrize("quota", ["max 100000\n", "9900000 100000\n"])
def test_without_a_quota_nothing_is_set(tmp_path: Path, quota: str) -> None:
    """Nor with one that is wider than the CPUs that may be used (--cpuset-cpus): libraries see those themselves."""
    assert tuning.thread_pools({}, machine(tmp_path, **{"sys/fs/cgroup/cpu.max": quota})) == {}


@pytest.fixture
def open_files() -> Iterator[tuple[int, int]]:
    """The limits of this process, put back in the end."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_soft_limit_of_open_files_is_raised(open_files: tuple[int, int]) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, open_files[1]))
    tuning.raise_open_files()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard == open_files[1]
    assert soft == (tuning.ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(hard, tuning.ENOUGH_FILES))


def test_a_soft_limit_that_is_high_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (10**6, 10**6))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: pytest.fail("it was changed"))
    tuning.raise_open_files()


class Disk:
    """statvfs of one size for all."""

    f_bsize = f_frsize = 4096
    f_files = f_ffree = f_favail = 10**6
    f_flag = 0

    def __init__(self, size: int) -> None:
        self.f_blocks = self.f_bfree = self.f_bavail = size // 4096


def patient(root: Path, shm: int, **environ: str) -> Patient:
    return Patient(
        environ=environ,
        root=machine(root),
        home="/home/user",
        statvfs=lambda path: Disk(shm if str(path).endswith("/dev/shm") else 2**40),  # type: ignore[arg-type,return-value]
        limit=lambda _: (65536, 65536),
    )


def test_nothing_is_said_when_all_is_well(tmp_path: Path) -> None:
    assert start.problems_of({}, patient(tmp_path, 8 << 30)) == []


def test_little_shared_memory_is_one_line(tmp_path: Path) -> None:
    (line,) = start.problems_of({}, patient(tmp_path, 64 << 20))
    assert line.startswith("/dev/shm has 64 MiB") and "--shm-size=8g" in line and "\n" not in line


def test_gpus_that_were_forgotten_are_one_line(tmp_path: Path) -> None:
    sick = patient(tmp_path, 8 << 30)
    machine(tmp_path, **{"proc/driver/nvidia/version": "NVRM version: x\n"})
    (line,) = start.problems_of({}, sick)
    assert "started without its GPUs" in line and "--gpus all" in line


def test_who_wants_no_gpu_is_not_reminded(tmp_path: Path) -> None:
    sick = patient(tmp_path, 8 << 30, NVIDIA_VISIBLE_DEVICES="void")
    machine(tmp_path, **{"proc/driver/nvidia/version": "NVRM version: x\n"})
    assert start.problems_of({}, sick) == []
