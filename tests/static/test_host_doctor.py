"""`make doctor`: each fault of a machine, made up, with its status and its remedy."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import socket
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from doctor import runner
from doctor.findings import Finding
from doctor.runner import Ran
from scripts import engine, host_doctor, listeners
from scripts.process import Result
from tests.static.machine import DOCKER, FakeMachine, make_machine

NVRM = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Fri Aug 16 21:39:15 UTC 2024\n"
INSPECT = f"{DOCKER} container inspect --format {{{{json .State}}}}"
GIB = 1024**3


class Usage(NamedTuple):
    """What shutil.disk_usage gives."""

    total: int
    used: int
    free: int


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeMachine:
    fake = make_machine(monkeypatch)
    fake.has_docker()
    for name in ("PROC", "SYS", "DEV"):
        monkeypatch.setattr(host_doctor, name, tmp_path / name.lower())
    monkeypatch.setattr(engine, "has_gpu", lambda: (tmp_path / "proc/driver/nvidia/version").exists())
    return fake


def found(name: str) -> Finding:
    return next(one for one in host_doctor.examine() if one.name == name)


def trouble(finding: Finding, status: str, seen: str, remedy: str) -> None:
    assert (finding.status, seen in finding.seen, remedy in finding.remedy) == (status, True, True), finding
    assert finding.why, finding


def driver(tmp_path: Path, version: str = "560.35.03") -> None:
    path = tmp_path / "proc/driver/nvidia/version"
    path.parent.mkdir(parents=True)
    path.write_text(NVRM.format(version))


def card(tmp_path: Path) -> None:
    folder = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
    folder.mkdir(parents=True)
    (folder / "vendor").write_text("0x10de\n")
    (folder / "class").write_text("0x030000\n")


def smi(monkeypatch: pytest.MonkeyPatch, ran: Ran) -> None:
    monkeypatch.setattr(runner, "run", lambda *_: ran)


def test_a_machine_without_a_gpu_and_without_faults(machine: FakeMachine) -> None:
    assert not [one for one in host_doctor.examine() if one.status in ("fail", "warn") and one.name != "disk"]
    assert found("gpu").status == "skip"


def test_another_processor(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    trouble(found("machine"), "warn", "arm64", "x86-64")


def test_no_engine(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "clients", list)
    trouble(found("engine"), "fail", "no container engine answers", "install Docker")
    assert found("container").status == found("image").status == "skip"


def test_a_socket_that_this_user_may_not_use(machine: FakeMachine) -> None:
    machine.when(f"{DOCKER} version", Result(1, err="permission denied while trying to connect to the socket"))
    trouble(found("engine"), "fail", "may not use Docker's socket", "usermod -aG docker")


def test_a_daemon_that_does_not_run(machine: FakeMachine) -> None:
    machine.when(f"{DOCKER} version", Result(1, err="Cannot connect to the Docker daemon. Is it running?"))
    trouble(found("engine"), "fail", "its daemon does not run", "docker")


def test_a_docker_that_cannot_build(machine: FakeMachine) -> None:
    machine.has_docker(buildx=False)
    trouble(found("build"), "warn", "buildx plugin is missing", "docker-buildx")
    assert found("engine").status == "ok"


@pytest.mark.parametrize(
    ("state", "seen", "remedy"),
    [
        ({"Running": False, "ExitCode": 1}, "ended with exit code 1", "make logs"),
        ({"Running": False, "ExitCode": 137, "OOMKilled": True}, "killed for want of memory", "--memory"),
        ({"Running": True, "ExitCode": 0, "Health": {"Status": "unhealthy"}}, "is unhealthy", "make logs"),
    ],
)
def test_a_container_that_is_not_well(machine: FakeMachine, state: dict[str, object], seen: str, remedy: str) -> None:
    machine.when(INSPECT, json.dumps(state))
    trouble(found("container"), "fail", seen, remedy)


@pytest.mark.parametrize("code", [0, 130, 143])
def test_a_container_that_was_stopped_is_well(machine: FakeMachine, code: int) -> None:
    machine.when(INSPECT, json.dumps({"Running": False, "ExitCode": code}))
    assert found("container").status == "ok"


def test_a_card_without_a_driver(machine: FakeMachine, tmp_path: Path) -> None:
    card(tmp_path)
    trouble(found("gpu"), "fail", "no NVIDIA driver is loaded", "install the NVIDIA driver")


def test_a_hung_nvidia_smi(machine: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver(tmp_path)
    smi(monkeypatch, Ran(-9, timed_out=True))
    trouble(found("gpu"), "fail", "nvidia-smi gave no answer in 10 s", "dmesg")


def test_a_driver_of_two_versions(machine: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver(tmp_path)
    smi(monkeypatch, Ran(18, "Failed to initialize NVML: Driver/library version mismatch\n"))
    trouble(found("gpu"), "fail", "version mismatch", "reboot")


def test_a_gpu_that_works(machine: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver(tmp_path)
    smi(monkeypatch, Ran(0, "GPU 0: NVIDIA H200 (UUID: GPU-123)\n"))
    assert (found("gpu").status, found("gpu").seen) == ("ok", "GPU 0: NVIDIA H200")


@pytest.mark.parametrize("version", ["470.256.02", "525.60.11"])
def test_a_driver_that_is_too_old(
    machine: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Field report B055: the container does not start, and says `unsatisfied condition`."""
    driver(tmp_path, version)
    smi(monkeypatch, Ran(0, "GPU 0: x\n"))
    trouble(found("driver"), "fail", version, "525.60.13 or later")


def test_a_driver_that_will_do(machine: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver(tmp_path, "525.60.13")
    smi(monkeypatch, Ran(0, "GPU 0: x\n"))
    assert found("driver").status == "ok"


def test_an_engine_that_cannot_hand_a_gpu_over(
    machine: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Field report B065."""
    driver(tmp_path)
    smi(monkeypatch, Ran(0, "GPU 0: x\n"))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    trouble(found("gpu-in-containers"), "fail", "cannot hand it to a container", "nvidia-ctk runtime configure")


def test_an_engine_that_hands_gpus_over(machine: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver(tmp_path)
    smi(monkeypatch, Ran(0, "GPU 0: x\n"))
    machine.when(f"{DOCKER} info --format {{{{json .Runtimes}}}}", '{"nvidia": {}}')
    assert (found("gpu-in-containers").status, found("gpu-in-containers").seen) == ("ok", "--gpus all")


def test_a_port_that_a_program_has(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        monkeypatch.setattr(host_doctor, "PROC", Path("/proc"))
        monkeypatch.setenv("PORT", str(port))
        name = Path("/proc/self/comm").read_text().strip()
        finding = found("port-8888")
        trouble(finding, "warn", f"{port} is taken by {name} (pid {os.getpid()})", f"PORT={port + 1}")


def test_a_port_that_a_container_has(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "holder", lambda *_: "docker-proxy (pid 1)")
    machine.when(f"{DOCKER} ps --filter publish=8888", "other\n")
    trouble(found("port-8888"), "warn", "8888 is taken by the container other", "make run PORT=8889")


def test_a_port_that_our_container_has_is_well(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "holder", lambda *_: "docker-proxy (pid 1)")
    machine.when(f"{DOCKER} ps --filter publish=", "pytorch-cuda\n")
    assert found("port-8888").status == found("port-2222").status == "ok"


def test_a_port_that_is_none(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_PORT", "22a")
    trouble(found("port-2222"), "fail", "SSH_PORT=22a", "SSH_PORT=2222")


@pytest.mark.parametrize(("free", "status"), [(1, "fail"), (10, "warn"), (100, "ok")])
def test_room_for_images(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, free: int, status: str) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, free * GIB))
    finding = found("disk")
    assert finding.status == status and f"{free} GiB free" in finding.seen
    assert bool(re.search("prune", finding.remedy)) == (status != "ok")


def test_a_secret_of_the_callers_is_not_shown(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUPYTER_TOKEN", "geheim-123")
    monkeypatch.setenv("NAME", "geheim-123")
    monkeypatch.setattr(sys, "argv", ["doctor", "--json"])
    host_doctor.main()
    told = capsys.readouterr().out
    assert "geheim" not in told and json.loads(told)["version"] == 1


def test_the_running_container_is_asked_too(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.static.machine import inspected

    machine.when(f"{DOCKER} container inspect pytorch-cuda", inspected())
    machine.when(f"{DOCKER} exec pytorch-cuda doctor", Result(1, "fail  shm   there is no /dev/shm\n"))
    monkeypatch.setattr(sys, "argv", ["doctor"])
    assert host_doctor.main() == 1
    assert "in the container pytorch-cuda\nfail  shm" in capsys.readouterr().out
