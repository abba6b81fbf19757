"""Finding an engine, or getting one, on machines that are made up."""

from __future__ import annotations

import os

import pytest

from scripts import daemon, engine, packages, ui
from scripts.process import Result
from tests.static.machine import DOCKER, FakeMachine, make_machine, server

STATIC_CLIENT = "/usr/local/bin/docker"
NO_DAEMON = Result(1, '{"Client":{},"Server":null}', "Cannot connect to the Docker daemon. Is it running?")
DENIED = Result(1, "{}", "permission denied while trying to connect to the Docker daemon socket")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    return make_machine(monkeypatch)


def test_a_docker_that_answers_is_an_engine(machine: FakeMachine) -> None:
    machine.has_docker()
    found = engine.find_engine(need_build=True)
    assert found == engine.Engine(DOCKER, "docker", "26.1.5", rootless=False)


def test_a_rootless_docker_is_recognised(machine: FakeMachine) -> None:
    machine.has_docker(security='["name=seccomp","name=rootless"]')
    found = engine.find_engine()
    assert found and found.rootless


def test_a_client_without_a_daemon_is_no_engine(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.when(f"{DOCKER} version", NO_DAEMON)
    monkeypatch.setattr(daemon, "program", lambda: None)
    assert engine.look().trouble == "absent"


def test_a_client_without_buildx_is_passed_over_for_one_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = make_machine(monkeypatch, clients=[STATIC_CLIENT, DOCKER])
    machine.has_docker()
    machine.when(f"{STATIC_CLIENT} version", server("26.1.5"))
    found = engine.find_engine(need_build=True)
    assert found and found.program == DOCKER


def test_podmans_imitation_of_docker_is_not_taken_for_docker(machine: FakeMachine) -> None:
    machine.when(f"{DOCKER} version", '{"Client":{"APIVersion":"4.3.1"}} Emulate Docker CLI using podman')
    assert engine.find_engine() is None


def test_podman_runs_but_does_not_build(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    podman = engine.Engine("/usr/bin/podman", "podman", "4.3.1", rootless=True)
    monkeypatch.setattr(engine, "_look_at_podman", lambda: engine.Finding(podman))
    assert engine.find_engine() == podman
    assert engine.find_engine(need_build=True) is None


@pytest.mark.parametrize(("says", "rootless"), [("4.3.1 true", True), ("5.4.2 false", False)])
def test_podman_says_whether_it_is_rootless(monkeypatch: pytest.MonkeyPatch, says: str, rootless: bool) -> None:
    look = engine._look_at_podman
    machine = make_machine(monkeypatch, clients=[])
    monkeypatch.setattr(engine, "_look_at_podman", look)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    machine.when("/usr/bin/podman info", f"{says}\n")
    assert engine.find_engine() == engine.Engine("/usr/bin/podman", "podman", says.split()[0], rootless)


def test_a_stopped_daemon_is_started_by_root(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.when(f"{DOCKER} version", NO_DAEMON)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(daemon, "start", lambda client: machine.has_docker())
    assert engine.ensure_engine(need_build=True).version == "26.1.5"


@pytest.mark.parametrize(("uid", "no_install"), [(1000, ""), (0, "1")])
def test_a_stopped_daemon_is_left_alone_where_that_is_not_allowed(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, uid: int, no_install: str
) -> None:
    machine.when(f"{DOCKER} version", NO_DAEMON)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setenv("NO_INSTALL", no_install)
    monkeypatch.setattr(daemon, "start", lambda client: pytest.fail("started it"))
    with pytest.raises(ui.UserError) as caught:
        engine.ensure_engine()
    assert "daemon does not run" in caught.value.what and "Cannot connect" in caught.value.seen
    assert caught.value.do == daemon.start_command()


def test_no_permission_on_the_socket_names_the_group(machine: FakeMachine) -> None:
    machine.when(f"{DOCKER} version", DENIED)
    with pytest.raises(ui.UserError, match="may not use Docker's socket") as caught:
        engine.ensure_engine()
    assert "usermod -aG docker" in caught.value.do and "permission denied" in caught.value.seen


def test_a_remote_engine_that_is_silent_is_not_replaced(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.when(f"{DOCKER} version", NO_DAEMON)
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.1:2375")
    with pytest.raises(ui.UserError, match="DOCKER_HOST"):
        engine.ensure_engine()


def test_an_old_docker_runs_but_does_not_build(machine: FakeMachine) -> None:
    machine.has_docker(version="20.10.24+dfsg1")
    assert engine.find_engine() is not None
    with pytest.raises(ui.UserError, match="too old") as caught:
        engine.ensure_engine(need_build=True)
    assert "20.10.24" in caught.value.seen


def test_a_bare_machine_gets_docker_installed_and_started(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    there: list[str] = []

    def install(wanted: object, why: str) -> None:
        there.append(DOCKER)
        machine.when(f"{DOCKER} version", NO_DAEMON)

    monkeypatch.setattr(engine, "clients", lambda: there)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(packages, "missing", lambda **what: ["docker.io"])
    monkeypatch.setattr(packages, "install", install)
    monkeypatch.setattr(daemon, "start", lambda client: machine.has_docker())
    assert engine.ensure_engine(need_build=True).program == DOCKER


def test_a_docker_without_buildx_gets_it(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.has_docker(buildx=False)
    monkeypatch.setattr(packages, "missing", lambda **what: ["docker-buildx"])
    monkeypatch.setattr(packages, "install", lambda wanted, why: machine.has_docker())
    assert engine.ensure_engine(need_build=True).kind == "docker"


@pytest.mark.parametrize(
    ("uid", "sudo", "rootless", "expected"),
    [
        (1001, "", False, ["-e", "PUID=1001", "-e", "PGID=1001"]),
        (0, "1001", False, ["-e", "PUID=1001", "-e", "PGID=1001"]),
        (0, "", False, []),
        (0, "0", False, []),
        (1001, "", True, []),
        (1001, "4321", False, ["-e", "PUID=1001", "-e", "PGID=1001"]),
    ],
)
def test_the_caller_is_handed_on_but_never_root_and_not_to_a_rootless_engine(
    monkeypatch: pytest.MonkeyPatch, uid: int, sudo: str, rootless: bool, expected: list[str]
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: uid)
    monkeypatch.setattr(os, "getgid", lambda: uid)
    known = engine.Engine(DOCKER, "docker", rootless=rootless)
    assert engine.identity_options(known, {"SUDO_UID": sudo, "SUDO_GID": sudo} if sudo else {}) == expected


def test_without_a_gpu_it_says_that_it_runs_on_the_cpu(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "has_gpu", lambda: False)
    options, said = engine.gpu_options(engine.Engine(DOCKER, "docker"))
    assert options == [] and "on the CPU" in said


def test_a_gpu_that_the_engine_can_hand_on_is_used(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "has_gpu", lambda: True)
    machine.when(f"{DOCKER} info --format {{{{json .Runtimes", '{"nvidia":{},"runc":{}}')
    assert engine.gpu_options(engine.Engine(DOCKER, "docker"))[0] == ["--gpus", "all"]


def test_a_gpu_without_the_toolkit_is_told_and_not_asked_for(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "has_gpu", lambda: True)
    monkeypatch.setattr("shutil.which", lambda name: None)
    machine.when(f"{DOCKER} info --format {{{{json .Runtimes", '{"runc":{}}')
    options, said = engine.gpu_options(engine.Engine(DOCKER, "docker"))
    assert options == [] and "nvidia-container-toolkit" in said


def test_every_trouble_has_a_remedy() -> None:
    troubles = ("absent", "stopped", "denied", "remote", "no-buildx", "old")
    for trouble in troubles:
        problem = engine.explain(engine.Finding(None, trouble, "what was seen"))
        assert problem.what and problem.do and "{" not in problem.do
