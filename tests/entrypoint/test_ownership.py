"""The mounted work folder: what is given away, and what is said."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Optional

import pytest

from entrypoint import log, ownership
from entrypoint.identity import Identity
from entrypoint.machine import Machine, Owner

ME = (os.geteuid(), os.getegid())
USER = Identity(4321, 20, (0,), "user", "/home/user", drop=True, profile="root")
SELF = Identity(*ME, groups=(), name="user", home="/home/user", drop=False, profile="user")
CAPS = frozenset({"SETUID", "SETGID"})


class Mount:
    """A folder that looks like a mount of root's, and a record of what was given away."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        self.folder = folder
        self.point: Optional[str] = str(folder)
        self.owner = 0
        self.given: list[tuple[str, int, int]] = []
        real = os.fstat
        patch.setattr(ownership, "mount_point_of", lambda fd: self.point)
        patch.setattr(os, "fstat", lambda fd: _owned(real(fd), self.owner))
        patch.setattr(os, "fchown", self._fchown)

    def _fchown(self, fd: int, uid: int, gid: int) -> None:
        self.given.append((os.readlink(f"/proc/self/fd/{fd}"), uid, gid))


def _owned(seen: os.stat_result, uid: int) -> os.stat_result:
    return os.stat_result((*seen[:4], uid, *seen[5:]))


@pytest.fixture
def mount(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Mount:
    folder = tmp_path / "code"
    folder.mkdir()
    return Mount(monkeypatch, folder)


@pytest.mark.parametrize("owner", [0, 65534])
def test_an_empty_mount_of_roots_is_given_to_the_user(mount: Mount, owner: int) -> None:
    mount.owner = owner
    assert ownership.give_top_folder(str(mount.folder), USER)
    assert mount.given == [(str(mount.folder), 4321, 20)]


@pytest.mark.parametrize("content", ["file", "hidden", "folder"])
def test_a_mount_with_anything_in_it_is_left_alone(mount: Mount, content: str) -> None:
    if content == "folder":
        (mount.folder / "data").mkdir()
    else:
        (mount.folder / (".git" if content == "hidden" else "x")).write_text("")
    assert not ownership.give_top_folder(str(mount.folder), USER)
    assert mount.given == []


@pytest.mark.parametrize("point", [None, "/", "/workspace"])
def test_only_the_mount_itself_is_given(mount: Mount, point: Optional[str]) -> None:
    mount.point = point
    assert not ownership.give_top_folder(str(mount.folder), USER)
    assert mount.given == []


def test_a_mount_of_another_owners_is_left_alone(mount: Mount) -> None:
    mount.owner = 1000
    assert not ownership.give_top_folder(str(mount.folder), USER)
    assert mount.given == []


def test_a_planted_link_gives_nothing_away(mount: Mount, tmp_path: Path) -> None:
    (tmp_path / "sbin").mkdir()
    mount.folder.rmdir()
    mount.folder.symlink_to(tmp_path / "sbin")
    assert not ownership.give_top_folder(str(mount.folder), USER)
    assert mount.given == []


@pytest.mark.parametrize("identity", [SELF, replace(USER, mapped=True)])
def test_who_is_not_real_root_gives_nothing_away(mount: Mount, identity: Identity) -> None:
    assert not ownership.give_top_folder(str(mount.folder), identity)
    assert mount.given == []


def test_a_mount_that_refuses_is_no_error(mount: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    def squashed(*_: int) -> None:
        raise PermissionError(errno.EPERM, "root is nobody there")

    monkeypatch.setattr(os, "fchown", squashed)
    assert not ownership.give_top_folder(str(mount.folder), USER)


def test_a_trial_leaves_nothing_behind(tmp_path: Path) -> None:
    assert ownership.try_writing(str(tmp_path), SELF) is None
    assert os.listdir(tmp_path) == []


def test_a_trial_reports_what_the_kernel_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    problem = ownership.try_writing(str(tmp_path / "file"), SELF)
    assert problem and problem.errno == errno.ENOTDIR
    missing = ownership.try_writing(str(tmp_path / "none"), SELF)
    assert missing and missing.errno == errno.ENOENT


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_trial_is_made_as_the_user() -> None:
    problem = ownership.try_writing("/etc", USER)
    assert problem and problem.errno == errno.EACCES
    assert ownership.try_writing("/tmp", USER) is None


REAL = Machine(0, 0, caps=CAPS)


@pytest.mark.parametrize(
    ("number", "identity", "machine", "remedy"),
    [
        (errno.EROFS, USER, REAL, "without :ro"),
        (errno.ENOSPC, USER, REAL, "Free some space"),
        (errno.EACCES, USER, REAL, "--user 4321:0"),
        (errno.EACCES, USER, replace(REAL, code_owner=Owner(77, 78)), "-e PUID=77 -e PGID=78"),
        (errno.EACCES, USER, replace(REAL, code_owner=Owner(4321, 0)), "chmod u+rwx"),
        (errno.EACCES, USER, replace(REAL, code_owner=Owner(0, 0)), "sudo chown 4321:20"),
        (errno.EACCES, USER, replace(REAL, workspace_owner=Owner(65534, 0)), "sudo chown 4321:20"),
        (errno.EACCES, USER, replace(REAL, rootless=True, code_owner=Owner(0, 0)), "Leave out PUID"),
        (errno.EACCES, USER, replace(REAL, rootless=True, code_owner=Owner(65534, 0)), "chown $(id -u)"),
        (errno.EACCES, SELF, Machine(*ME, code_owner=Owner(ME[0] + 1, 78)), f"--user {ME[0] + 1}:0"),
    ],
)
def test_the_remedy_fits_what_is_wrong(number: int, identity: Identity, machine: Machine, remedy: str) -> None:
    line = ownership.explain("/workspace/code", OSError(number, os.strerror(number)), identity, machine)
    assert remedy in line
    assert os.strerror(number) in line
    assert f"run as {identity.uid}:{identity.gid}" in line
    assert "\n" not in line


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What prepare_workspace does and says, when the trial fails."""
    done: list[str] = []
    denied = PermissionError(errno.EACCES, "Permission denied")

    def give(path: str, identity: Identity) -> bool:
        done.append(f"give {path}")
        return False

    def fail(path: str, identity: Identity) -> OSError:
        done.append(f"try {path}")
        return denied

    monkeypatch.setattr(ownership, "give_top_folder", give)
    monkeypatch.setattr(ownership, "try_writing", fail)
    monkeypatch.setattr(log, "warn", lambda line: done.append(f"warn {line.split(':')[0]}"))
    return done


def test_a_mount_is_given_then_tried_then_warned_of_once(work: list[str]) -> None:
    ownership.prepare_workspace(USER, replace(REAL, code_owner=Owner(0, 0)))
    code = "/workspace/code"
    assert work == [f"give {code}", f"try {code}", f"warn cannot write in {code} (Permission denied)"]


def test_a_workspace_that_is_no_mount_is_never_given(work: list[str]) -> None:
    ownership.prepare_workspace(USER, REAL)
    assert work == ["try /workspace", "warn cannot write in /workspace (Permission denied)"]


def test_a_gift_is_said_and_a_writable_folder_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(ownership, "try_writing", lambda path, identity: None)
    monkeypatch.setattr(log, "_write", said.append)
    for gift in (True, False):
        monkeypatch.setattr(ownership, "give_top_folder", lambda path, identity, gift=gift: gift)
        ownership.prepare_workspace(USER, replace(REAL, code_owner=Owner(0, 0)))
    assert said == ["pytorch-cuda: /workspace/code was empty and root's: it belongs to 4321:20 now\n"]
