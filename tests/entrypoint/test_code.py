"""VS Code in the browser: what is started, who may log in, and what is said."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from entrypoint import code, services
from entrypoint.command import Plan
from entrypoint.errors import StartError
from entrypoint.identity import Identity
from entrypoint.settings import Settings, used_by
from entrypoint.user import User


@pytest.fixture
def user(tmp_path: Path) -> User:
    rundir = tmp_path / "run"
    rundir.mkdir(mode=0o755)
    identity = Identity(os.getuid(), os.getgid(), (), "user", str(tmp_path), False, "user")
    return User(identity, rundir, {b"PATH": b"/bin", b"PASSWORD": b"theirs", b"PORT": b"1"})


def prepare(user: User, **environ: str) -> Any:
    container = {name.encode(): value.encode() for name, value in environ.items()}
    (service,) = services.plan_services(Plan("services", "code"), Settings.read(container, used_by("code")), user)
    return service


def said(capfd: pytest.CaptureFixture[str]) -> str:
    return next(line for line in capfd.readouterr().err.splitlines() if "VS Code:" in line)


def test_the_password_is_made_once_and_printed_once(user: User, capfd: pytest.CaptureFixture[str]) -> None:
    prepare(user)
    token = (user.rundir / "code_token").read_text().strip()
    assert said(capfd).endswith(f"http://127.0.0.1:8080/   password: {token}")
    prepare(user)
    second = said(capfd)
    assert token not in second and str(user.rundir / "code_token") in second
    assert (user.rundir / "code_token").read_text().strip() == token


def test_the_password_stands_in_the_configuration_file_alone(user: User, capfd: pytest.CaptureFixture[str]) -> None:
    service = prepare(user, CODE_TOKEN="hunter2")
    config = user.rundir / "code" / "config.json"
    assert json.loads(config.read_text()) == {"password": "hunter2"}
    assert config.stat().st_mode & 0o777 == 0o600
    assert "hunter2" not in " ".join(service.argv)
    assert "hunter2" not in said(capfd)
    assert not (user.rundir / "code_token").exists()


def test_the_password_may_come_from_a_file(user: User, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from-a-file\n")
    prepare(user, CODE_TOKEN_FILE=str(tmp_path / "secret"))
    assert json.loads((user.rundir / "code" / "config.json").read_text()) == {"password": "from-a-file"}


def test_a_password_variable_of_the_users_does_not_become_the_login(user: User) -> None:
    service = prepare(user)
    assert b"PASSWORD" not in service.environ
    assert service.environ[b"PATH"] == b"/bin"


def test_the_port_wins_over_a_port_variable_and_the_health_check_follows(user: User) -> None:
    service = prepare(user, CODE_PORT="9001")
    assert "--port=9001" in service.argv and "--host=0.0.0.0" in service.argv
    (probe,) = json.loads((user.rundir / "services.json").read_text())["services"]
    assert probe == {"name": "code", "probe": "http", "url": "http://127.0.0.1:9001/healthz"}


def test_an_image_without_it_names_the_variant_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "is_there", lambda: False)
    with pytest.raises(StartError) as error:
        services.refuse_missing("code")
    assert "pytorch-cuda:v2.7-code" in error.value.do
    monkeypatch.setattr(code, "is_there", lambda: True)
    services.refuse_missing("code")
