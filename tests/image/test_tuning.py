"""Programs fit the container: thread pools the CPU quota, open files the hard limit; a real problem is one line."""

from __future__ import annotations

import re

import pytest

from tests.support.containers import Containers
from tests.support.lab import Lab

POOLS = "env | grep -E '^(OMP_NUM_THREADS|TORCHINDUCTOR_COMPILE_THREADS)=' | sort"
PUBLISH = ("--publish", "127.0.0.1::8888")


@pytest.mark.parametrize(
    ("options", "pools"),
    [
        ((), []),
        (("--cpus", "1.5"), ["OMP_NUM_THREADS=2", "TORCHINDUCTOR_COMPILE_THREADS=2"]),
        (("--cpus", "0.5"), ["OMP_NUM_THREADS=1", "TORCHINDUCTOR_COMPILE_THREADS=1"]),
        (("--cpus", "0.5", "--env", "OMP_NUM_THREADS=3"), ["OMP_NUM_THREADS=3", "TORCHINDUCTOR_COMPILE_THREADS=1"]),
        (("--cpuset-cpus", "0"), []),
    ],
)
def test_thread_pools_follow_the_quota(
    containers: Containers, thin: str, options: tuple[str, ...], pools: list[str]
) -> None:
    """Field reports B013, B020. A set of CPUs the libraries see themselves."""
    assert containers.run(thin, "sh", "-c", f"{POOLS}; true", options=options).ok().out.split() == pools


@pytest.mark.parametrize(
    ("limit", "seen"), [("1024:4096", "4096"), ("1024:20000", "20000"), ("256:256", "256"), ("9000:9000", "9000")]
)
def test_the_soft_limit_of_open_files_is_raised(containers: Containers, thin: str, limit: str, seen: str) -> None:
    done = containers.run(thin, "sh", "-c", "ulimit -Sn; ulimit -Hn", options=["--ulimit", f"nofile={limit}"]).ok()
    assert done.out.split() == [seen, limit.split(":")[1]]
    assert done.err == ""


def test_little_shared_memory_is_said_once_and_is_never_fatal(containers: Containers, image: str) -> None:
    """Field report B001."""
    container = containers.start(image, options=[*PUBLISH, "--env", "NVIDIA_VISIBLE_DEVICES=void"])
    Lab.of(container)
    lines = [line for line in container.log().splitlines() if "/dev/shm" in line]
    assert len(lines) == 1, container.log()
    assert re.match(r"pytorch-cuda: /dev/shm has 64 MiB, .*--shm-size=8g", lines[0])


def test_nothing_is_said_when_all_is_well(containers: Containers, image: str) -> None:
    options = [*PUBLISH, "--env", "NVIDIA_VISIBLE_DEVICES=void", "--shm-size", "2g"]
    container = containers.start(image, options=options)
    Lab.of(container)
    assert "doctor says more" not in container.log()


def test_a_command_is_not_bothered(containers: Containers, thin: str) -> None:
    assert containers.run(thin, "true").ok().err == ""
