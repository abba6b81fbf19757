"""The .venv is made once for a lock, and again for another."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts import names, packages, process, ui, venv
from scripts.process import Result
from tests.static.machine import FakeMachine, make_machine


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeMachine:
    fake = make_machine(monkeypatch)
    folder = tmp_path / ".venv"
    monkeypatch.setattr(names, "VENV", folder)
    monkeypatch.setattr(venv, "PYTHON", folder / "bin" / "python")
    monkeypatch.setattr(venv, "MARK", folder / "made-from")
    monkeypatch.setattr(venv, "LOCK", tmp_path / "dev.lock")
    (tmp_path / "dev.lock").write_text("pytest==1 --hash=sha256:1\n")
    monkeypatch.setattr(packages, "has_venv", lambda: True)
    monkeypatch.setattr(ui, "steps", ui.Steps())

    def make() -> Result:
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").write_text("")
        return Result(0)

    fake.when(f"{sys.executable} -m venv", make)
    fake.when(f"{folder}/bin/python -m pip install", "")
    return fake


def installs(machine: FakeMachine) -> int:
    return len([line for line in machine.calls if " pip install " in line])


def test_it_is_made_once_for_a_lock_and_again_for_another(machine: FakeMachine) -> None:
    venv.ensure_venv()
    venv.ensure_venv()
    assert installs(machine) == 1
    venv.LOCK.write_text("pytest==2 --hash=sha256:2\n")
    venv.ensure_venv()
    assert installs(machine) == 2


def test_only_locked_files_get_in(machine: FakeMachine) -> None:
    venv.ensure_venv()
    assert "--require-hashes" in machine.calls[-1]


def test_another_python_makes_it_again(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    venv.ensure_venv()
    monkeypatch.setattr("platform.python_version", lambda: "3.99.0")
    venv.ensure_venv()
    assert installs(machine) == 2


def test_an_unreachable_index_is_told_and_half_a_venv_is_not_kept_for_whole(machine: FakeMachine) -> None:
    machine.when(f"{venv.PYTHON} -m pip install", Result(1, "ERROR: Could not find a version (from versions: none)"))
    with pytest.raises(ui.UserError, match="Python package index") as caught:
        venv.ensure_venv()
    assert "Could not find a version" in caught.value.seen and not venv.MARK.exists()


def test_a_missing_venv_module_is_installed(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(packages, "has_venv", lambda: False)
    monkeypatch.setattr(packages, "missing", lambda: ["python3.11-venv"])
    monkeypatch.setattr(packages, "install", lambda wanted, why: asked.append(why))
    venv.ensure_venv()
    assert "virtual environments" in asked[0]


def test_pip_trusts_what_ssl_cert_file_trusts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_CERT", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", "/ca.crt")
    assert venv._environ()["PIP_CERT"] == "/ca.crt"


def test_with_arguments_its_python_runs(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(process, "become", commands.append)
    monkeypatch.setattr("sys.argv", ["venv", "-m", "scripts.lint"])
    venv.main()
    assert commands == [[str(venv.PYTHON), "-m", "scripts.lint"]]
