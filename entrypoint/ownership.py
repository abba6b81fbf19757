"""The mounted work folder: given to the user where that is safe, tried out, and explained if it fails."""

from __future__ import annotations

import errno
import os
import stat
from typing import Optional

from entrypoint import log
from entrypoint.folders import NEW_FILE, open_folder
from entrypoint.identity import Identity
from entrypoint.machine import NOBODY, WORKSPACE, Machine, Owner, mount_point_of
from entrypoint.privileges import run_as


def prepare_workspace(identity: Identity, machine: Machine) -> None:
    """Give an empty mount to the user; then say, once, if the user still can not write."""
    folder = machine.mounted_folder or WORKSPACE
    if machine.mounted_folder and give_top_folder(folder, identity):
        log.say(f"{folder} was empty and root's: it belongs to {identity.uid}:{identity.gid} now")
    problem = try_writing(folder, identity)
    if problem:
        log.warn(explain(folder, problem, identity, machine))


def give_top_folder(path: str, identity: Identity) -> bool:
    """Rule 4: chown the top folder of exactly this mount, if it is empty and root's. Nothing below it."""
    if not identity.drop or identity.mapped:
        return False
    try:
        with open_folder(path) as fd:
            if mount_point_of(fd) != path or not _is_unused(fd):
                return False
            os.fchown(fd, identity.uid, identity.gid)
            return True
    except OSError:
        return False  # a link, a read-only or a squashed mount: the trial says so


def try_writing(path: str, identity: Identity) -> Optional[OSError]:
    """Make and remove a file as the user: neither modes nor `access` tell all about a mount."""
    try:
        run_as(identity, lambda: _touch(path))
    except OSError as error:
        return error
    return None


def explain(path: str, problem: OSError, identity: Identity, machine: Machine) -> str:
    """One line: what can not be written, what was seen, and the command that mends it."""
    seen, remedy = _seen(path, identity), _remedy(problem, identity, machine)
    return f"cannot write in {path} ({problem.strerror}): {seen}. {remedy}"


def _is_unused(fd: int) -> bool:
    """Whether an open folder is empty and nobody's: an engine makes a missing one so."""
    with os.scandir(fd) as entries:
        return os.fstat(fd).st_uid in (0, NOBODY) and next(entries, None) is None


def _touch(path: str) -> None:
    name = f".pytorch-cuda-{os.urandom(8).hex()}"
    with open_folder(path, follow=True) as folder:
        os.close(os.open(name, NEW_FILE, 0o600, dir_fd=folder))
        os.unlink(name, dir_fd=folder)


def _seen(path: str, identity: Identity) -> str:
    try:
        found = os.lstat(path)
    except OSError:
        return f"your programs run as {identity.uid}:{identity.gid}"
    owner = f"{found.st_uid}:{found.st_gid}, mode {stat.S_IMODE(found.st_mode):04o}"
    return f"it belongs to {owner}, and your programs run as {identity.uid}:{identity.gid}"


def _remedy(problem: OSError, identity: Identity, machine: Machine) -> str:
    if problem.errno == errno.EROFS:
        return "Mount a folder there that is not read-only: -v ./code:/workspace/code (without :ro)"
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Free some space on that disk"
    owner = machine.mounted_owner
    if owner is None:
        return f"Start with --user {identity.uid}:0, or mount a folder: -v ./code:/workspace/code"
    return _remedy_for_mount(identity, machine, owner)


def _remedy_for_mount(identity: Identity, machine: Machine, owner: Owner) -> str:
    on_host = "the folder that is mounted there"
    if owner.uid == identity.uid:
        return f"On the host: chmod u+rwx FOLDER   ({on_host})"
    if machine.rootless and owner.uid == 0:
        return "Leave out PUID and --user: in a rootless engine uid 0 inside is you"
    if machine.rootless and owner.uid == NOBODY:
        return f"On the host: sudo chown $(id -u) FOLDER   ({on_host}; a rootless engine writes in yours alone)"
    if owner.uid in (0, NOBODY):
        return f"On the host: sudo chown {identity.uid}:{identity.gid} FOLDER   ({on_host})"
    if machine.can_set_ids:
        return f"Start with -e PUID={owner.uid} -e PGID={owner.gid}, its owner"
    return f"Start with --user {owner.uid}:0, its owner"
