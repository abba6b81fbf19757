"""The keys by which clients know this sshd again: made at the first start, kept where a volume is mounted."""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Optional

from entrypoint.errors import StartError
from entrypoint.folders import NEW_FILE, open_folder
from entrypoint.log import warn
from entrypoint.rundir import make_folder, write_file
from entrypoint.secrets import UnreadableError, read_as_root

FOLDER = "/etc/ssh/host_keys"
KEYGEN = "/usr/bin/ssh-keygen"
# RSA for clients that are too old for ed25519.
TYPES = {"ed25519": (), "rsa": ("-b", "3072")}
CLEAN_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


def prepare_host_keys(rundir: Path, folder: str = FOLDER) -> dict[str, str]:
    """Path of each host key -> its fingerprint; beside it lies the public one, for whoever asks the container.

    sshd reads copies in the run directory: a volume may show its files with any owner and mode.
    """
    ours = make_folder(rundir / "host_keys")
    kept = {kind: _read_kept(f"{folder}/{_name(kind)}") for kind in TYPES}
    made = _make([kind for kind, key in kept.items() if key is None], ours)
    for kind, key in kept.items():
        if key is not None:
            write_file(ours / _name(kind), key, 0o600)
    fingerprints = {str(ours / _name(kind)): _publish(ours, kind, folder) for kind in TYPES}
    _keep(folder, made)
    return fingerprints


def _name(kind: str) -> str:
    return f"ssh_host_{kind}_key"


def _read_kept(path: str) -> Optional[bytes]:
    """The key of an earlier start; None where there is none."""
    if not os.path.lexists(path):
        return None
    try:
        return read_as_root(path)
    except UnreadableError as error:
        raise _unusable(path, str(error)) from None


def _unusable(path: str, seen: str) -> StartError:
    return StartError(
        "a host key of sshd cannot be used",
        f"{path}: {seen}",
        f"put the right key there; or remove {path}, and a new one is made (clients will be warned that it changed)",
    )


def _make(kinds: list[str], ours: Path) -> dict[str, bytes]:
    """Make the missing keys, all at once: a long RSA key may take a second."""
    running = []
    for kind in kinds:
        path = ours / _name(kind)
        path.unlink(missing_ok=True)
        command = [KEYGEN, "-q", "-t", kind, *TYPES[kind], "-N", "", "-C", "pytorch-cuda", "-f", str(path)]
        running.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, env=CLEAN_ENVIRONMENT))
    if any([child.wait() for child in running]):
        raise StartError("no host key could be made", f"{KEYGEN} failed", "its own words stand above")
    return {kind: (ours / _name(kind)).read_bytes() for kind in kinds}


def _keep(folder: str, made: dict[str, bytes]) -> None:
    """Store new keys for the next start; where that fails the container runs all the same."""
    try:
        with open_folder(folder) as fd:
            for kind, key in made.items():
                _store(fd, _name(kind), key)
    except OSError as error:
        why = "the disk is read-only" if error.errno == errno.EROFS else (error.strerror or str(error)).lower()
        warn(
            f"the host keys cannot be kept in {folder} ({why}): the next start makes others, and ssh clients will be "
            f"warned that they changed. Mount a volume that root can write: docker run -v NAME:{folder} ..."
        )


def _store(folder: int, name: str, key: bytes) -> None:
    """Whole or not at all, and never through a link: the folder may be open to others."""
    new = f".{name}.{os.urandom(8).hex()}"
    try:
        with os.fdopen(os.open(new, NEW_FILE, 0o600, dir_fd=folder), "wb") as file:
            file.write(key)
        os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with suppress(OSError):
            os.unlink(new, dir_fd=folder)
        raise


def _publish(ours: Path, kind: str, folder: str) -> str:
    """Write the public key down; returns its fingerprint as a client shows it at the first login."""
    command = [KEYGEN, "-y", "-f", str(ours / _name(kind))]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=CLEAN_ENVIRONMENT, check=False)
    field = done.stdout.split()
    if done.returncode or len(field) < 2:
        raise _unusable(f"{folder}/{_name(kind)}", "ssh-keygen does not take it for a key without a passphrase")
    write_file(ours / f"{_name(kind)}.pub", b" ".join(field[:2]) + b"\n", 0o644)
    digest = base64.b64encode(hashlib.sha256(base64.b64decode(field[1])).digest()).decode().rstrip("=")
    return f"{kind.upper()} SHA256:{digest}"
