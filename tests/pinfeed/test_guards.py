"""The demand is compared with the machine: lowered with a line, refused with numbers, or left alone."""

from __future__ import annotations

import dataclasses
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from pinfeed import guards
from pinfeed.errors import PinfeedError
from pinfeed.guards import Demand, Room, plan_loader
from tests.pinfeed.support import ROOT, three_parts

MIB = 1 << 20
BATCH = 64 * 3 * 224 * 224 * 4  # the article's: 36.75 MiB
AMPLE = Room(cpus=16, shm=64 << 30, memory=256 << 30, open_files=65536)


def room(**less: int) -> Room:
    return dataclasses.replace(AMPLE, **less)


def test_a_demand_that_fits_is_left_alone() -> None:
    plan = plan_loader(Demand(BATCH, 8), AMPLE)
    assert plan == guards.LoaderPlan(8, 2, True)


def test_the_articles_formula_is_corrected() -> None:
    assert guards.power_of_two(BATCH) == 64 * MIB
    assert guards.pinned_bytes(BATCH, 4) == (2 * 4 + 2) * 64 * MIB
    assert guards.shm_bytes(BATCH, 4) == 2 * 4 * BATCH
    assert [guards.power_of_two(n) for n in (1, 2, 3, 1024, 1025)] == [1, 2, 4, 1024, 2048]
    text = guards.explained(BATCH, 4)
    assert "(2 x 4 + 2) x 64.0 MiB = 640.0 MiB" in text
    assert "2 x 4 x 36.8 MiB = 294.0 MiB" in text


# --- /dev/shm (B001, B002) -----------------------------------------------------------------------


def test_workers_are_lowered_to_what_dockers_64_mb_of_shm_hold() -> None:
    batch = 256 * 3 * 64 * 64  # 3 MiB
    plan = plan_loader(Demand(batch, 16), room(shm=64 * MIB))
    assert guards.shm_bytes(batch, plan.workers, plan.prefetch) <= 64 * MIB
    assert (plan.workers, plan.prefetch) == (10, 2)
    assert len(plan.notes) == 1
    for part in ("/dev/shm has 64.0 MiB free", "96.0 MiB", "10 x 2", "--shm-size=106m"):
        assert part in plan.notes[0]


def test_prefetch_is_lowered_where_that_keeps_a_worker() -> None:
    plan = plan_loader(Demand(BATCH, 4, asked=True), room(shm=64 * MIB))
    assert (plan.workers, plan.prefetch) == (1, 1)


def test_a_batch_larger_than_shm_says_that_fewer_workers_will_not_help() -> None:
    with pytest.raises(PinfeedError, match="fewer workers will not help") as caught:
        plan_loader(Demand(150 * MIB, 1, asked=True), room(shm=64 * MIB))
    assert three_parts(str(caught.value))
    assert caught.value.code == 69
    assert "one batch is 150.0 MiB, /dev/shm has 64.0 MiB free" in caught.value.seen
    assert "--shm-size=330m" in caught.value.do and "--workers 0" in caught.value.do


def test_workers_that_nobody_asked_for_are_dropped_instead() -> None:
    plan = plan_loader(Demand(150 * MIB, 8), room(shm=64 * MIB))
    assert plan.workers == 0
    assert "one batch takes 150.0 MiB" in plan.notes[0]


def test_the_size_recommended_is_enough() -> None:
    batch, workers = 7_654_321, 12
    note = plan_loader(Demand(batch, workers), room(shm=64 * MIB)).notes[0]
    recommended = int(note.partition("--shm-size=")[2].partition("m")[0]) * MIB
    assert plan_loader(Demand(batch, workers), room(shm=recommended)).notes == ()


# --- the other limits ----------------------------------------------------------------------------


def test_workers_follow_the_cpus_that_may_be_used() -> None:
    plan = plan_loader(Demand(MIB, 16), room(cpus=2))
    assert plan.workers == 2 and "2 CPUs" in plan.notes[0]
    assert plan_loader(Demand(MIB, 16, asked=True), room(cpus=2)).workers == 16


def test_workers_follow_the_memory_that_is_left() -> None:
    plan = plan_loader(Demand(MIB, 16), room(memory=2 << 30))
    assert plan.workers == 6 and "2.00 GiB of memory" in plan.notes[0]
    with pytest.raises(PinfeedError, match="larger than the memory") as caught:
        plan_loader(Demand(3 << 30, 0), room(memory=2 << 30))
    assert "--batch-size" in caught.value.do


def test_workers_follow_the_limit_of_open_files() -> None:
    plan = plan_loader(Demand(MIB, 8, tensors=50), room(open_files=400))
    assert plan.workers == 3
    assert "--ulimit nofile=65536:65536" in plan.notes[0]
    with pytest.raises(PinfeedError, match="open files") as caught:
        plan_loader(Demand(MIB, 2, tensors=500, asked=True), room(open_files=256))
    assert "256" in caught.value.seen and "nofile" in caught.value.do


def test_pinning_that_would_take_most_of_the_memory_is_left_out() -> None:
    plan = plan_loader(Demand(600 * MIB, 2), room(memory=8 << 30))
    assert not plan.pin
    assert "6.00 GiB would be pinned" in plan.notes[-1]
    assert plan_loader(Demand(600 * MIB, 2, pin=False), room(memory=8 << 30)).notes == ()


def test_what_is_not_known_limits_nothing() -> None:
    assert plan_loader(Demand(BATCH, 4), Room(cpus=4)) == guards.LoaderPlan(4, 2, True)


def test_each_limit_that_binds_has_a_line_of_its_own() -> None:
    plan = plan_loader(Demand(4 * MIB, 32), room(cpus=8, shm=40 * MIB, open_files=100))
    assert [("CPUs" in n, "/dev/shm" in n, "nofile" in n) for n in plan.notes] == [
        (True, False, False), (False, True, False), (False, False, True),
    ]  # fmt: skip
    assert plan.workers == 3


# --- pinning that fails (B009) -------------------------------------------------------------------


def refusing(pinned: bool) -> str:
    """Fault injection: what CUDA says under WSL2 when no more can be pinned."""
    if pinned:
        raise RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later")
    return "pageable"


def test_pinning_that_fails_falls_back_and_says_that_it_is_host_memory(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "linux").write_text("Linux version 6.1 (debian)")
    assert guards.pinned_or_not(refusing, 512 * MIB, said.append, tmp_path / "linux") == ("pageable", False)
    assert len(said) == 1 and "\n" not in said[0]
    assert "512.0 MiB of pinned HOST memory, not GPU memory" in said[0]
    assert "WSL2" not in said[0]


def test_wsl2_is_named(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "wsl").write_text("Linux version 5.15.90.1-Microsoft-standard-WSL2")
    guards.pinned_or_not(refusing, MIB, said.append, tmp_path / "wsl")
    assert "WSL2" in said[0] and ".wslconfig" in said[0]
    assert not guards.wsl2(tmp_path / "nothing")


def test_pinning_that_works_says_nothing() -> None:
    said: list[str] = []
    assert guards.pinned_or_not(lambda pinned: pinned, MIB, said.append) == (True, True)
    assert said == []


# --- looking and acting --------------------------------------------------------------------------


def test_this_machine_can_be_measured() -> None:
    found = guards.measure()
    assert found.cpus >= 1
    assert found.memory and found.memory > 10 * MIB
    assert found.open_files


def test_the_memory_left_is_that_of_the_container(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    group = tmp_path / "sys/fs/cgroup"
    (proc / "self").mkdir(parents=True)
    group.mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 64000000 kB\nMemAvailable: 32000000 kB\n")
    (proc / "self" / "cgroup").write_text("0::/\n")
    (proc / "self" / "mountinfo").write_text("30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n")
    (proc / "self" / "limits").write_text("Max open files            1024                 524288               files\n")
    (group / "memory.max").write_text(f"{4 << 30}\n")
    (group / "memory.current").write_text(f"{3 << 30}\n")
    (group / "memory.stat").write_text(f"inactive_file {1 << 30}\n")
    (group / "cpu.max").write_text("150000 100000\n")
    found = guards.measure(str(tmp_path))
    assert found.memory == 2 << 30
    assert found.cpus == 2
    assert found.open_files == 1024
    (group / "memory.max").write_text("max\n")
    assert guards.measure(str(tmp_path)).memory == 32_000_000 * 1024


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one() -> None:
    code = "from pinfeed import guards; import resource; guards.raise_open_files();"
    code += "print(resource.getrlimit(resource.RLIMIT_NOFILE))"

    def low() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 200))

    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, preexec_fn=low, capture_output=True, text=True, check=True
    )
    assert shown.stdout == "(200, 200)\n"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (64 * MIB, "64.0 MiB"), (5 << 30, "5.00 GiB")]
)
def test_sizes_are_in_the_units_of_docker(count: int, text: str) -> None:
    assert guards.size(count) == text
