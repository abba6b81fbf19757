"""A name for the user's uid."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from entrypoint import names
from entrypoint.identity import Identity

ROOT = Identity(4321, 4321, (0,), "user", "/home/user", drop=True, profile="root")
PLAIN = Identity(12345, 0, (0,), "user", "/tmp/pytorch-cuda-12345/home", drop=False, profile="user")

PASSWD = """root:x:0:0:root:/root:/bin/bash
www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin
user:x:1000:1000:user:/home/user:/bin/bash
nobody:x:65534:65534:nobody:/:/usr/sbin/nologin
"""
GROUP = """root:x:0:user
dialout:x:20:
video:x:44:ann
user:x:1000:
userx:x:1001:
"""
LIBRARY = "/usr/lib/x86_64-linux-gnu/libnss_wrapper.so"


@pytest.fixture
def etc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "etc"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    (folder / "passwd").write_text(PASSWD)
    (folder / "group").write_text(GROUP)
    for name in ("passwd", "group"):
        (folder / name).chmod(0o640)
    monkeypatch.setattr(names, "ETC", folder)
    monkeypatch.setattr(names, "_find_wrapper", lambda: LIBRARY)
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    folder.chmod(0o755)
    return folder


def users(text: str) -> list[list[str]]:
    return [line.split(":")[:4] for line in text.splitlines()]


def by_uid(text: str, uid: int) -> str:
    return next(fields[0] for fields in users(text) if fields[2] == str(uid))


def test_the_users_line_is_changed_in_its_place() -> None:
    new = names.render_passwd(PASSWD, ROOT)
    expected = "user:x:4321:4321:user:/home/user:/bin/bash"
    assert new.splitlines() == [line if not line.startswith("user:") else expected for line in PASSWD.splitlines()]


def test_an_unchanged_user_leaves_the_files_as_they_are() -> None:
    same = replace(ROOT, uid=1000, gid=1000)
    assert names.render_passwd(PASSWD, same) == PASSWD
    assert names.render_group(GROUP, same) == GROUP


@pytest.mark.parametrize("uid", [0, 33, 65534])
def test_a_uid_of_the_systems_leads_to_the_user_and_the_system_keeps_its_name(uid: int) -> None:
    new = names.render_passwd(PASSWD, replace(ROOT, uid=uid))
    assert by_uid(new, uid) == "user"
    assert [fields[0] for fields in users(new)].count("user") == 1
    assert {"root", "www-data", "nobody"} <= {fields[0] for fields in users(new)}


def test_a_group_of_the_systems_is_used_again() -> None:
    new = names.render_group(GROUP, replace(ROOT, gid=20))
    assert by_uid(new, 20) == "dialout"
    assert "user:x:20:" in new.splitlines()


def test_the_user_is_a_member_of_each_of_its_groups() -> None:
    lines = names.render_group(GROUP, replace(ROOT, groups=(0, 44, 7777))).splitlines()
    assert "root:x:0:user" in lines
    assert "video:x:44:ann,user" in lines
    assert "group7777:x:7777:user" in lines
    assert "userx:x:1001:" in lines


def test_rendering_twice_is_rendering_once() -> None:
    identity = replace(ROOT, uid=33, gid=20, groups=(0, 44, 7777))
    once = names.render_passwd(PASSWD, identity), names.render_group(GROUP, identity)
    assert (names.render_passwd(once[0], identity), names.render_group(once[1], identity)) == once


def test_root_writes_what_nss_and_etc_read(etc: Path, run: Path) -> None:
    assert names.set_up_names(replace(ROOT, groups=(0, 44)), run, {}) == {}
    extra = run / "extrausers"
    assert (extra / "passwd").read_text() == "user:x:4321:4321:user:/home/user:/bin/bash\n"
    assert (extra / "group").read_text() == "root:x:0:user\nvideo:x:44:ann,user\nuser:x:4321:\n"
    assert (extra / "shadow").read_text().startswith("user:*:")
    modes = {name: stat.S_IMODE((extra / name).stat().st_mode) for name in ("passwd", "group", "shadow")}
    assert modes == {"passwd": 0o644, "group": 0o644, "shadow": 0o600}
    assert "user:x:4321:4321:" in (etc / "passwd").read_text()
    assert "user:x:4321:" in (etc / "group").read_text()


def test_etc_keeps_its_mode_and_is_not_touched_without_need(etc: Path, run: Path) -> None:
    before = (etc / "passwd").stat().st_ino
    names.set_up_names(replace(ROOT, uid=1000, gid=1000), run, {})
    assert (etc / "passwd").stat().st_ino == before
    names.set_up_names(ROOT, run, {})
    assert (etc / "passwd").stat().st_ino != before
    assert stat.S_IMODE((etc / "passwd").stat().st_mode) == 0o640
    assert sorted(os.listdir(etc)) == ["group", "passwd"]


@pytest.mark.parametrize("why", ["read-only", "mount", "link"])
def test_an_etc_that_cannot_be_changed_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, etc: Path, run: Path, why: str
) -> None:
    if why == "link":
        (etc / "passwd").rename(etc / "elsewhere")
        (etc / "passwd").symlink_to("elsewhere")
    else:
        real = os.rename

        def refuse(source: Any, target: Any, **more: Any) -> None:
            if target in ("passwd", "group") and os.path.samestat(os.fstat(more["dst_dir_fd"]), os.stat(etc)):
                raise OSError(30 if why == "read-only" else 16, "cannot")
            real(source, target, **more)

        monkeypatch.setattr(os, "rename", refuse)
    extra = names.set_up_names(ROOT, run, {})
    assert {"NSS_WRAPPER_PASSWD", "NSS_WRAPPER_GROUP"} <= set(extra)
    assert (etc / "passwd").read_text() == PASSWD
    assert "user:x:4321" in (run / "extrausers" / "passwd").read_text()


def test_low_ids_on_a_read_only_disk_are_wrapped(monkeypatch: pytest.MonkeyPatch, etc: Path, run: Path) -> None:
    monkeypatch.setattr(names, "_agree_in_etc", lambda identity: False)
    extra = names.set_up_names(replace(ROOT, uid=33, gid=20), run, {})
    assert extra["NSS_WRAPPER_PASSWD"] == str(run / "passwd")
    assert by_uid((run / "passwd").read_text(), 33) == "user"


def test_an_unknown_uid_gets_a_name_without_a_writable_passwd(etc: Path, run: Path) -> None:
    extra = names.set_up_names(PLAIN, run, {})
    assert extra == {
        "LD_PRELOAD": LIBRARY,
        "NSS_WRAPPER_PASSWD": str(run / "passwd"),
        "NSS_WRAPPER_GROUP": str(run / "group"),
    }
    passwd = (run / "passwd").read_text()
    assert by_uid(passwd, 12345) == "user"
    assert f":{PLAIN.home}:" in passwd
    assert (etc / "passwd").read_text() == PASSWD


@pytest.mark.parametrize("preload", [b"/opt/lib/libjemalloc.so", b"/a.so:/b.so", b"/x\xff.so"])
def test_the_users_own_preload_stays_behind_ours(etc: Path, run: Path, preload: bytes) -> None:
    extra = names.set_up_names(PLAIN, run, {b"LD_PRELOAD": preload})
    assert os.fsencode(extra["LD_PRELOAD"]) == LIBRARY.encode() + b":" + preload


def test_an_unknown_group_gets_a_name_too(etc: Path, run: Path) -> None:
    names.set_up_names(replace(PLAIN, gid=5555, groups=(5555, 6666)), run, {})
    group = (run / "group").read_text()
    assert by_uid(group, 5555) == "user"
    assert by_uid(group, 6666) == "group6666"


@pytest.mark.parametrize(
    "identity",
    [replace(PLAIN, named=True, name="www-data"), replace(ROOT, profile="powerless-root", name="root")],
)
def test_who_has_a_name_is_left_alone(etc: Path, run: Path, identity: Identity) -> None:
    assert names.set_up_names(identity, run, {}) == {}
    assert os.listdir(run) == []
    assert (etc / "passwd").read_text() == PASSWD


def test_a_missing_wrapper_is_said_and_does_not_stop(
    monkeypatch: pytest.MonkeyPatch, etc: Path, run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(names, "_find_wrapper", lambda: None)
    assert names.set_up_names(PLAIN, run, {}) == {}
    assert "uid 12345 has no name" in capfd.readouterr().err


def test_the_wrapper_of_this_architecture_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    libraries = [tmp_path / arch / "libnss_wrapper.so" for arch in ("i386-linux-gnu", "x86_64-linux-gnu")]
    monkeypatch.setattr(names, "_WRAPPER", (str(libraries[1]), f"{tmp_path}/*/libnss_wrapper.so"))
    assert names._find_wrapper() is None
    for library in libraries:
        library.parent.mkdir()
        library.write_text("")
    assert names._find_wrapper() == str(libraries[1])
    libraries[1].unlink()
    assert names._find_wrapper() == str(libraries[0])


def test_the_callers_uid_0_has_a_second_name(etc: Path, run: Path) -> None:
    names.set_up_names(replace(ROOT, uid=0, gid=0, drop=False, profile="rootless-root"), run, {})
    passwd = (etc / "passwd").read_text()
    assert by_uid(passwd, 0) == "user"
    assert "root:x:0:0:root:/root:/bin/bash" in passwd.splitlines()


def test_a_group_file_with_members_and_odd_lines_survives() -> None:
    odd = "root:x:0:user\n+::\n\nshort:x\nvideo:x:44:ann,bob\n"
    lines = names.render_group(odd, replace(ROOT, groups=(44,))).splitlines()
    assert lines == ["root:x:0:user", "+::", "", "short:x", "video:x:44:ann,bob,user", "user:x:4321:"]
