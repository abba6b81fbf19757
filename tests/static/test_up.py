"""`make up`, `make down`, `make ssh`, `make ssh-config`: what they start, and what they say when they cannot."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from scripts import compose, container, down, keys, names, run, ssh, ui, up, ways_in
from scripts.engine import Engine
from scripts.process import Result
from tests.static.machine import DOCKER, BecameError, FakeMachine, inspected, make_machine

ENGINE = Engine(DOCKER, "docker", "26.1.5")
SSHD = {"name": "sshd", "probe": "banner", "port": 22}
LAB = {"name": "jupyter", "probe": "http", "url": "http://127.0.0.1:8888/api"}
KEY = "ssh-ed25519 AAAAC3Nz"


def services(*rows: Any) -> str:
    return json.dumps({"version": 1, "services": rows})


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeMachine:
    """A machine with Docker, compose and the image, without a GPU; the service comes up at once."""
    fake = make_machine(monkeypatch)
    fake.has_docker()
    for variable in (*container.VALUES, "PUID", "PGID", "SSH_CONNECTION", "SUDO_USER", "SSH_PUBLIC_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(container.code_folder, "__defaults__", (tmp_path / "code",))
    monkeypatch.setattr(compose, "OF_THE_USER", tmp_path / "docker-compose.override.yml")
    for function in (compose.read, compose.assignments, compose.say_line_ends):
        monkeypatch.setattr(function, "__defaults__", (tmp_path / ".env",))
    monkeypatch.setattr(names, "LOGS", tmp_path / "build")
    monkeypatch.setattr(keys, "folder", lambda: tmp_path / ".ssh")
    monkeypatch.setattr(run, "why_taken", lambda bind, port: "")
    monkeypatch.setattr(run, "ensure_image", lambda wanted="": (ENGINE, "pytorch-cuda:v2.7-embedded"))
    monkeypatch.setattr(up, "gpu_options", lambda engine: ([], "running on the CPU"))
    monkeypatch.setattr(up, "identity_options", lambda engine: ["-e", "PUID=1001", "-e", "PGID=1002"])
    monkeypatch.setattr(ways_in, "answers", lambda url: True)
    monkeypatch.setattr(ui, "steps", ui.Steps())
    fake.when(f"{DOCKER} container inspect", Result(1, err="No such container"))
    fake.when(f"{DOCKER} compose version", "2.26.1\n")
    fake.when(f"{DOCKER} compose --file", config())
    fake.when(f"{DOCKER} exec pytorch-cuda /bin/busybox cat /run/pytorch-cuda/services.json", services(LAB))
    fake.when(f"{DOCKER} exec pytorch-cuda /bin/busybox cat /run/pytorch-cuda/token", "abc\n")
    return fake


def config(name: str = "pytorch-cuda", image: str = "pytorch-cuda:v2.7-embedded") -> str:
    """Write what `docker compose config` says."""
    lab = {"image": image, "container_name": name, "labels": {"pytorch-cuda.published": "127.0.0.1:8888:2222"}}
    return json.dumps({"name": "pytorch-cuda", "services": {"lab": lab}, "volumes": {"home": {"name": "p_home"}}})


def comes_up(machine: FakeMachine, *arguments: str) -> str:
    """Let the service come up, run `make up`, and give the command line that started it."""
    seen = compose.command(ENGINE, compose.files(not arguments), "up")

    def answer() -> Result:
        machine.when(f"{DOCKER} container inspect", inspected())
        return Result(0)

    machine.when(" ".join(compose.command(ENGINE, compose.files(False), "up", "--detach")), answer)
    machine.when(" ".join(compose.command(ENGINE, compose.files(True), "up", "--detach")), answer)
    assert up.main() == 0 and seen
    (line,) = [call for call in machine.calls if " up --detach" in call]
    return line


def test_without_a_gpu_the_cpu_file_is_added_and_it_is_said(
    machine: FakeMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"--file {compose.FILE} --file {compose.WITHOUT_GPU} up" in comes_up(machine)
    said = capsys.readouterr().out
    assert "running on the CPU" in said
    assert "Files: docker-compose.yml, docker-compose.cpu.yml. Image: pytorch-cuda:v2.7-embedded" in said
    assert "http://127.0.0.1:8888/lab?token=abc" in said


def test_with_a_gpu_the_first_file_stands_alone(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "gpu_options", lambda engine: (["--gpus", "all"], "with the GPUs"))
    assert f"--file {compose.FILE} up" in comes_up(machine)


def test_a_file_of_the_users_comes_last(machine: FakeMachine) -> None:
    compose.OF_THE_USER.write_text("services: {}\n")
    assert f"--file {compose.WITHOUT_GPU} --file {compose.OF_THE_USER} up" in comes_up(machine)


def test_image_ids_and_keys_are_filled_in(machine: FakeMachine, tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_ed25519.pub").write_text(f"{KEY} me@here\n")
    filled = {"IMAGE": "pytorch-cuda:v2.7-embedded", "PUID": "1001", "PGID": "1002", "SSH_PUBLIC_KEY": f"{KEY} me@here"}
    assert up.fill_in(ENGINE, ()) == filled
    given = {"IMAGE", "PUID", "SSH_PUBLIC_KEY"}
    assert up.fill_in(ENGINE, given) == {}
    assert up.fill_in(ENGINE, {"SSH_PUBLIC_KEY_FILE", "PGID", "IMAGE"}) == {}


def test_called_by_root_no_id_is_filled_in(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "identity_options", lambda engine: [])
    assert up.fill_in(ENGINE, {"IMAGE"}) == {}


def test_a_container_of_make_run_is_not_replaced(machine: FakeMachine) -> None:
    machine.when(f"{DOCKER} container inspect", "\n")
    with pytest.raises(ui.UserError) as error:
        up.main()
    assert "started by make run" in error.value.seen and "NAME=pytorch-cuda-2" in error.value.do


def test_a_taken_port_names_make_up(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "why_taken", lambda bind, port: "taken" if port == 8888 else "")
    with pytest.raises(ui.UserError) as error:
        up.main()
    assert "make up PORT=8889" in error.value.do


def test_windows_line_ends_in_env_are_said(
    machine: FakeMachine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".env").write_bytes(b"JUPYTER_TOKEN=secret\r\nIMAGE=mine\r\n")
    comes_up(machine)
    said = capsys.readouterr().out
    assert "CR LF" in said and "sed -i" in said and "secret" not in said


def test_a_dollar_that_compose_eats_is_an_error_without_the_value(machine: FakeMachine, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("JUPYTER_PASSWORD_HASH=argon2:$argon2id$v\nTZ='a$b'\nMODE=jupyter\n")
    eaten = Result(0, config(), 'level=warning msg="The \\"argon2id\\" variable is not set."')
    machine.when(f"{DOCKER} compose --file", eaten)
    with pytest.raises(ui.UserError) as error:
        up.main()
    assert error.value.code == 64 and error.value.seen.endswith(": JUPYTER_PASSWORD_HASH")
    assert "argon2id" not in str(error.value) and "'...'" in error.value.do


@pytest.mark.parametrize("program", [up, down])
def test_without_compose_it_names_the_package(machine: FakeMachine, program: Any) -> None:
    machine.when(f"{DOCKER} compose version", Result(1, err="docker: 'compose' is not a docker command."))
    with pytest.raises(ui.UserError) as error:
        program.main()
    assert "docker-compose" in error.value.do and "make run" in error.value.do


def test_podman_is_told_to_use_make_run(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compose, "find_engine", lambda: Engine("/usr/bin/podman", "podman"))
    with pytest.raises(ui.UserError) as error:
        up.main()
    assert error.value.do.startswith("make run")


def test_down_keeps_the_volumes_and_says_so(machine: FakeMachine, capsys: pytest.CaptureFixture[str]) -> None:
    assert down.main() == 0
    (line,) = [call for call in machine.calls if call.endswith(" down")]
    assert "--volumes" not in line
    assert "p_home" in capsys.readouterr().out


# ---- make ssh, make ssh-config ----


@pytest.fixture
def with_sshd(machine: FakeMachine) -> FakeMachine:
    machine.when(f"{DOCKER} container inspect", inspected())
    machine.when(f"{DOCKER} exec pytorch-cuda /bin/busybox cat /run/pytorch-cuda/services.json", services(LAB, SSHD))
    machine.when(
        f"{DOCKER} exec pytorch-cuda /bin/busybox cat {ssh.AUTHORIZED}", f'from="10.0.0.1" {KEY} other comment\n'
    )
    machine.when(
        f"{DOCKER} exec pytorch-cuda /bin/busybox sh -c", "ssh-ed25519 HOSTKEY root@1\nssh-rsa HOSTRSA root@1\n"
    )
    machine.when(f"{DOCKER} port pytorch-cuda 22/tcp", "127.0.0.1:2345\n")
    return machine


def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr("sys.argv", ["ssh", "config"])
    assert ssh.main() == 0
    return [line.strip() for line in capsys.readouterr().out.splitlines()]


def test_the_entry_is_taught_by_the_container(
    with_sshd: FakeMachine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_rsa.pub").write_text("ssh-rsa AAAA me\n")
    (tmp_path / ".ssh" / "id_ed25519.pub").write_text(f"{KEY} me\n")
    (tmp_path / ".ssh" / "id_ed25519").write_text("private\n")
    assert printed(capsys, monkeypatch) == [
        "Host pytorch-cuda",
        "HostName 127.0.0.1",
        "Port 2345",
        "User user",
        f"IdentityFile {tmp_path}/.ssh/id_ed25519",
        "HostKeyAlias pytorch-cuda",
    ]


def test_on_a_remote_machine_the_entry_goes_through_it(
    with_sshd: FakeMachine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "10.1.1.9 50000 10.1.1.1 22")
    monkeypatch.setenv("USER", "ann")
    assert {"HostName 127.0.0.1", "ProxyJump ann@10.1.1.1"} <= set(printed(capsys, monkeypatch))
    with_sshd.when(f"{DOCKER} port pytorch-cuda 22/tcp", "0.0.0.0:2345\n[::]:2345\n")
    lines = printed(capsys, monkeypatch)
    assert "HostName 10.1.1.1" in lines and not any("ProxyJump" in line for line in lines)


def test_logging_in_trusts_the_keys_that_the_engine_shows(
    with_sshd: FakeMachine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.argv", ["ssh"])
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(BecameError) as became:
        ssh.main()
    line = " ".join(became.value.command)
    known = tmp_path / "build" / "ssh" / "known_hosts-pytorch-cuda"
    assert line.startswith("ssh ") and line.endswith(" user@127.0.0.1") and "Port=2345" in line
    assert f'UserKnownHostsFile="{known}"' in line and "StrictHostKeyChecking=yes" in line
    assert known.read_text() == "pytorch-cuda ssh-ed25519 HOSTKEY\npytorch-cuda ssh-rsa HOSTRSA\n"


def test_a_build_folder_of_roots_is_told(with_sshd: FakeMachine, tmp_path: Path) -> None:
    (tmp_path / "build").write_text("no folder: nothing can be written below it")
    with pytest.raises(ui.UserError) as error:
        ssh.remember(ENGINE, ssh.Door("pytorch-cuda", "127.0.0.1", 2222))
    assert "chown" in error.value.do


def test_under_host_networking_the_port_is_the_one_inside(with_sshd: FakeMachine) -> None:
    with_sshd.when(f"{DOCKER} port", Result(1, err="no public port"))
    with_sshd.when(f"{DOCKER} container inspect --format", "host\n")
    assert ssh.outside(ENGINE, "pytorch-cuda", 2222) == ("0.0.0.0", 2222)
    with_sshd.when(f"{DOCKER} container inspect --format", "bridge\n")
    with pytest.raises(ui.UserError) as error:
        ssh.outside(ENGINE, "pytorch-cuda", 22)
    assert "make shell" in error.value.do


def test_without_sshd_it_says_what_runs_and_what_it_takes(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["ssh"])
    machine.when(f"{DOCKER} container inspect", inspected())
    with pytest.raises(ui.UserError) as error:
        ssh.main()
    assert error.value.seen == "it runs: jupyter" and "ssh-keygen" in error.value.do


def test_without_an_ssh_command_there_is_make_shell(with_sshd: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["ssh"])
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ui.UserError) as error:
        ssh.main()
    assert "make shell" in error.value.do


def test_a_key_file_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "id_a.pub").write_bytes(b"\xff\xfe")
    (tmp_path / "id_b.pub").write_text(f"{KEY}\n")
    os.mkfifo(tmp_path / "known")
    assert list(keys.found(tmp_path).values()) == [KEY]
