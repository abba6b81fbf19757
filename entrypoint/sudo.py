"""GRANT_SUDO=1: the user may become root without a password, and keeps the environment."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from entrypoint.identity import PLAIN, POWERLESS, Identity
from entrypoint.log import warn
from entrypoint.login_environment import SUDO_FILE, render_sudo
from entrypoint.rundir import write_file

FILE = "sudoers"  # /etc/sudoers.d/pytorch-cuda leads to it


def set_up_sudo(granted: bool, identity: Identity, environ: Mapping[bytes, bytes], rundir: Path) -> None:
    """Grant it, or take back what an earlier start of this container granted."""
    if not granted:
        for name in (FILE, SUDO_FILE):
            with suppress(FileNotFoundError):
                (rundir / name).unlink()
    elif identity.profile in (PLAIN, POWERLESS):
        warn("GRANT_SUDO=1 is not used: there is no root to become (leave --user and --cap-drop out; -e PUID=N)")
    else:
        write_file(rundir / SUDO_FILE, render_sudo(environ), 0o600)
        write_file(rundir / FILE, render_sudoers(identity.uid, rundir).encode(), 0o440)


def render_sudoers(uid: int, rundir: Path) -> str:
    """By uid: a system account may have the same number. HOME is root's, or root's files would fill the user's."""
    who = f"#{uid}"
    # `env_keep += "*"` would do but for LOGNAME, which would stay the user's.
    keep = f"!env_reset, !env_delete, !env_check, env_file={rundir / SUDO_FILE}"
    return f"Defaults:{who} {keep}, !secure_path, always_set_home\n{who} ALL=(ALL:ALL) NOPASSWD: ALL\n"
