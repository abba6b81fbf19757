"""A name for the user's uid in every program, without a passwd file that others may write."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Callable, Optional

from entrypoint import log
from entrypoint.identity import PLAIN, POWERLESS, Identity
from entrypoint.rundir import make_folder, write_file

SHELL = "/bin/bash"
ETC = Path("/etc")

# The image's own architecture first: a library of another one cannot be loaded.
_WRAPPER = (
    f"/usr/lib/{os.uname().machine}-linux-gnu/libnss_wrapper.so",
    "/usr/lib/*/libnss_wrapper.so",
    "/usr/lib*/libnss_wrapper.so",
)


def set_up_names(identity: Identity, rundir: Path, environ: Optional[Mapping[bytes, bytes]] = None) -> dict[str, str]:
    """Give the uid its name. Returns the variables that the user's programs need for it, mostly none.

    `identity.home` must be the home that is really used; `environ` is the container's.
    """
    if identity.profile == POWERLESS or (identity.profile == PLAIN and identity.named):
        return {}
    if identity.profile != PLAIN:
        # For a read-only /etc. It comes after `files` in nsswitch.conf: libnss-extrausers answers for uid 0 with
        # whoever stands in its file, and root's files would be listed as the user's.
        _write_extrausers(identity, make_folder(rundir / "extrausers"))
        if _agree_in_etc(identity):
            return {}
    return _wrap(identity, rundir, os.fsdecode((environ or {}).get(b"LD_PRELOAD", b"")))


def passwd_line(identity: Identity) -> str:
    """The user's line of /etc/passwd."""
    return f"{identity.name}:x:{identity.uid}:{identity.gid}:{identity.name}:{identity.home}:{SHELL}"


def render_passwd(text: str, identity: Identity) -> str:
    """A passwd file in which the name and the uid both lead to the user."""
    lines = text.splitlines()
    others = [line for line in lines if not _is_named(line, identity)]
    if any(_field(line, 2) == str(identity.uid) for line in others):
        # The uid is a system account's too: whoever asks for it gets the first line.
        return _join([passwd_line(identity), *others])
    return _join(_put(lines, passwd_line(identity), identity))


def render_group(text: str, identity: Identity) -> str:
    """A group file in which the user's groups have names, and have the user as a member."""
    lines = _put(text.splitlines(), f"{identity.name}:x:{identity.gid}:", identity)
    for gid in identity.groups:
        if gid != identity.gid:
            _add_member(lines, gid, identity.name)
    return _join(lines)


def _write_extrausers(identity: Identity, folder: Path) -> None:
    own_groups = render_group(_read(ETC / "group") or "", identity).splitlines()
    mine = [line for line in own_groups if _is_mine(line, identity)]
    write_file(folder / "passwd", _join([passwd_line(identity)]).encode(), 0o644)
    write_file(folder / "group", _join(mine).encode(), 0o644)
    # `*`: no password fits, and the account is not locked, which sshd would refuse.
    write_file(folder / "shadow", f"{identity.name}:*:19000:0:99999:7:::\n".encode(), 0o600)


def _agree_in_etc(identity: Identity) -> bool:
    """`docker exec -u user` and libraries without nss read /etc/passwd itself."""
    return _rewrite(ETC / "passwd", lambda text: render_passwd(text, identity)) and _rewrite(
        ETC / "group", lambda text: render_group(text, identity)
    )


def _rewrite(path: Path, render: Callable[[str], str]) -> bool:
    """False where the file is a mount, a link, or on a read-only disk: then it is somebody's wish."""
    old = _read(path)
    if old is None:
        return False
    new = render(old)
    if new == old:
        return True
    try:
        seen = os.lstat(path)
        write_file(path, os.fsencode(new), stat.S_IMODE(seen.st_mode), seen.st_uid, seen.st_gid)
    except OSError:
        return False
    return True


def _wrap(identity: Identity, rundir: Path, preload: str) -> dict[str, str]:
    library = _find_wrapper()
    if library is None:
        log.warn(f"uid {identity.uid} has no name: libnss_wrapper.so, which would give it one, is missing")
        return {}
    passwd = render_passwd(_read(ETC / "passwd") or "", identity)
    group = render_group(_read(ETC / "group") or "", identity)
    write_file(rundir / "passwd", os.fsencode(passwd), 0o644)
    write_file(rundir / "group", os.fsencode(group), 0o644)
    return {
        "LD_PRELOAD": f"{library}:{preload}" if preload else library,
        "NSS_WRAPPER_PASSWD": str(rundir / "passwd"),
        "NSS_WRAPPER_GROUP": str(rundir / "group"),
    }


def _find_wrapper() -> Optional[str]:
    return next((path for pattern in _WRAPPER for path in sorted(glob.glob(pattern))), None)


def _add_member(lines: list[str], gid: int, name: str) -> None:
    for number, line in enumerate(lines):
        if _field(line, 2) == str(gid):
            members = [member for member in _field(line, 3).split(",") if member]
            if name not in members:
                lines[number] = line.rstrip(",") + ("," if members else "") + name
            return
    lines.append(f"group{gid}:x:{gid}:{name}")


def _put(lines: list[str], new: str, identity: Identity) -> list[str]:
    """The lines with the user's own one replaced, or added."""
    if not any(_is_named(line, identity) for line in lines):
        return [*lines, new]
    return [new if _is_named(line, identity) else line for line in lines]


def _is_named(line: str, identity: Identity) -> bool:
    return line.startswith(f"{identity.name}:")


def _is_mine(line: str, identity: Identity) -> bool:
    return _is_named(line, identity) or identity.name in _field(line, 3).split(",")


def _field(line: str, number: int) -> str:
    fields = line.split(":")
    return fields[number] if number < len(fields) else ""


def _join(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _read(path: Path) -> Optional[str]:
    """A regular file's text; None for anything else."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        return os.fsdecode(file.read()) if stat.S_ISREG(os.fstat(fd).st_mode) else None
