"""Whose the files are: the four rules, as one table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

import pytest

from entrypoint.errors import StartError
from entrypoint.identity import Identity, plan_identity
from entrypoint.machine import Account, Machine, Owner

FULL = frozenset({"CHOWN", "SETUID", "SETGID", "KILL"})
REAL_ROOT = Machine(0, 0, groups=(0,), caps=FULL, account=Account("root", 0, 0, "/root"), home_env="/root")
MAP = ((0, 1), (1, 65536))
ROOTLESS = replace(REAL_ROOT, rootless=True, uid_ranges=MAP, gid_ranges=MAP)
POWERLESS = replace(REAL_ROOT, caps=frozenset())
PLAIN = Machine(12345, 0, groups=(0,), home_env="/")


def code(base: Machine, uid: int, gid: int) -> Machine:
    return replace(base, code_owner=Owner(uid, gid))


def workspace(base: Machine, uid: int, gid: int) -> Machine:
    return replace(base, workspace_owner=Owner(uid, gid))


@pytest.mark.parametrize(
    ("machine", "puid", "pgid", "uid", "gid"),
    [
        # 1. PUID and PGID, when given
        (code(REAL_ROOT, 4321, 20), 5000, 6000, 5000, 6000),
        (REAL_ROOT, 4321, None, 4321, 1000),
        (code(REAL_ROOT, 4321, 20), 4321, None, 4321, 20),
        (code(REAL_ROOT, 4321, 20), 5000, None, 5000, 1000),
        (code(REAL_ROOT, 4321, 20), None, 6000, 4321, 6000),
        (REAL_ROOT, 2_000_000_000, 2_000_000_000, 2_000_000_000, 2_000_000_000),
        (REAL_ROOT, 33, 20, 33, 20),
        (REAL_ROOT, 65534, None, 65534, 1000),
        (REAL_ROOT, 1000, 0, 1000, 0),
        # 2. the owner of the mount; its group, unless 0
        (code(REAL_ROOT, 4321, 20), None, None, 4321, 20),
        (code(REAL_ROOT, 4321, 0), None, None, 4321, 1000),
        (code(REAL_ROOT, 4321, 65534), None, None, 4321, 1000),
        (workspace(REAL_ROOT, 4321, 4321), None, None, 4321, 4321),
        (workspace(code(REAL_ROOT, 4321, 20), 99, 99), None, None, 4321, 20),
        (code(ROOTLESS, 4321, 20), None, None, 4321, 20),
        # 3. root's or nobody's in a rootless engine: uid 0 is the caller
        (code(ROOTLESS, 0, 0), None, None, 0, 0),
        (code(ROOTLESS, 65534, 65534), None, None, 0, 0),
        (code(ROOTLESS, 0, 5), None, None, 0, 0),
        (ROOTLESS, None, None, 0, 0),
        (ROOTLESS, 0, None, 0, 0),
        (code(ROOTLESS, 0, 0), 1000, 1000, 1000, 1000),
        # 4. root's or nobody's, and real root
        (code(REAL_ROOT, 0, 0), None, None, 1000, 1000),
        (code(REAL_ROOT, 65534, 65534), None, None, 1000, 1000),
        (code(REAL_ROOT, 0, 4321), None, None, 1000, 1000),
        (workspace(REAL_ROOT, 0, 0), None, None, 1000, 1000),
        (workspace(code(REAL_ROOT, 0, 0), 4321, 4321), None, None, 1000, 1000),
        (REAL_ROOT, None, None, 1000, 1000),
    ],
)
def test_whose_files(machine: Machine, puid: Optional[int], pgid: Optional[int], uid: int, gid: int) -> None:
    plan = plan_identity(machine, puid, pgid)
    assert (plan.uid, plan.gid) == (uid, gid)
    assert (plan.name, plan.home) == ("user", "/home/user")
    assert plan.profile == ("rootless-root" if uid == 0 else "root")
    assert plan.drop is (uid != 0)
    assert plan.notes == ()


@pytest.mark.parametrize("machine", [REAL_ROOT, code(REAL_ROOT, 4321, 4321), code(REAL_ROOT, 0, 0)])
def test_puid_0_is_refused_where_it_is_real_root(machine: Machine) -> None:
    with pytest.raises(StartError) as stop:
        plan_identity(machine, 0, None)
    assert "PUID=0" in stop.value.what
    assert "real root" in stop.value.seen
    assert "PUID=$(id -u)" in stop.value.do
    assert stop.value.code == 64


@pytest.mark.parametrize(("puid", "pgid", "name"), [(70000, None, "70000 (PUID)"), (1000, 70000, "70000 (PGID)")])
def test_an_id_that_a_rootless_engine_has_not_is_refused(puid: int, pgid: Optional[int], name: str) -> None:
    with pytest.raises(StartError) as stop:
        plan_identity(ROOTLESS, puid, pgid)
    assert name in stop.value.what
    assert "65536" in stop.value.seen


def test_an_engine_with_one_id_keeps_the_caller_in_group_0() -> None:
    tiny = replace(ROOTLESS, uid_ranges=((0, 1),), gid_ranges=((0, 1),))
    assert (plan_identity(tiny, None, None).uid, plan_identity(tiny, None, None).gid) == (0, 0)


@pytest.mark.parametrize(
    ("machine", "pgid", "groups"),
    [
        (REAL_ROOT, None, (0,)),
        (replace(REAL_ROOT, groups=()), None, (0,)),
        (replace(REAL_ROOT, groups=(0, 44, 4321)), None, (0, 44, 4321)),
        (replace(REAL_ROOT, groups=(0, 44)), 44, (0,)),
        (replace(REAL_ROOT, groups=(0, 44)), 0, (44,)),
        (replace(ROOTLESS, groups=(0, 44, 99999), code_owner=Owner(4321, 4321)), None, (0, 44)),
    ],
)
def test_the_user_is_in_group_0_and_in_those_of_group_add(
    machine: Machine, pgid: Optional[int], groups: tuple[int, ...]
) -> None:
    assert plan_identity(machine, None, pgid).groups == groups


def test_a_rootless_caller_keeps_the_groups_of_the_engine() -> None:
    kept = replace(ROOTLESS, groups=(0, 65534))  # podman run --group-add keep-groups
    plan = plan_identity(kept, None, None)
    assert (plan.groups, plan.drop) == ((0, 65534), False)


def test_a_rootless_caller_takes_the_group_that_was_asked_for() -> None:
    plan = plan_identity(ROOTLESS, None, 2000)
    assert (plan.uid, plan.gid, plan.drop, plan.profile) == (0, 2000, True, "rootless-root")


@pytest.mark.parametrize("caps", [set(), {"SETUID"}, {"SETGID"}, {"NET_BIND_SERVICE", "KILL"}])
def test_root_without_the_capabilities_stays_and_says_so(caps: set[str]) -> None:
    plan = plan_identity(replace(code(REAL_ROOT, 4321, 4321), caps=frozenset(caps)), None, None)
    assert (plan.uid, plan.gid, plan.drop, plan.profile) == (0, 0, False, "powerless-root")
    assert plan.home == "/tmp/pytorch-cuda-home-0"
    assert len(plan.notes) == 1
    assert "SETUID" in plan.notes[0] and "/tmp" in plan.notes[0]


@pytest.mark.parametrize("dropped", ["SETUID", "SETGID"])
def test_root_that_is_neither_able_nor_powerless_is_refused(dropped: str) -> None:
    with pytest.raises(StartError) as error:
        plan_identity(replace(REAL_ROOT, caps=FULL - {dropped}), None, None)
    assert dropped in error.value.seen and "CHOWN" in error.value.seen
    assert "--cap-drop ALL" in error.value.do


def test_powerless_root_says_that_puid_is_not_used() -> None:
    plan = plan_identity(POWERLESS, 4321, 0)
    assert [note for note in plan.notes if "PUID=4321 is not used" in note]
    assert not [note for note in plan.notes if "PGID" in note]


@pytest.mark.parametrize("caps", [frozenset(), FULL])
def test_a_container_started_with_user_stays_that_user(caps: frozenset[str]) -> None:
    plan = plan_identity(replace(code(PLAIN, 4321, 4321), caps=caps), None, None)
    assert plan == Identity(12345, 0, (0,), "user", "/home/user", False, "user", (), named=False)


def test_a_known_uid_keeps_its_name() -> None:
    plan = plan_identity(replace(PLAIN, uid=33, account=Account("www-data", 33, 33, "/var/www")), None, None)
    assert (plan.name, plan.named) == ("www-data", True)


@pytest.mark.parametrize(
    ("home_env", "home"),
    [
        ("/data/me", "/data/me"),
        (None, "/home/user"),
        ("", "/home/user"),
        ("/", "/home/user"),
        ("//", "/home/user"),
        ("data/me", "/home/user"),
    ],
)
def test_home_is_honoured_when_it_can_be_one(home_env: Optional[str], home: str) -> None:
    assert plan_identity(replace(PLAIN, home_env=home_env), None, None).home == home


@pytest.mark.parametrize(("ids", "noted"), [((4321, None), ["PUID=4321"]), ((12345, 0), []), ((None, 7), ["PGID=7"])])
def test_ids_that_cannot_be_taken_are_named(ids: Any, noted: list[str]) -> None:
    notes = plan_identity(PLAIN, *ids).notes
    assert len(notes) == len(noted)
    assert all(word in note and "--user 12345:0" in note for word, note in zip(noted, notes))
