"""What the entrypoint reads of its container."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from entrypoint import machine
from entrypoint.machine import Account, Machine, Owner

MOUNTINFO = r"""22 1 0:21 / / rw,relatime - overlay overlay rw
23 22 8:1 /home/ann/my\040code /workspace/code rw,relatime master:1 - ext4 /dev/sda1 rw
24 22 8:1 /x /data/a\134b\011c rw - ext4 /dev/sda1 rw
"""


def test_mount_points_are_read_with_their_octal_escapes() -> None:
    assert machine.parse_mountinfo(MOUNTINFO) == {22: "/", 23: "/workspace/code", 24: "/data/a\\b\tc"}


def test_a_mount_point_outside_utf8_is_read() -> None:
    assert machine.parse_mountinfo("30 1 8:1 / /d/\udcff\\040\xe4 rw - ext4 /dev/sda1 rw") == {30: "/d/\udcff \xe4"}


@pytest.mark.parametrize(
    ("effective", "expected"),
    [
        ("00000000a80425fb", {"CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID"}),
        ("0000000000000000", set()),
        ("0000000000000080", {"SETUID"}),
        ("0000000000040020", {"KILL", "SYS_CHROOT"}),
    ],
)
def test_effective_capabilities_have_their_names(effective: str, expected: set[str]) -> None:
    found = machine.parse_caps(f"CapPrm:\tffffffffffffffff\nCapEff:\t{effective}\nCapBnd:\tffffffffffffffff\n")
    assert found >= expected
    assert ("SETUID" in found) == ("SETUID" in expected)
    assert ("KILL" in found) == ("KILL" in expected)


def test_without_a_line_of_capabilities_there_are_none() -> None:
    assert machine.parse_caps("Name:\tpython\n") == frozenset()


@pytest.mark.parametrize(
    ("uid_map", "rootless"),
    [
        ("         0          0 4294967295\n", False),
        ("         0          0      65536\n", False),
        ("         0          0       1000\n      1000       1000      64536\n", False),
        ("         0       1000          1\n         1     100000      65536\n", True),
        ("         0     100000      65536\n", True),
        ("", False),
    ],
)
def test_a_user_namespace_is_recognised_by_its_map(
    monkeypatch: pytest.MonkeyPatch, uid_map: str, rootless: bool
) -> None:
    real = machine._read
    monkeypatch.setattr(machine, "_read", lambda path: uid_map if path.endswith("id_map") else real(path))
    seen = machine.read_machine({})
    assert seen.rootless is rootless
    assert seen.has_uid(0)
    assert seen.has_uid(2_000_000_000) is ("4294967295" in uid_map or not uid_map)
    assert seen.has_gid(65_537) is ("4294967295" in uid_map or not uid_map)


def test_ids_end_where_the_map_ends() -> None:
    seen = Machine(0, 0, uid_ranges=((0, 1), (1, 65536)))
    assert [seen.has_uid(uid) for uid in (0, 1, 65536, 65537)] == [True, True, True, False]


def test_the_own_account_is_found_by_uid() -> None:
    passwd = "root:x:0:0:root:/root:/bin/bash\nbroken:x:33\nwww:x:33:34:www:/var/www:/usr/sbin/nologin\n"
    assert machine.find_account(passwd, 33) == Account("www", 33, 34, "/var/www")
    assert machine.find_account(passwd, 3) is None


def test_the_machine_is_read_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = machine.read_machine({b"HOME": b"/h\xff"})
    assert (seen.uid, seen.gid) == (os.geteuid(), os.getegid())
    assert set(seen.groups) == set(os.getgroups())
    assert "/" in seen.mounts
    assert seen.home_env == "/h\udcff"
    assert machine.read_machine({}).home_env is None


def test_an_open_folder_tells_its_mount_point() -> None:
    fd = os.open("/proc/self", os.O_DIRECTORY | os.O_RDONLY)
    try:
        assert machine.mount_point_of(fd) == "/proc"
    finally:
        os.close(fd)


def test_a_kernel_that_does_not_tell_the_mount_gives_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_read", lambda path: "pos:\t0\nflags:\t0100000\n")
    assert machine.mount_point_of(0) is None


def test_the_owner_is_that_of_a_mounted_folder_alone(tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    mine = Owner(folder.stat().st_uid, folder.stat().st_gid)
    assert machine._owner_of_mount(str(folder), (str(folder),)) == mine
    assert machine._owner_of_mount(str(folder), (str(tmp_path),)) is None


@pytest.mark.parametrize("kind", ["link", "file", "nothing"])
def test_a_link_or_a_file_in_the_mounts_place_has_no_owner(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "code"
    if kind == "link":
        path.symlink_to("/usr/local/sbin")
    elif kind == "file":
        path.write_text("x")
    assert machine._owner_of_mount(str(path), (str(path),)) is None


def test_code_decides_before_the_workspace() -> None:
    code, workspace = Owner(1, 1), Owner(2, 2)
    both = Machine(0, 0, code_owner=code, workspace_owner=workspace)
    assert (both.mounted_folder, both.mounted_owner) == (machine.CODE, code)
    one = Machine(0, 0, workspace_owner=workspace)
    assert (one.mounted_folder, one.mounted_owner) == (machine.WORKSPACE, workspace)
    none = Machine(0, 0)
    assert (none.mounted_folder, none.mounted_owner) == (None, None)


@pytest.mark.parametrize(
    ("uid", "caps", "can"),
    [
        (0, {"SETUID", "SETGID"}, True),
        (0, {"SETUID"}, False),
        (0, set(), False),
        (1000, {"SETUID", "SETGID"}, False),
    ],
)
def test_only_root_with_both_capabilities_sets_ids(uid: int, caps: set[str], can: bool) -> None:
    assert Machine(uid, 0, caps=frozenset(caps)).can_set_ids is can
