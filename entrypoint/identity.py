"""Who the user's programs are: the four rules of "Whose files", as one pure function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from entrypoint.errors import StartError
from entrypoint.machine import NOBODY, Machine

USER = "user"
USER_ID = 1000
HOME = "/home/user"

ROOT = "root"
POWERLESS = "powerless-root"
PLAIN = "user"
ROOTLESS = "rootless-root"


@dataclass(frozen=True)
class Identity:
    """The user that everything but the set-up runs as."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    name: str
    home: str
    drop: bool
    profile: str
    notes: tuple[str, ...] = ()
    # The system's own passwd has a name for the uid: none need be made.
    named: bool = False
    # Inside a user namespace (rootless engine).
    mapped: bool = False


def plan_identity(machine: Machine, puid: Optional[int], pgid: Optional[int]) -> Identity:
    """Decide who the user is from what the engine gave and what PUID and PGID ask for."""
    if machine.uid != 0:
        return _started_as_user(machine, puid, pgid)
    if not machine.can_set_ids:
        return _started_powerless(machine, puid, pgid)
    return _started_as_root(machine, puid, pgid)


def _started_as_user(machine: Machine, puid: Optional[int], pgid: Optional[int]) -> Identity:
    account = machine.account
    reason = f"the container was started with --user {machine.uid}:{machine.gid}"
    return Identity(
        uid=machine.uid,
        gid=machine.gid,
        groups=machine.groups,
        name=account.name if account else USER,
        home=_usable_home(machine.home_env) or HOME,
        drop=False,
        profile=PLAIN,
        notes=_not_used(machine, puid, pgid, reason),
        named=account is not None,
        mapped=machine.rootless,
    )


# With one of these uid 0 is root over the container's files or processes, whatever else was taken from it.
_POWERS = frozenset(
    ("CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "MKNOD", "SETFCAP", "SYS_ADMIN", "SYS_MODULE", "SYS_PTRACE")
)


def _refuse_half_a_root(machine: Machine) -> None:
    """Root that may not become the user, and is no powerless one either, would run the user's programs as root."""
    powers = sorted(machine.caps & _POWERS)
    if powers and not machine.rootless:
        missing = sorted({"SETUID", "SETGID"} - machine.caps)
        raise StartError(
            "your programs would run as root: uid 0 may not become the user here, and is not powerless",
            f"without {', '.join(missing)}, but with {', '.join(powers)}",
            "leave SETUID and SETGID in, or take all away: --cap-drop ALL",
        )


def _started_powerless(machine: Machine, puid: Optional[int], pgid: Optional[int]) -> Identity:
    _refuse_half_a_root(machine)
    reason = "uid 0 has no SETUID and SETGID capability here (--cap-drop)"
    note = f"{reason}: everything runs as this powerless uid 0, with its home in /tmp"
    return Identity(
        uid=0,
        gid=machine.gid,
        groups=machine.groups,
        name=machine.account.name if machine.account else ROOT,
        home=f"/tmp/pytorch-cuda-home-{machine.uid}",
        drop=False,
        profile=POWERLESS,
        notes=(note, *_not_used(machine, puid, pgid, reason)),
        named=True,
        mapped=machine.rootless,
    )


def _started_as_root(machine: Machine, puid: Optional[int], pgid: Optional[int]) -> Identity:
    uid = _wanted_uid(machine, puid)
    gid = _wanted_gid(machine, uid) if pgid is None else pgid
    _check_mapped(machine, uid, gid)
    # 0: the image's shared folders belong to group 0. The rest is --group-add.
    given = {group for group in machine.groups if machine.has_gid(group)}
    stays = uid == machine.uid and gid == machine.gid
    return Identity(
        uid=uid,
        gid=gid,
        groups=machine.groups if stays else tuple(sorted({0, *given} - {gid})),
        name=USER,
        home=HOME,
        drop=not stays,
        profile=ROOTLESS if uid == 0 else ROOT,
        mapped=machine.rootless,
    )


def _wanted_uid(machine: Machine, puid: Optional[int]) -> int:
    """Rules 1 to 4. Without any mount a rootless engine's uid 0 is the caller just the same."""
    if puid is not None:
        if puid == 0 and not machine.rootless:
            raise StartError(
                "PUID=0 would run JupyterLab and your programs as root",
                "PUID=0, and uid 0 is the machine's real root here (the engine is not rootless)",
                "give your own uid: -e PUID=$(id -u), or leave PUID out",
            )
        return puid
    owner = machine.mounted_owner
    if owner and owner.uid not in (0, NOBODY):
        return owner.uid
    return 0 if machine.rootless else USER_ID


def _wanted_gid(machine: Machine, uid: int) -> int:
    """The group of the mount when the user owns it, else the image's."""
    if uid == 0:
        return 0
    owner = machine.mounted_owner
    if owner and owner.uid == uid and owner.gid not in (0, NOBODY):
        return owner.gid
    return USER_ID if machine.has_gid(USER_ID) else 0


def _check_mapped(machine: Machine, uid: int, gid: int) -> None:
    """A rootless engine owns only some thousands of ids; the others can not be taken."""
    if not machine.has_uid(uid):
        raise _unmapped("PUID", uid, machine.uid_ranges)
    if not machine.has_gid(gid):
        raise _unmapped("PGID", gid, machine.gid_ranges)


def _unmapped(name: str, number: int, ranges: tuple[tuple[int, int], ...]) -> StartError:
    known = ", ".join(f"{first} to {first + count - 1}" for first, count in ranges)
    return StartError(
        f"the id {number} ({name}) does not exist inside this container",
        f"its user namespace has the ids {known}",
        f"leave {name} out: in a rootless engine uid 0 is you (or add ids to /etc/subuid and /etc/subgid)",
    )


def _not_used(machine: Machine, puid: Optional[int], pgid: Optional[int], reason: str) -> tuple[str, ...]:
    asked = (("PUID", puid, machine.uid), ("PGID", pgid, machine.gid))
    return tuple(
        f"warning: {name}={want} is not used, files will belong to {have}: {reason}"
        for name, want, have in asked
        if want is not None and want != have
    )


def _usable_home(home: Optional[str]) -> Optional[str]:
    """Engines give an unknown uid HOME=/, which is nobody's home."""
    return home if home and home.startswith("/") and home.strip("/") else None
