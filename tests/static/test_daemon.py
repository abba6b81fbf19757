"""Starting Docker's daemon by hand and with systemd, with daemons that are made up."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from scripts import daemon, process, ui
from scripts.process import Result
from tests.static.machine import DOCKER, FakeMachine, make_machine


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeMachine:
    fake = make_machine(monkeypatch)
    monkeypatch.setattr(daemon, "LOG", tmp_path / "dockerd.log")
    monkeypatch.setattr(daemon, "SYSTEMD", tmp_path / "no-systemd")
    monkeypatch.setattr(ui, "steps", ui.Steps())
    return fake


def dockerd(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> None:
    """Put a program of this text in the place of dockerd."""
    program = folder / "dockerd"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    monkeypatch.setattr(daemon, "program", lambda: str(program))


def test_by_hand_it_outlives_the_program_that_started_it(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dockerd(monkeypatch, tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 60")

    def answer() -> Result:
        written = (tmp_path / "pid").is_file() and (tmp_path / "pid").read_text().strip()
        return Result(0 if written else 1)

    machine.when(f"{DOCKER} version", answer)
    daemon.start(DOCKER)
    pid = int((tmp_path / "pid").read_text())
    try:
        assert os.getsid(pid) == pid
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_daemon_that_fails_shows_its_last_words(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dockerd(monkeypatch, tmp_path, "echo 'failed to start daemon: Devices cgroup is not mounted'; exit 1")
    machine.when(f"{DOCKER} version", Result(1))
    with pytest.raises(ui.UserError, match="did not answer") as caught:
        daemon.start(DOCKER)
    assert "Devices cgroup is not mounted" in caught.value.seen and str(daemon.LOG) in caught.value.do


def test_a_daemon_that_stays_silent_is_not_left_behind(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dockerd(monkeypatch, tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 60")
    monkeypatch.setattr(daemon, "SECONDS_TO_ANSWER", 0.5)
    machine.when(f"{DOCKER} version", Result(1))
    with pytest.raises(ui.UserError, match="did not answer"):
        daemon.start(DOCKER)
    pid = int((tmp_path / "pid").read_text())
    assert process.wait_until(lambda: _ended(pid), 5)


def _ended(pid: int) -> bool:
    """Tell whether a process has ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_where_systemd_runs_it_starts_the_daemon(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(daemon, "SYSTEMD", tmp_path)
    machine.when("systemctl start docker", "")
    machine.when(f"{DOCKER} version", "26.1.5")
    daemon.start(DOCKER)
    assert machine.called("systemctl start docker")


def test_what_systemd_says_of_a_failure_is_shown(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(daemon, "SYSTEMD", tmp_path)
    machine.when("systemctl start docker", Result(1, err="Job for docker.service failed"))
    machine.when("journalctl", "no space left on device")
    with pytest.raises(ui.UserError, match="did not start") as caught:
        daemon.start(DOCKER)
    assert "Job for docker.service failed" in caught.value.seen and "no space left" in caught.value.seen
