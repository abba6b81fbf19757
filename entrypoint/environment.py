"""The environment of the user's processes, in bytes: odd names and values must survive exactly."""

from __future__ import annotations

import os
from collections.abc import Mapping

from entrypoint.errors import StartError
from entrypoint.settings import BY_NAME, TABLE, is_service_link

# The image's own PATH, for a container that was started with an empty one.
PATH = (
    b"/opt/pytorch-cuda/bin:/opt/conda/envs/pytorch/bin:/opt/conda/bin:"
    b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)
SHELL = b"/bin/bash"


def read_container_environment(pid: int, proc: str = "/proc") -> dict[bytes, bytes]:
    """What the engine gave the container: this process was started with an empty environment."""
    path = f"{proc}/{pid}/environ"
    try:
        with open(path, "rb") as file:
            return parse_environ(file.read())
    except OSError as error:
        raise StartError(
            "the container's environment cannot be read",
            f"{path}: {error.strerror}",
            "start the image with its own ENTRYPOINT (no --entrypoint), whose first process is tini",
        ) from error


def parse_environ(data: bytes) -> dict[bytes, bytes]:
    """Split what /proc/<pid>/environ holds; of two variables of one name getenv() sees the first."""
    environ: dict[bytes, bytes] = {}
    for entry in data.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and name:
            environ.setdefault(name, value)
    return environ


def user_environment(
    container: Mapping[bytes, bytes], name: str, home: str, extra: Mapping[str, str], keep_secrets: bool
) -> dict[bytes, bytes]:
    """The container's variables, with the user's identity and what `extra` adds.

    `keep_secrets` is for commands that are run unchanged: there the variables are the command's own.
    """
    environ = {key: value for key, value in container.items() if keep_secrets or key not in _secret_names()}
    for setting in BY_NAME:
        if is_service_link(setting, container):
            environ.pop(setting.encode(), None)
    environ[b"HOME"] = os.fsencode(home)
    environ[b"USER"] = environ[b"LOGNAME"] = os.fsencode(name)
    environ[b"SHELL"] = SHELL
    environ[b"PATH"] = environ.get(b"PATH") or PATH
    for key, value in extra.items():
        environ[os.fsencode(key)] = os.fsencode(value)
    return environ


def _secret_names() -> frozenset[bytes]:
    """The secrets, and the variables that tell where a secret lies."""
    names = [setting.name for setting in TABLE if setting.secret]
    return frozenset(text.encode() for name in names for text in (name, f"{name}_FILE"))
