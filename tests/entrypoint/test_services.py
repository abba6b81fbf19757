"""Preparing the services: what is written where, and what a restart finds."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from entrypoint import jupyter, services, sshd
from entrypoint.command import Plan
from entrypoint.errors import StartError
from entrypoint.identity import Identity
from entrypoint.keys import Keys
from entrypoint.probes import forget_probes
from entrypoint.settings import Settings, used_by
from entrypoint.user import User


@pytest.fixture
def user(tmp_path: Path) -> Any:
    rundir = tmp_path / "run"
    rundir.mkdir(mode=0o755)
    identity = Identity(os.getuid(), os.getgid(), (), "user", str(tmp_path), False, "user")
    return User(identity, rundir, {b"PATH": b"/bin"})


def prepare(user: Any, word: Any = "jupyter", arguments: Any = (), **environ: str) -> Any:
    container = {name.encode(): value.encode() for name, value in environ.items()}
    plan = Plan("services", word, arguments)
    return services.plan_services(plan, Settings.read(container, used_by(word)), user)


def url_line(capfd: pytest.CaptureFixture[str]) -> Any:
    return next(line for line in capfd.readouterr().err.splitlines() if "JupyterLab:" in line)


def test_the_mode_auto_starts_jupyterlab_as_the_user(user: Any) -> None:
    (service,) = prepare(user, "auto")
    assert (service.name, service.cwd, service.identity) == ("jupyter", "/workspace", user.identity)


def test_the_token_is_kept_for_the_user_alone_and_printed_once(user: Any, capfd: pytest.CaptureFixture[str]) -> None:
    prepare(user)
    token = (user.rundir / "token").read_text().strip()
    assert (user.rundir / "token").stat().st_mode & 0o777 == 0o600
    assert url_line(capfd).endswith(f"http://127.0.0.1:8888/lab?token={token}")
    prepare(user)
    second = url_line(capfd)
    assert token not in second
    assert str(user.rundir / "token") in second
    assert (user.rundir / "token").read_text().strip() == token


def test_jupyter_finds_its_login_through_its_environment(user: Any) -> None:
    (service,) = prepare(user, JUPYTER_TOKEN="hunter2")
    config = user.rundir / "jupyter" / "jupyter_server_config.json"
    assert os.fsdecode(service.environ[b"JUPYTER_CONFIG_PATH"]) == str(config.parent)
    assert json.loads(config.read_text())["IdentityProvider"]["token"] == "hunter2"
    assert config.stat().st_mode & 0o777 == 0o600


def test_a_config_path_of_the_users_stays_behind_ours(user: Any) -> None:
    user = User(user.identity, user.rundir, {b"JUPYTER_CONFIG_PATH": b"/mine"})
    (service,) = prepare(user)
    assert service.environ[b"JUPYTER_CONFIG_PATH"] == os.fsencode(user.rundir / "jupyter") + b":/mine"


def test_a_given_token_is_neither_printed_nor_kept_nor_passed_on(user: Any, capfd: pytest.CaptureFixture[str]) -> None:
    (service,) = prepare(user, JUPYTER_TOKEN="hunter2")
    printed = capfd.readouterr()
    assert "hunter2" not in printed.err + printed.out
    assert not (user.rundir / "token").exists()
    assert "hunter2" not in repr(service)


def test_no_login_is_warned_of_at_every_start(user: Any, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        prepare(user, JUPYTER_AUTH="none")
        assert "warning: JUPYTER_AUTH=none" in capfd.readouterr().err


def test_nothing_is_printed_on_stdout(user: Any, capfd: pytest.CaptureFixture[str]) -> None:
    prepare(user)
    assert capfd.readouterr().out == ""


def test_the_health_check_finds_the_service_and_forgets_it(user: Any) -> None:
    prepare(user, JUPYTER_PORT="8889")
    listed = json.loads((user.rundir / "services.json").read_text())
    assert listed == {
        "version": 1,
        "services": [{"name": "jupyter", "probe": "http", "url": "http://127.0.0.1:8889/api"}],
    }
    forget_probes(user.rundir)
    forget_probes(user.rundir)
    assert not (user.rundir / "services.json").exists()


def test_an_unreadable_certificate_stops_the_start(user: Any) -> None:
    with pytest.raises(StartError, match=r"JUPYTER_CERT_FILE: /no/cert\.pem"):
        prepare(user, JUPYTER_CERT_FILE="/no/cert.pem", JUPYTER_KEY_FILE="/no/key.pem")


def test_a_token_file_that_is_damaged_is_replaced(user: Any, capfd: pytest.CaptureFixture[str]) -> None:
    (user.rundir / "token").write_bytes(b"\xff nonsense")
    prepare(user)
    assert "?token=" in url_line(capfd)
    assert len((user.rundir / "token").read_text()) == 49


def test_sudo_that_cannot_be_granted_is_said(user: User, capfd: pytest.CaptureFixture[str]) -> None:
    prepare(user, GRANT_SUDO="1")
    assert "GRANT_SUDO=1 is not used" in capfd.readouterr().err
    prepare(user)
    assert "GRANT_SUDO" not in capfd.readouterr().err


def test_a_part_of_the_home_that_is_someone_elses_is_said_and_jupyter_gets_another_place(
    user: User, capfd: pytest.CaptureFixture[str]
) -> None:
    (Path(user.identity.home) / ".local").write_text("a file where a folder must be")
    (service,) = prepare(user)
    spare = Path(os.fsdecode(service.environ[b"JUPYTER_DATA_DIR"]))
    assert spare.stat().st_mode & 0o777 == 0o700
    spare.rmdir()
    assert ".local/share/jupyter/runtime" in capfd.readouterr().err


def test_an_ordinary_home_holds_jupyters_runtime_files(user: User, capfd: pytest.CaptureFixture[str]) -> None:
    (service,) = prepare(user)
    assert b"JUPYTER_DATA_DIR" not in service.environ
    assert (Path(user.identity.home) / ".local/share/jupyter/runtime").is_dir()
    assert "warning" not in capfd.readouterr().err


@pytest.fixture
def no_sshd(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise StartError("no sshd", "seen", "do")

    monkeypatch.setattr(sshd, "refuse", refuse)


def test_a_key_that_cannot_be_used_is_said_and_jupyterlab_starts(
    user: Any, no_sshd: None, capfd: pytest.CaptureFixture[str]
) -> None:
    (service,) = prepare(user, "auto", SSH_PUBLIC_KEY="ssh-ed25519 AAAA me")
    assert service.name == "jupyter"
    assert "warning: sshd is not started: no sshd (seen). do" in capfd.readouterr().err


def test_without_a_key_one_line_tells_of_ssh_and_jupyter_alone_says_nothing(
    user: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sshd, "read_keys", lambda *_: Keys())
    prepare(user, "auto")
    assert len([line for line in capfd.readouterr().err.splitlines() if "sshd is off" in line]) == 1
    prepare(user, "jupyter")
    assert "ssh" not in capfd.readouterr().err


@pytest.mark.parametrize("mode", ["ssh", "all"])
def test_who_asks_for_ssh_gets_it_or_an_error_before_the_start_hooks(user: Any, no_sshd: None, mode: Any) -> None:
    settings = Settings.read({}, used_by(mode))
    with pytest.raises(StartError, match="no sshd"):
        services.refuse_early(mode, settings, user)
    with pytest.raises(StartError, match="no sshd"):
        prepare(user, mode)
    services.refuse_early("auto", Settings.read({}, used_by("auto")), user)


def test_a_mode_that_is_not_in_the_image_is_refused() -> None:
    with pytest.raises(StartError, match="cannot start the mode 'code'") as caught:
        services.refuse_missing("code")
    assert "v2.7-code" in str(caught.value)
    assert caught.value.code == 64
    services.refuse_missing("ssh")


def test_an_image_without_jupyterlab_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jupyter, "LAB", str(tmp_path / "jupyter-lab"))
    with pytest.raises(StartError, match="jupyter-lab is missing"):
        services.refuse_missing("auto")
    (tmp_path / "jupyter-lab").touch()
    services.refuse_missing("auto")
