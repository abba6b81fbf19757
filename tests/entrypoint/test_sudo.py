"""GRANT_SUDO: given only on request, and taken back by the next start."""

from __future__ import annotations

from pathlib import Path

import pytest

from entrypoint.identity import Identity
from entrypoint.sudo import render_sudoers, set_up_sudo


def identity(profile: str = "root") -> Identity:
    return Identity(4321, 0, (), "user", "/home/user", True, profile)


def test_nothing_is_granted_without_a_request(tmp_path: Path) -> None:
    set_up_sudo(False, identity(), {}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_was_granted_is_taken_back(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    set_up_sudo(True, identity(), {b"A": b"1"}, tmp_path)
    assert (tmp_path / "sudoers").stat().st_mode & 0o777 == 0o440
    assert (tmp_path / "environment.sudo").read_bytes() == b"A='1'\n"
    set_up_sudo(False, identity(), {}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_it_is_granted_by_uid_and_without_a_password() -> None:
    defaults, rule = render_sudoers(4321, Path("/run/x")).splitlines()
    assert rule == "#4321 ALL=(ALL:ALL) NOPASSWD: ALL"
    assert defaults.startswith("Defaults:#4321 ")
    assert {"!env_reset", "!secure_path"} <= set(defaults.replace(",", "").split())


@pytest.mark.parametrize("profile", ["user", "powerless-root"])
def test_a_start_without_root_says_that_it_grants_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], profile: str
) -> None:
    set_up_sudo(True, identity(profile), {}, tmp_path)
    assert "GRANT_SUDO=1 is not used" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []
