"""`--fix`: what can be mended without harm. It makes missing folders of the user's own and closes open modes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from doctor.patient import Patient
from doctor.services import run_folder

_FOLDERS = (".cache", ".config", ".local/share")


def repair(patient: Patient) -> list[str]:
    """Mend, and say in one line each what was done."""
    return [*_make_folders(patient), *_close_modes(patient)]


def _make_folders(patient: Patient) -> Iterator[str]:
    if not patient.home or not os.path.isdir(patient.path(patient.home)):
        return
    for name in _FOLDERS:
        path = os.path.join(patient.home, name)
        if not patient.exists(path):
            try:
                os.makedirs(patient.path(path), exist_ok=True)
            except OSError:
                continue  # the check for the home says why
            yield f"made {path}"


def _close_modes(patient: Patient) -> Iterator[str]:
    """ssh refuses a ~/.ssh that others may write, and a private key that they may read."""
    ssh = os.path.join(patient.home or "/nonexistent", ".ssh")
    private = [f"{ssh}/{name}" for name in patient.names(ssh) if name.startswith("id_") and not name.endswith(".pub")]
    for path, wanted in (
        (ssh, 0o700),
        *((one, 0o600) for one in private),
        (f"{run_folder(patient)}/token", 0o600),
    ):
        try:
            seen = os.lstat(patient.path(path))
            own = seen.st_uid == patient.uid and not stat.S_ISLNK(seen.st_mode)
            if own and stat.S_IMODE(seen.st_mode) & ~wanted & 0o077:
                os.chmod(patient.path(path), wanted)
                yield f"gave {path} mode {wanted:04o}"
        except OSError:
            continue
