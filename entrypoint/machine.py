"""What the container was given: ids, capabilities, mounts, owners. Read once, changed by nobody."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

WORKSPACE = "/workspace"
CODE = "/workspace/code"

# The owner that a kernel shows for an id it has no number for.
NOBODY = 65534

_EVERY_ID = ((0, 2**32 - 1),)

# Those that a start depends on, with their bits (linux/capability.h).
_CAPABILITIES = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "FOWNER": 3,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "NET_BIND_SERVICE": 10,
    "SYS_CHROOT": 18,
    "AUDIT_WRITE": 29,
}


@dataclass(frozen=True)
class Owner:
    """Who owns a folder."""

    uid: int
    gid: int


@dataclass(frozen=True)
class Account:
    """A line of /etc/passwd, as far as it matters here."""

    name: str
    uid: int
    gid: int
    home: str


@dataclass(frozen=True)
class Machine:
    """The container as the engine made it."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    caps: frozenset[str] = frozenset()
    rootless: bool = False
    mounts: tuple[str, ...] = ()
    code_owner: Optional[Owner] = None
    workspace_owner: Optional[Owner] = None
    root_writable: bool = True
    home_env: Optional[str] = None
    account: Optional[Account] = None
    uid_ranges: tuple[tuple[int, int], ...] = _EVERY_ID
    gid_ranges: tuple[tuple[int, int], ...] = _EVERY_ID

    @property
    def can_set_ids(self) -> bool:
        """Whether this process may become another user."""
        return self.uid == 0 and {"SETUID", "SETGID"} <= self.caps

    @property
    def mounted_folder(self) -> Optional[str]:
        """The mount whose owner decides whose the files are."""
        if self.code_owner:
            return CODE
        return WORKSPACE if self.workspace_owner else None

    @property
    def mounted_owner(self) -> Optional[Owner]:
        """The owner of that mount."""
        return self.code_owner or self.workspace_owner

    def has_uid(self, uid: int) -> bool:
        """Whether the user namespace has a number for this uid."""
        return _in_ranges(uid, self.uid_ranges)

    def has_gid(self, gid: int) -> bool:
        """Whether the user namespace has a number for this gid."""
        return _in_ranges(gid, self.gid_ranges)


def read_machine(environ: Mapping[bytes, bytes]) -> Machine:
    """Read it all; `environ` is the container's true environment."""
    uid_map = parse_id_map(_read("/proc/self/uid_map"))
    mounts = tuple(parse_mountinfo(_read("/proc/self/mountinfo")).values())
    home = environ.get(b"HOME")
    return Machine(
        uid=os.geteuid(),
        gid=os.getegid(),
        groups=tuple(sorted(set(os.getgroups()))),
        caps=parse_caps(_read("/proc/self/status")),
        rootless=any(inside != outside for inside, outside, _ in uid_map),
        mounts=mounts,
        code_owner=_owner_of_mount(CODE, mounts),
        workspace_owner=_owner_of_mount(WORKSPACE, mounts),
        root_writable=not os.statvfs("/").f_flag & os.ST_RDONLY,
        home_env=os.fsdecode(home) if home else None,
        account=find_account(_read("/etc/passwd"), os.geteuid()),
        uid_ranges=_ranges(uid_map),
        gid_ranges=_ranges(parse_id_map(_read("/proc/self/gid_map"))),
    )


def mount_point_of(fd: int) -> Optional[str]:
    """The mount point that an open folder lies on; None when the kernel does not say.

    Asked of the open file, not of its name: a name can be moved while one looks.
    """
    found = re.search(r"^mnt_id:\s*(\d+)", _read(f"/proc/self/fdinfo/{fd}"), re.MULTILINE)
    return parse_mountinfo(_read("/proc/self/mountinfo")).get(int(found.group(1))) if found else None


def is_mount_point(path: str) -> bool:
    """Whether something is mounted at exactly this path."""
    return path in parse_mountinfo(_read("/proc/self/mountinfo")).values()


def parse_mountinfo(text: str) -> dict[int, str]:
    """Mount id -> mount point."""
    fields = (line.split(" ") for line in text.splitlines())
    return {int(field[0]): _unescape(field[4]) for field in fields if len(field) > 4}


def parse_caps(status: str) -> frozenset[str]:
    """The effective capabilities in a /proc/PID/status, of those that matter here."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    bits = int(found.group(1), 16) if found else 0
    return frozenset(name for name, bit in _CAPABILITIES.items() if bits >> bit & 1)


def parse_id_map(text: str) -> list[tuple[int, int, int]]:
    """(first id inside, first id outside, how many) of a uid_map or gid_map."""
    return [(int(a), int(b), int(c)) for a, b, c in (line.split() for line in text.splitlines() if line)]


def find_account(passwd: str, uid: int) -> Optional[Account]:
    """The first line of a passwd file with this uid."""
    for line in passwd.splitlines():
        field = line.split(":")
        if len(field) == 7 and field[2] == str(uid) and field[3].isdigit():
            return Account(field[0], uid, int(field[3]), field[5])
    return None


def _owner_of_mount(path: str, mounts: tuple[str, ...]) -> Optional[Owner]:
    """None unless exactly this path is a mounted folder; a link on a volume is none."""
    if path not in mounts:
        return None
    try:
        fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        seen = os.fstat(fd)
    finally:
        os.close(fd)
    return Owner(seen.st_uid, seen.st_gid)


def _read(path: str) -> str:
    """A file of the kernel or of /etc; one that is not there is empty."""
    try:
        with open(path, "rb") as file:
            return os.fsdecode(file.read())
    except OSError:
        return ""


def _unescape(name: str) -> str:
    """The kernel writes blanks and backslashes in a mount point as octal numbers, byte by byte."""
    octal = re.compile(rb"\\([0-7]{3})")
    return os.fsdecode(octal.sub(lambda found: bytes([int(found.group(1), 8)]), os.fsencode(name)))


def _ranges(id_map: list[tuple[int, int, int]]) -> tuple[tuple[int, int], ...]:
    return tuple((inside, count) for inside, _, count in id_map) or _EVERY_ID


def _in_ranges(number: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= number < first + count for first, count in ranges)
