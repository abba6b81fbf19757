"""The user's home: the one that is there if the user can write it, else one in /tmp; and its skeleton."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Optional

from entrypoint import log
from entrypoint.errors import StartError
from entrypoint.folders import NEW_FILE, open_folder
from entrypoint.identity import HOME, PLAIN, POWERLESS, Identity
from entrypoint.machine import is_mount_point, mount_point_of
from entrypoint.ownership import give_top_folder, try_writing
from entrypoint.privileges import run_as

SKELETON = "/opt/pytorch-cuda/skel"
TMP = "/tmp"


def prepare_home(identity: Identity, rundir: Path) -> str:
    """Find a home that the user can write, put the skeleton's files into it, return its path."""
    give_home(identity)
    give_ssh_folder(identity)
    home = _choose_home(identity, rundir)
    problem, executable = run_as(identity, lambda: [copy_skeleton(SKELETON, home), _is_executable(home)])
    if problem:
        log.warn(f"the home {home} lacks some files ({problem}). Free space there, or mount another volume")
    if not executable:
        remedy = "Start with --tmpfs /tmp:exec" if home.startswith(f"{TMP}/") else "Mount it without noexec"
        log.warn(f"the home {home} is mounted noexec, so torch.compile cannot work. {remedy}")
    return home


def give_ssh_folder(identity: Identity) -> None:
    """Make ~/.ssh the user's where the engine made it, as root's, to mount a file of keys into it.

    Nothing but that mount may be in it: else it might be another folder, which the user put there.
    """
    if not identity.drop or identity.mapped:
        return
    path = f"{identity.home}/.ssh"
    with suppress(OSError), open_folder(path) as fd:
        ours = mount_point_of(fd) == "/" and os.fstat(fd).st_uid == 0
        if ours and os.listdir(fd) == ["authorized_keys"] and is_mount_point(f"{path}/authorized_keys"):
            os.fchown(fd, identity.uid, identity.gid)


def give_home(identity: Identity) -> None:
    """Make the image's own home the user's, or an empty new volume. Never what lies in it."""
    if not identity.drop or identity.mapped:
        return
    # Read-only, no CAP_CHOWN, or not there: the trial tells whether it matters.
    with suppress(OSError), open_folder(identity.home) as fd:
        # On "/" it is the container's own folder; on any other mount it may be somebody's.
        if mount_point_of(fd) == "/" and os.fstat(fd).st_uid != identity.uid:
            os.fchown(fd, identity.uid, -1)
    give_top_folder(identity.home, identity)


def copy_skeleton(skeleton: str, home: str) -> Optional[str]:
    """Copy the files that are missing, as whoever runs this. Returns the first problem in words."""
    if not os.path.isdir(skeleton):
        return None
    try:
        # The home itself may be a link: the user may have it so, and this runs as the user.
        with open_folder(skeleton) as source, open_folder(home, follow=True) as target:
            _copy_folder(source, target)
    except OSError as error:
        return error.strerror
    return None


def _is_executable(folder: str) -> bool:
    return not os.statvfs(folder).f_flag & os.ST_NOEXEC


def _choose_home(identity: Identity, rundir: Path) -> str:
    if identity.profile == POWERLESS:
        return run_as(identity, lambda: _make_private(identity.home, identity.uid))
    wanted = dict.fromkeys((identity.home, HOME)) if identity.profile == PLAIN else (identity.home,)
    problems = []
    for home in wanted:
        problem = try_writing(home, identity)
        if problem is None:
            return home
        problems.append(f"{home} cannot be written by {identity.uid}:{identity.gid} ({problem.strerror})")
    home = _make_spare(identity, rundir)
    log.warn(f"{'; '.join(problems)}: the home is {home} and ends with the container. {_remedy(identity)}")
    return home


def _make_spare(identity: Identity, rundir: Path) -> str:
    path = str(rundir / "home") if identity.profile == PLAIN else f"{TMP}/pytorch-cuda-home-{identity.uid}"
    return run_as(identity, lambda: _make_private(path, identity.uid))


def _make_private(path: str, uid: int) -> str:
    """Make a folder of the user's in /tmp, where anybody may have made that name before."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        seen = os.lstat(path)
        if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != uid:
            path = f"{path}-{os.urandom(8).hex()}"
            os.mkdir(path, 0o700)
    except OSError as error:
        raise StartError(
            "there is no folder that the user's home could be in",
            f"{path}: {error.strerror}",
            "docker run --tmpfs /tmp:exec ...   (with --read-only --tmpfs /run), or -v NAME:/home/user",
        ) from error
    return path


def _remedy(identity: Identity) -> str:
    keep = "To keep one, mount a volume"
    if identity.profile == PLAIN:
        return f"{keep} that {identity.uid} can write at {HOME}, or start with --user {identity.uid}:0"
    return f"{keep} at {HOME} that {identity.uid} can write (on the host: sudo chown {identity.uid} FOLDER)"


def _copy_folder(source: int, target: int) -> None:
    with os.scandir(source) as entries:
        for entry in sorted(entries, key=lambda found: found.name):
            if entry.is_symlink():
                _copy_link(entry.name, source, target)
            elif entry.is_dir(follow_symlinks=False):
                _enter_folder(entry.name, source, target)
            elif entry.is_file(follow_symlinks=False):
                _copy_file(entry.name, source, target)


def _enter_folder(name: str, source: int, target: int) -> None:
    with suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=target)
    if not stat.S_ISDIR(os.stat(name, dir_fd=target, follow_symlinks=False).st_mode):
        return  # a link or a file of the user's in its place
    with open_folder(name, at=source) as below, open_folder(name, at=target) as there:
        _copy_folder(below, there)


def _copy_file(name: str, source: int, target: int) -> None:
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=source)
    with os.fdopen(fd, "rb") as file:
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
        try:
            new = os.open(name, NEW_FILE, mode, dir_fd=target)
        except FileExistsError:
            return
        try:
            with os.fdopen(new, "wb") as copy:
                copy.write(file.read())
        except OSError:
            os.unlink(name, dir_fd=target)  # half a file would stay for ever
            raise


def _copy_link(name: str, source: int, target: int) -> None:
    with suppress(FileExistsError):
        os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
