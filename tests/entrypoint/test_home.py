"""The user's home and its skeleton."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import pytest

from entrypoint import home
from entrypoint.errors import StartError
from entrypoint.identity import Identity

ME = (os.geteuid(), os.getegid())
PLAIN = Identity(*ME, groups=(), name="user", home="", drop=False, profile="user")
USER = Identity(4321, 20, (0,), "user", "", drop=True, profile="root")


class Place:
    """A container's folders, with what may be written chosen by the test."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        self.home = folder / "home"
        self.tmp = folder / "tmp"
        self.run = folder / "run"
        self.skeleton = folder / "skel"
        for path in (self.home, self.tmp, self.run, self.skeleton):
            path.mkdir()
        self.unwritable: set[str] = set()
        self.executable = True
        patch.setattr(home, "HOME", str(self.home))
        patch.setattr(home, "TMP", str(self.tmp))
        patch.setattr(home, "SKELETON", str(self.skeleton))
        patch.setattr(home, "try_writing", self._try)
        patch.setattr(home, "run_as", lambda identity, function: function())
        patch.setattr(home, "_is_executable", lambda folder: self.executable)

    def _try(self, path: str, identity: Identity) -> Optional[OSError]:
        if path in self.unwritable:
            return PermissionError(errno.EACCES, "Permission denied")
        return None if os.path.isdir(path) else FileNotFoundError(errno.ENOENT, "No such file or directory")


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Place:
    return Place(monkeypatch, tmp_path)


def prepare(place: Place, identity: Identity, **changes: Any) -> str:
    return home.prepare_home(replace(identity, **{"home": str(place.home), **changes}), place.run)


@pytest.mark.parametrize("identity", [PLAIN, USER])
def test_the_images_home_is_used_in_silence(
    place: Place, identity: Identity, capfd: pytest.CaptureFixture[str]
) -> None:
    assert prepare(place, identity) == str(place.home)
    assert capfd.readouterr().err == ""


def test_a_wished_home_is_used_when_it_can_be_written(place: Place, tmp_path: Path) -> None:
    wish = tmp_path / "wish"
    assert prepare(place, PLAIN, home=str(wish)) == str(place.home)
    wish.mkdir()
    assert prepare(place, PLAIN, home=str(wish)) == str(wish)


def test_without_a_writable_home_a_user_has_one_in_the_run_directory(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    place.unwritable = {str(place.home)}
    made = prepare(place, PLAIN)
    assert made == str(place.run / "home")
    assert stat.S_IMODE(os.stat(made).st_mode) == 0o700
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1
    assert all(word in lines[0] for word in ("warning", "Permission denied", made, f"--user {ME[0]}:0"))


def test_without_a_writable_home_root_gives_the_user_one_in_tmp(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    place.unwritable = {str(place.home)}
    assert prepare(place, USER) == str(place.tmp / "pytorch-cuda-home-4321")
    assert "sudo chown 4321" in capfd.readouterr().err


def test_powerless_root_lives_in_tmp_without_a_second_warning(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    spare = str(place.tmp / "pytorch-cuda-home-0")
    assert prepare(place, replace(PLAIN, uid=0, profile="powerless-root"), home=spare) == spare
    assert os.path.isdir(spare)
    assert capfd.readouterr().err == ""


def test_a_restart_finds_its_home_in_tmp_again(place: Place) -> None:
    place.unwritable = {str(place.home)}
    first = prepare(place, PLAIN)
    (Path(first) / "kept").write_text("x")
    assert prepare(place, PLAIN) == first
    assert (Path(first) / "kept").exists()


@pytest.mark.parametrize("trap", ["link", "file", "another's folder"])
def test_a_name_that_someone_made_in_tmp_is_not_used(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: str
) -> None:
    place.unwritable = {str(place.home)}
    # A link or a file is a trap although it is the user's own.
    uid = ME[0] + 1 if trap == "another's folder" else ME[0]
    name = place.tmp / f"pytorch-cuda-home-{uid}"
    target = tmp_path / "target"
    target.mkdir()
    if trap == "link":
        name.symlink_to(target)
    elif trap == "file":
        name.write_text("")
    else:
        name.mkdir()
    made = prepare(place, replace(USER, uid=uid))
    assert made.startswith(f"{name}-")
    assert os.listdir(target) == []


def test_no_place_for_a_home_stops_the_start_with_the_option(place: Place) -> None:
    place.unwritable = {str(place.home)}
    place.tmp.rmdir()
    with pytest.raises(StartError) as stop:
        prepare(place, USER)
    assert "--tmpfs /tmp" in stop.value.do
    assert "No such file" in stop.value.seen


@pytest.mark.parametrize(("in_tmp", "remedy"), [(True, "Start with --tmpfs /tmp:exec"), (False, "without noexec")])
def test_a_home_that_nothing_can_be_started_from_is_said(
    place: Place, capfd: pytest.CaptureFixture[str], in_tmp: bool, remedy: str
) -> None:
    place.executable = False
    place.unwritable = {str(place.home)} if in_tmp else set()
    prepare(place, USER)
    last = capfd.readouterr().err.splitlines()[-1]
    assert "torch.compile" in last and remedy in last


@pytest.mark.parametrize(("flags", "executable"), [(os.ST_NOEXEC | os.ST_NOSUID, False), (os.ST_NOSUID, True)])
def test_noexec_is_read_from_the_mount(monkeypatch: pytest.MonkeyPatch, flags: int, executable: bool) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=flags))
    assert home._is_executable("/home/user") is executable


class Gift:
    """Records what give_home gives away, for a home that lies on the mount of the test's choice."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.point: Optional[str] = "/"
        self.given: list[tuple[str, int, int]] = []
        self.tops: list[str] = []
        patch.setattr(home, "mount_point_of", lambda fd: self.point)
        patch.setattr(home, "give_top_folder", lambda path, identity: self.tops.append(path))
        patch.setattr(os, "fchown", self._fchown)

    def _fchown(self, fd: int, uid: int, gid: int) -> None:
        self.given.append((os.readlink(f"/proc/self/fd/{fd}"), uid, gid))


@pytest.fixture
def gift(monkeypatch: pytest.MonkeyPatch) -> Gift:
    return Gift(monkeypatch)


def test_the_containers_own_home_is_given_to_the_user(place: Place, gift: Gift) -> None:
    home.give_home(replace(USER, home=str(place.home)))
    assert gift.given == [(str(place.home), 4321, -1)]


def test_a_home_that_is_the_users_already_is_not_touched(place: Place, gift: Gift) -> None:
    home.give_home(replace(USER, uid=ME[0], home=str(place.home)))
    assert gift.given == []


@pytest.mark.parametrize("point", ["/home", None, "self"])
def test_a_home_on_a_mount_is_left_to_the_rule_for_mounts(place: Place, gift: Gift, point: Optional[str]) -> None:
    gift.point = str(place.home) if point == "self" else point
    home.give_home(replace(USER, home=str(place.home)))
    assert gift.given == []
    assert gift.tops == [str(place.home)]


@pytest.mark.skipif(os.geteuid() != 0, reason="the folder must be root's")
@pytest.mark.parametrize(
    ("names", "mounted", "point", "given"),
    [
        (["authorized_keys"], True, "/", True),
        (["authorized_keys"], False, "/", False),
        (["authorized_keys", "other"], True, "/", False),
        ([], True, "/", False),
        (["authorized_keys"], True, "/home/user", False),
    ],
)
def test_the_ssh_folder_is_given_only_if_the_engine_made_it_for_a_mounted_file(
    place: Place, gift: Gift, monkeypatch: pytest.MonkeyPatch, names: list[str], mounted: bool, point: str, given: bool
) -> None:
    folder = place.home / ".ssh"
    folder.mkdir()
    for name in names:
        (folder / name).touch()
    gift.point = point
    keys = str(folder / "authorized_keys")
    monkeypatch.setattr(home, "is_mount_point", lambda path: mounted and path == keys)
    home.give_ssh_folder(replace(USER, home=str(place.home)))
    assert gift.given == ([(str(folder), 4321, USER.gid)] if given else [])


def test_a_home_that_is_a_link_gives_nothing_away(place: Place, gift: Gift, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(place.home)
    home.give_home(replace(USER, home=str(link)))
    assert gift.given == []


@pytest.mark.parametrize("identity", [PLAIN, replace(USER, mapped=True)])
def test_who_is_not_real_root_gives_no_home(place: Place, gift: Gift, identity: Identity) -> None:
    home.give_home(replace(identity, home=str(place.home)))
    assert (gift.given, gift.tops) == ([], [])


@pytest.fixture
def skeleton(tmp_path: Path) -> Path:
    """A skeleton with a file, a folder, an executable, a link and an empty folder."""
    folder = tmp_path / "skeleton"
    (folder / ".config" / "deep").mkdir(parents=True)
    (folder / ".cache").mkdir()
    (folder / ".bashrc").write_text("ours\n")
    (folder / ".config" / "deep" / "settings.json").write_text("{}\n")
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "run").chmod(0o755)
    (folder / "link").symlink_to("run")
    return folder


def test_a_new_home_gets_the_whole_skeleton(skeleton: Path, tmp_path: Path) -> None:
    target = tmp_path / "new"
    target.mkdir()
    assert home.copy_skeleton(str(skeleton), str(target)) is None
    found = {str(path.relative_to(target)) for path in target.rglob("*")}
    assert found == {str(path.relative_to(skeleton)) for path in skeleton.rglob("*")}
    assert (target / ".config/deep/settings.json").read_text() == "{}\n"
    assert os.access(target / "run", os.X_OK) and not os.access(target / ".bashrc", os.X_OK)
    assert os.readlink(target / "link") == "run"


def test_what_the_user_has_is_never_changed(skeleton: Path, tmp_path: Path) -> None:
    target = tmp_path / "new"
    (target / ".config").mkdir(parents=True)
    (target / ".bashrc").write_text("mine\n")
    (target / "run").mkdir()
    (target / ".cache").write_text("a file where the skeleton has a folder")
    home.copy_skeleton(str(skeleton), str(target))
    assert (target / ".bashrc").read_text() == "mine\n"
    assert (target / "run").is_dir()
    assert (target / ".cache").is_file()
    assert (target / ".config/deep/settings.json").exists()


@pytest.mark.parametrize("dangling", [False, True])
def test_no_link_leads_the_copy_out_of_the_home(skeleton: Path, tmp_path: Path, dangling: bool) -> None:
    target, outside = tmp_path / "new", tmp_path / "outside"
    target.mkdir()
    if not dangling:
        outside.mkdir()
    (target / ".config").symlink_to(outside)
    (target / ".bashrc").symlink_to(tmp_path / "shadow")
    assert home.copy_skeleton(str(skeleton), str(target)) is None
    assert not (tmp_path / "shadow").exists()
    assert not outside.exists() or os.listdir(outside) == []


def test_a_full_home_leaves_no_half_file_and_is_no_stop(
    skeleton: Path, place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Full:
        def __init__(self, fd: int, *_: Any) -> None:
            self.fd = fd

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: Any) -> None:
            os.close(self.fd)

        def write(self, data: bytes) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    real = os.fdopen
    monkeypatch.setattr(home, "SKELETON", str(skeleton))
    monkeypatch.setattr(os, "fdopen", lambda fd, mode: Full(fd) if mode == "wb" else real(fd, mode))
    assert prepare(place, PLAIN) == str(place.home)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1 and "No space left on device" in lines[0]
    assert not (place.home / ".bashrc").exists()


def test_an_image_without_a_skeleton_is_no_error(tmp_path: Path) -> None:
    assert home.copy_skeleton(str(tmp_path / "none"), str(tmp_path)) is None
