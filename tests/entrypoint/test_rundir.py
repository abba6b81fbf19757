"""The run directory, and writing into it."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from entrypoint import privileges, rundir
from entrypoint.errors import StartError
from entrypoint.identity import Identity

ME = (os.geteuid(), os.getegid())
PLAIN = Identity(*ME, groups=(), name="user", home="/home/user", drop=False, profile="user")
ROOT = replace(PLAIN, uid=4321, gid=4321, drop=True, profile="root")


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("run", "tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(rundir, "RUN", tmp_path / "run")
    monkeypatch.setattr(rundir, "TMP", tmp_path / "tmp")
    return tmp_path


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("profile", ["root", "powerless-root", "rootless-root"])
def test_root_of_any_kind_uses_run(elsewhere: Path, profile: str) -> None:
    made = rundir.make_rundir(replace(ROOT, profile=profile))
    assert made == elsewhere / "run" / "pytorch-cuda"
    assert mode_of(made) == 0o755


def test_a_user_has_a_private_one_in_tmp(elsewhere: Path) -> None:
    made = rundir.make_rundir(PLAIN)
    assert made == elsewhere / "tmp" / f"pytorch-cuda-{ME[0]}"
    assert mode_of(made) == 0o700


def test_a_restart_takes_it_as_it_was(elsewhere: Path) -> None:
    made = rundir.make_rundir(PLAIN)
    (made / "token").write_text("kept")
    made.chmod(0o755)
    assert (rundir.make_rundir(PLAIN) / "token").read_text() == "kept"
    assert mode_of(made) == 0o700


def test_the_mode_does_not_depend_on_the_umask() -> None:
    before = os.umask(0o077)
    try:
        assert mode_of(rundir.make_rundir(ROOT)) == 0o755
    finally:
        os.umask(before)


@pytest.mark.parametrize("trap", ["link", "dangling link", "file", "open to all"])
def test_a_name_that_someone_made_before_is_refused(elsewhere: Path, trap: str) -> None:
    path = elsewhere / "tmp" / f"pytorch-cuda-{ME[0]}"
    target = elsewhere / "target"
    if trap == "link":
        target.mkdir()
        path.symlink_to(target)
    elif trap == "dangling link":
        path.symlink_to(target)
    elif trap == "file":
        path.write_text("")
    else:
        path.mkdir()
        path.chmod(0o777)
    with pytest.raises(StartError) as stop:
        rundir.make_rundir(PLAIN)
    assert str(path) in stop.value.what and f"remove {path}" in stop.value.do
    assert not target.exists() or not os.listdir(target)


def test_a_folder_of_somebody_elses_is_refused(monkeypatch: pytest.MonkeyPatch, elsewhere: Path) -> None:
    rundir.make_rundir(PLAIN)
    monkeypatch.setattr(os, "geteuid", lambda: ME[0] + 1)
    with pytest.raises(StartError, match="belongs to uid"):
        rundir.make_rundir(PLAIN)


@pytest.mark.parametrize(("identity", "option"), [(ROOT, "--tmpfs /run"), (PLAIN, "--tmpfs /tmp")])
def test_a_read_only_container_is_told_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, identity: Identity, option: str
) -> None:
    def read_only(path: Any, mode: int = 0) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(os, "mkdir", read_only)
    with pytest.raises(StartError) as stop:
        rundir.make_rundir(identity)
    assert option in stop.value.do
    assert "Read-only" in stop.value.seen


def test_a_file_is_written_with_its_mode_and_replaces_the_old_one(elsewhere: Path) -> None:
    path = elsewhere / "run" / "token"
    rundir.write_file(path, b"old", 0o644)
    rundir.write_file(path, b"new", 0o600)
    assert path.read_bytes() == b"new"
    assert mode_of(path) == 0o600
    assert os.listdir(path.parent) == ["token"]


def test_a_link_in_the_files_place_is_replaced_not_followed(elsewhere: Path) -> None:
    target = elsewhere / "shadow"
    target.write_text("root's")
    path = elsewhere / "run" / "token"
    path.symlink_to(target)
    rundir.write_file(path, b"new", 0o600)
    assert target.read_text() == "root's"
    assert not path.is_symlink()


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_a_folder_that_others_may_write_is_refused(elsewhere: Path, mode: int) -> None:
    folder = elsewhere / "run"
    folder.chmod(mode)
    with pytest.raises(PermissionError, match="others may change"):
        rundir.write_file(folder / "token", b"x", 0o600)
    assert not os.listdir(folder)


def test_a_folder_that_is_a_link_is_refused(elsewhere: Path) -> None:
    (elsewhere / "link").symlink_to(elsewhere / "run")
    with pytest.raises(OSError):
        rundir.write_file(elsewhere / "link" / "token", b"x", 0o600)
    assert not os.listdir(elsewhere / "run")


def test_a_full_disk_leaves_the_old_file_and_no_scrap(monkeypatch: pytest.MonkeyPatch, elsewhere: Path) -> None:
    path = elsewhere / "run" / "token"
    rundir.write_file(path, b"old", 0o600)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fchmod", full)
    with pytest.raises(OSError, match="No space"):
        rundir.write_file(path, b"new", 0o600)
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == ["token"]


def test_the_file_is_given_before_it_has_contents(monkeypatch: pytest.MonkeyPatch, elsewhere: Path) -> None:
    sizes: list[tuple[int, int, int]] = []
    monkeypatch.setattr(os, "fchown", lambda fd, uid, gid: sizes.append((os.fstat(fd).st_size, uid, gid)))
    rundir.write_file(elsewhere / "run" / "token", b"secret", 0o600, 4321, 20)
    assert sizes == [(0, 4321, 20)]


def test_root_that_may_not_chown_lets_the_user_write(monkeypatch: pytest.MonkeyPatch, elsewhere: Path) -> None:
    became: list[tuple[int, int]] = []

    def refuse(fd: int, uid: int, gid: int) -> None:
        if not became:
            raise PermissionError(errno.EPERM, "no CAP_CHOWN")

    def run_as(identity: Identity, function: Any) -> Any:
        became.append((identity.uid, identity.gid))
        return function()

    monkeypatch.setattr(os, "fchown", refuse)
    monkeypatch.setattr(rundir, "run_as", run_as)
    path = elsewhere / "run" / "token"
    rundir.write_file(path, b"secret", 0o600, 4321, 20)
    assert became == [(4321, 20)]
    assert (path.read_bytes(), mode_of(path)) == (b"secret", 0o600)
    assert os.listdir(path.parent) == ["token"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take a capability away from itself")
@pytest.mark.parametrize("gid", [4321, 0])
def test_without_the_capability_the_file_is_the_users_all_the_same(elsewhere: Path, gid: int) -> None:
    path = elsewhere / "run" / "token"
    answer = privileges.run_as(replace(PLAIN, drop=True), lambda: _write_without_chown(path, gid))
    assert answer == "written"
    assert (path.stat().st_uid, path.stat().st_gid, mode_of(path)) == (4321, gid, 0o600)
    assert os.listdir(path.parent) == ["token"]


def _write_without_chown(path: Path, gid: int) -> str:
    import ctypes

    # capset: all but CHOWN, DAC_OVERRIDE and FOWNER, so that root has what `ssh` asks for and no more
    keep = 1 << 6 | 1 << 7
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)(keep, keep, 0, 0, 0, 0)
    assert ctypes.CDLL(None).capset(header, data) == 0
    with pytest.raises(PermissionError):
        os.chown(path.parent, 4321, 4321)
    rundir.write_file(path, b"secret", 0o600, 4321, gid)
    return "written"
