"""`make run`, `make train` and their neighbours: what they start, and what they say when they cannot."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts import base, build, clean, container, logs, names, run, shell, stop, train, ui, ways_in
from scripts.engine import Engine
from scripts.process import Result
from scripts.ways_in import Published
from tests.static.machine import DOCKER, BecameError, FakeMachine, inspected, make_machine

ENGINE = Engine(DOCKER, "docker", "26.1.5")
IMAGE = "pytorch-cuda:v2.7-embedded"
SERVICES = json.dumps({"version": 1, "services": [{"name": "jupyter", "url": "http://127.0.0.1:8888/api"}]})
GONE = Result(1, err="No such container")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeMachine:
    """A machine with Docker, the image, and no container; a started one comes up at once."""
    fake = make_machine(monkeypatch)
    fake.has_docker()
    for variable in (*container.VALUES, *container.FILES, "SSH_CONNECTION", "RUN", "TRAIN_ARGS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(names, "CODE", tmp_path / "code")
    monkeypatch.setattr(container.code_folder, "__defaults__", (tmp_path / "code",))
    monkeypatch.setattr(run, "why_taken", lambda bind, port: "")
    monkeypatch.setattr(ways_in, "answers", lambda url: True)
    monkeypatch.setattr(base, "choose_variant", lambda engine: "embedded")
    monkeypatch.setattr(ui, "steps", ui.Steps())
    for program in (run, train):
        monkeypatch.setattr(program, "gpu_options", lambda engine: ([], "running on the CPU"))
        monkeypatch.setattr(program, "identity_options", lambda engine: ["-e", "PUID=1001"])
    fake.when(f"{DOCKER} image inspect", "sha256:new\n")
    fake.when(f"{DOCKER} container inspect", GONE)

    def comes_up() -> Result:
        fake.when(f"{DOCKER} container inspect", inspected())
        return Result(0, "id\n")

    fake.when(f"{DOCKER} run --detach", comes_up)
    fake.when(f"{DOCKER} start", comes_up)
    fake.when(f"{DOCKER} exec pytorch-cuda /bin/busybox cat /run/pytorch-cuda/services.json", SERVICES)
    fake.when(f"{DOCKER} exec pytorch-cuda /bin/busybox cat /run/pytorch-cuda/token", "abc\n")
    return fake


def started(machine: FakeMachine) -> str:
    """Give the command line that started the container."""
    (line,) = machine.called(f"{DOCKER} run --detach")
    return line


def test_it_starts_a_container_and_prints_the_url(machine: FakeMachine, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main() == 0
    line = started(machine)
    assert "--publish 127.0.0.1:8888:8888 " in line and f"--volume {names.CODE}:/workspace/code " in line
    assert "-e PUID=1001" in line and line.endswith(IMAGE)
    said = capsys.readouterr().out
    assert "http://127.0.0.1:8888/lab?token=abc" in said and "running on the CPU" in said
    assert "start the container" in said.partition("What each step took")[2]
    assert "SSH:" not in said and names.CODE.is_dir()


def test_a_second_run_uses_the_running_container(machine: FakeMachine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.when(f"{DOCKER} container inspect", inspected(published="127.0.0.1:9000:2222"))
    run.main()
    assert not machine.called(f"{DOCKER} run") and not machine.called(f"{DOCKER} start")
    said = capsys.readouterr().out
    assert "http://127.0.0.1:9000/lab?token=abc" in said and "To replace it" not in said


def test_a_running_container_of_another_image_stays_and_it_is_said(
    machine: FakeMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.when(f"{DOCKER} container inspect", inspected(image="sha256:old"))
    run.main()
    assert not machine.called(f"{DOCKER} run")
    assert "another image" in capsys.readouterr().out


def test_a_stopped_container_is_started_again(machine: FakeMachine) -> None:
    machine.when(f"{DOCKER} container inspect", inspected(running=False))
    run.main()
    assert machine.called(f"{DOCKER} start pytorch-cuda") and not machine.called(f"{DOCKER} run")


@pytest.mark.parametrize(
    ("found", "environ"),
    [
        ({"image": "sha256:old"}, {}),
        ({}, {"PORT": "9000"}),
        ({"env": ["MODE=auto"]}, {"MODE": "jupyter"}),
        ({"published": ""}, {}),
    ],
    ids=["new image", "another port", "another setting", "made in another way"],
)
def test_a_stopped_container_that_no_longer_fits_is_kept_under_another_name(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, found: dict[str, Any], environ: dict[str, str]
) -> None:
    machine.when(f"{DOCKER} container inspect", inspected(running=False, **found))
    machine.when(f"{DOCKER} rename", "")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    run.main()
    assert machine.called(f"{DOCKER} rename pytorch-cuda pytorch-cuda-2")
    assert machine.called(f"{DOCKER} run --detach") and not machine.called(f"{DOCKER} rm")


def test_a_missing_image_is_built(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[list[str]] = []
    machine.when(f"{DOCKER} image inspect", Result(1))
    monkeypatch.setattr(build, "build", lambda engine, targets: built.append(targets))
    run.main()
    assert built == [["embedded"]]


def test_an_image_that_was_asked_for_is_not_built(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IMAGE", "mine:1")
    machine.when(f"{DOCKER} image inspect", Result(1))
    with pytest.raises(ui.UserError, match="no image mine:1"):
        run.main()


@pytest.mark.parametrize("value", ["88o8", "0", "65536", "-1", "８８"])
def test_a_bad_port_is_a_mistake(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("PORT", value)
    with pytest.raises(ui.UserError, match="whole number from 1 to 65535") as caught:
        run.main()
    assert caught.value.code == 64 and f"PORT={value}" in caught.value.seen and not machine.calls


def test_a_bad_address_is_a_mistake(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIND", "localhost")
    with pytest.raises(ui.UserError, match="BIND must be"):
        run.main()


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def test_a_taken_port_is_named_with_its_variable(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, taken_port: int
) -> None:
    monkeypatch.undo()
    machine.when(f"{DOCKER} ps --filter publish={taken_port}", "another-container\n")
    monkeypatch.setattr(Engine, "ask", lambda self, *words, timeout=60: machine.capture(self.command(*words)))
    with pytest.raises(ui.UserError, match=f"port {taken_port} of this machine is taken") as caught:
        run.check_ports(ENGINE, Published(port=taken_port))
    assert "another-container" in caught.value.seen and "PORT=" in caught.value.do


def test_a_container_that_ends_during_its_start_shows_why_and_goes(machine: FakeMachine) -> None:
    def ends() -> Result:
        machine.when(f"{DOCKER} container inspect", inspected(running=False, exit_code=64))
        return Result(0, "id\n")

    machine.when(f"{DOCKER} run --detach", ends)
    machine.when(f"{DOCKER} logs", Result(0, "", "start: MODE must be one of ...\n"))
    with pytest.raises(ui.UserError, match="ended during its start") as caught:
        run.main()
    assert "exit code 64" in caught.value.seen and "MODE must be" in caught.value.seen
    assert machine.called(f"{DOCKER} rm pytorch-cuda")


def test_a_container_that_does_not_answer_is_told(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways_in, "answers", lambda url: False)
    monkeypatch.setattr(run, "SECONDS_TO_ANSWER", 0)
    machine.when(f"{DOCKER} logs", "loading\n")
    with pytest.raises(ui.UserError, match="did not answer within"):
        run.main()
    assert not machine.called(f"{DOCKER} rm")


def test_secrets_are_passed_by_name_only(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_TOKEN", "my-secret")
    run.main()
    assert "-e JUPYTER_TOKEN " in started(machine)
    assert not [line for line in machine.calls if "my-secret" in line]


def test_an_empty_token_is_passed_on_for_the_image_to_refuse(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_TOKEN", "")
    run.main()
    assert "-e JUPYTER_TOKEN " in started(machine)


def test_the_hosts_ports_do_not_become_the_images(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_PORT", "2200")
    run.main()
    assert ":2200:22 " in started(machine) and "-e SSH_PORT" not in started(machine)


def test_a_secret_file_is_mounted_read_only(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("t")
    monkeypatch.setenv("JUPYTER_TOKEN_FILE", str(tmp_path / "token"))
    run.main()
    inside = "/run/secrets/jupyter_token_file"
    assert f"--volume {tmp_path}/token:{inside}:ro -e JUPYTER_TOKEN_FILE={inside}" in started(machine)


def test_a_secret_file_that_is_missing_is_a_mistake(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_TOKEN_FILE", "/nowhere/token")
    with pytest.raises(ui.UserError, match="JUPYTER_TOKEN_FILE must name a file"):
        run.main()


def test_on_a_remote_machine_the_tunnel_is_printed(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.9 51000 10.0.0.1 22")
    monkeypatch.setenv("SUDO_USER", "ada")
    run.main()
    assert "ssh -L 8888:127.0.0.1:8888 ada@10.0.0.1" in capsys.readouterr().out


def test_the_ssh_command_is_printed_only_where_sshd_runs(
    machine: FakeMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    both = {"services": [{"name": "jupyter", "url": "https://127.0.0.1:8888/x/api"}, {"name": "sshd", "port": 22}]}
    machine.when(f"{DOCKER} exec pytorch-cuda /bin/busybox cat /run/pytorch-cuda/services.json", json.dumps(both))
    run.main()
    said = capsys.readouterr().out
    assert "ssh -p 2222 user@127.0.0.1" in said and "https://127.0.0.1:8888/x/lab?token=abc" in said


def test_a_given_login_is_not_printed(machine: FakeMachine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.when(f"{DOCKER} exec pytorch-cuda /bin/busybox cat /run/pytorch-cuda/token", Result(1))
    run.main()
    assert "/lab   (log in with the token or password that you gave)" in capsys.readouterr().out


def test_the_code_folder_belongs_to_who_called_sudo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: list[Any] = []
    monkeypatch.setattr(container, "caller", lambda: (1001, 1002))
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(os, "chown", lambda *all: given.append(all))
    container.code_folder(tmp_path / "code")
    container.code_folder(tmp_path / "code")
    assert given == [(tmp_path / "code", 1001, 1002)]


def test_called_by_root_it_says_whose_the_files_will_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(container, "caller", lambda: (0, 0))
    monkeypatch.setattr(Path, "stat", lambda self: os.stat_result((0o40755, 0, 0, 0, 0, 0, 0, 0, 0, 0)))
    container.say_owner(ENGINE, tmp_path)
    assert "uid 1000" in capsys.readouterr().out


def test_train_leaves_its_results_in_code_runs(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUN", "first")
    monkeypatch.setenv("TRAIN_ARGS", "--epochs 3 --note 'two words'")
    with pytest.raises(BecameError) as caught:
        train.main()
    command = caught.value.command
    assert command[:3] == [DOCKER, "run", "--rm"] and "PUID=1001" in command
    after = command[command.index(IMAGE) + 1 :]
    assert after[:5] == ["train", "--data", "fashion-mnist", "--out", "/workspace/code/runs/first"]
    assert after[5:] == ["--epochs", "3", "--note", "two words"]


@pytest.mark.parametrize(("variable", "value"), [("RUN", "../up"), ("RUN", "-x"), ("TRAIN_ARGS", "--note 'open")])
def test_train_refuses_what_it_cannot_read(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ui.UserError) as caught:
        train.main()
    assert caught.value.code == 64 and value in caught.value.seen


def test_a_shell_is_the_users(machine: FakeMachine) -> None:
    machine.when(f"{DOCKER} container inspect", inspected())
    with pytest.raises(BecameError) as caught:
        shell.main()
    assert " ".join(caught.value.command).endswith("--user user --workdir /workspace pytorch-cuda bash")


def test_a_shell_needs_a_running_container(machine: FakeMachine) -> None:
    machine.when(f"{DOCKER} container inspect", inspected(running=False))
    with pytest.raises(ui.UserError, match="no running container") as caught:
        shell.main()
    assert caught.value.do == "make run" and "stopped" in caught.value.seen


def test_stopping_what_does_not_run_is_no_failure(machine: FakeMachine, capsys: pytest.CaptureFixture[str]) -> None:
    assert stop.main() == 0
    assert "Nothing to stop" in capsys.readouterr().out


def test_stop_gives_running_work_time_to_save(machine: FakeMachine) -> None:
    machine.when(f"{DOCKER} container inspect", inspected())
    machine.when(f"{DOCKER} stop", "")
    assert stop.main() == 0
    assert machine.called(f"{DOCKER} stop -t 15 pytorch-cuda")


def test_logs_without_a_container_say_what_to_do(machine: FakeMachine) -> None:
    with pytest.raises(ui.UserError, match="no container to read"):
        logs.main()


def test_clean_keeps_the_users_work(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names.CODE.mkdir()
    for variable in ("VENV", "LOGS"):
        monkeypatch.setattr(names, variable, tmp_path / variable)
        (tmp_path / variable).mkdir()
    machine.when(f"{DOCKER} ps --all --filter label=", "pytorch-cuda\n")
    machine.when(f"{DOCKER} image ls", f"{IMAGE}\n")
    machine.when(f"{DOCKER} container rm", "")
    machine.when(f"{DOCKER} image rm", Result(1, err="image is being used by container x"))
    clean.main()
    said = capsys.readouterr().out
    assert names.CODE.is_dir() and not (tmp_path / "VENV").exists()
    assert "Removed the container pytorch-cuda" in said and "image is being used by container x" in said
    assert not machine.called(f"{DOCKER} volume")
