"""Start hooks: programs that whoever starts the container mounts, run as the user before the services."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

from entrypoint.errors import StartError
from entrypoint.log import warn
from entrypoint.privileges import UMASK

FOLDER = "/etc/pytorch-cuda/start.d"
_STDERR = 2


def find_hooks(folder: str = FOLDER) -> tuple[str, ...]:
    """The files of the folder in name order; Kubernetes keeps its own in names that begin with a dot."""
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return ()
    paths = (os.path.join(folder, name) for name in names if not name.startswith("."))
    return tuple(path for path in paths if os.path.isfile(path))


def run_hooks(paths: Sequence[str], environ: Mapping[bytes, bytes], cwd: str) -> None:
    """Run them one after the other until one fails. Called in a process that has become the user."""
    skipped = [path for path in paths if not os.access(path, os.X_OK)]
    if skipped:
        warn(f"start hooks without execute permission are skipped: {' '.join(skipped)}")
    for path in paths:
        if path not in skipped:
            _run(path, environ, cwd)


def _run(path: str, environ: Mapping[bytes, bytes], cwd: str) -> None:
    try:
        status = subprocess.run(
            [path],
            stdin=subprocess.DEVNULL,
            stdout=_STDERR,
            env=dict(environ),
            cwd=cwd,
            umask=UMASK,
            check=False,
        ).returncode
    except OSError as error:
        raise _failed(path, f"it could not be run: {(error.strerror or str(error)).lower()}", 126) from error
    if status < 0:
        raise _failed(path, f"it was ended by {signal.Signals(-status).name}", 128 - status)
    if status > 0:
        raise _failed(path, f"it ended with exit status {status}", status)


def _failed(path: str, reason: str, code: int) -> StartError:
    return StartError(
        f"the start hook {os.path.basename(path)} failed, so nothing was started",
        f"{path}: {reason}",
        "mend the hook, or unmount it; its own words stand above (it runs as the user, and needs a #! line)",
        code,
    )
