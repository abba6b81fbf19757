"""Ids without a name, folders that cannot be written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from doctor import person
from doctor.runner import Ran
from tests.doctor.patients import answers, fine, patient, trouble, write


@pytest.mark.parametrize("ran", [Ran(1, "12345\n", "id: cannot find name for user ID 12345"), Ran(0, "12345\n")])
def test_a_uid_without_a_name(tmp_path: Path, ran: Ran) -> None:
    """Field report B047."""
    sick = patient(tmp_path, uid=12345, run=answers(ran))
    trouble(person.check_identity(sick), "warn", "uid 12345", "USER, LOGNAME and HOME")


def test_a_user_with_a_name(tmp_path: Path) -> None:
    fine(person.check_identity(patient(tmp_path, uid=1000, run=answers(Ran(0, "user\n")))), "user: uid 1000")


def test_no_home(tmp_path: Path) -> None:
    trouble(person.check_home(patient(tmp_path, home="")), "warn", "HOME is not set", "-e HOME=/tmp")


def test_a_home_that_is_missing(tmp_path: Path) -> None:
    trouble(person.check_home(patient(tmp_path)), "fail", "/home/user: it does not exist", "-v pytorch-home:/home/user")


def test_a_home_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deny(monkeypatch, PermissionError(13, "Permission denied"))
    trouble(person.check_home(patient(tmp_path, uid=1000)), "fail", "permission denied", "chown 1000 /home/user")


def test_a_home_that_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deny(monkeypatch, OSError(30, "Read-only file system"))
    trouble(person.check_home(patient(tmp_path)), "fail", "/home/user: it is read-only", "-v pytorch-home")


def test_a_home_that_works(tmp_path: Path) -> None:
    write(tmp_path, {"/home/user/x": ""})
    fine(person.check_home(patient(tmp_path)), "/home/user is writable")


def test_a_workspace_of_somebody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Field report B044."""
    write(tmp_path, {"/workspace/code/x": ""})
    deny(monkeypatch, PermissionError(13, "Permission denied"))
    found = person.check_workspace(patient(tmp_path, uid=1000))
    trouble(found, "fail", "/workspace: permission denied; you are uid 1000", "PUID=$(id -u)")


def test_a_workspace_that_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"/workspace/x": ""})
    deny(monkeypatch, OSError(30, "Read-only file system"))
    trouble(person.check_workspace(patient(tmp_path)), "warn", "/workspace is read-only", "without :ro")


def test_a_workspace_that_works(tmp_path: Path) -> None:
    write(tmp_path, {"/workspace/code/x": ""})
    fine(person.check_workspace(patient(tmp_path)), "/workspace and /workspace/code")


def deny(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    """No file can be made; the tests may run as root, for whom modes mean nothing."""
    real = os.open

    def refuse(path: str, flags: int, *rest: int, **more: int) -> int:
        if flags & os.O_CREAT:
            raise error
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
