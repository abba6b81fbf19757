"""The container that `make run` starts: what is known of it, and what its commands share."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts import names, ui
from scripts.engine import Engine, caller, find_engine

RUN_DIRECTORY = "/run/pytorch-cuda"
# Given by the caller, these reach the container by name, so that no value stands in a command line.
# SSH_PORT and JUPYTER_PORT are not among them: on the host SSH_PORT and PORT say where they are published.
PASSED_BY_NAME = (
    "MODE",
    "JUPYTER_TOKEN",
    "JUPYTER_PASSWORD_HASH",
    "JUPYTER_AUTH",
    "JUPYTER_BASE_URL",
    "REQUIRE_GPU",
    "TZ",
)


@dataclass(frozen=True)
class Container:
    """A container that exists, running or not."""

    name: str
    id: str
    image_id: str
    running: bool
    settings: str
    exit_code: int = 0


def name() -> str:
    """Give the container's name: NAME, or the usual one."""
    return os.environ.get("NAME") or names.CONTAINER


def find(engine: Engine, wanted: str) -> Container | None:
    """Look the container up by its name."""
    answer = engine.ask("container", "inspect", wanted)
    if not answer.ok:
        return None
    seen: dict[str, Any] = json.loads(answer.out)[0]
    return Container(
        name=wanted,
        id=seen["Id"],
        image_id=_bare(seen["Image"]),
        running=bool(seen["State"]["Running"]),
        settings=(seen["Config"].get("Labels") or {}).get("pytorch-cuda.settings", ""),
        exit_code=int(seen["State"].get("ExitCode") or 0),
    )


def _bare(image_id: str) -> str:
    """Leave the digest's algorithm out: Docker writes it, Podman does not."""
    return image_id.split(":")[-1]


def same_image(engine: Engine, container: Container, image: str) -> bool:
    """Tell whether the container was made from what the image's name means now."""
    return container.image_id == _bare(engine.image_id(image) or "")


def running(verb: str) -> tuple[Engine, Container]:
    """Give the running container for a command that needs one."""
    engine = find_engine()
    container = find(engine, name()) if engine else None
    if engine is None or container is None or not container.running:
        state = "no container engine answers" if engine is None else f"{name()}: no such container"
        if container is not None:
            state = f"{name()} is stopped"
        raise ui.UserError(f"there is no running container to {verb}", state, f"make run{_with_name()}")
    return engine, container


def _with_name() -> str:
    return "" if name() == names.CONTAINER else f" NAME={name()}"


def terminal_options() -> list[str]:
    """Give -it on a terminal, else -i: output that goes to a file or pipe must stay plain."""
    return ["-it"] if ui.terminal() else ["-i"]


def by_name(environ: Mapping[str, str]) -> list[str]:
    """Pass the caller's settings on. An empty token too: the image explains why that is an error."""
    return [part for variable in PASSED_BY_NAME if variable in environ for part in ("-e", variable)]


def code_folder(path: Path = names.CODE) -> Path:
    """Make ./code before the engine would make it as root's, and say whose its files will be."""
    uid, gid = caller()
    if not path.exists():
        path.mkdir()
        if os.getuid() == 0 and uid:
            os.chown(path, uid, gid)
    if not path.is_dir():
        raise ui.UserError(f"{path} must be a folder", "it is a file", f"mv {path} {path}.old")
    return path


def say_owner(engine: Engine, path: Path) -> None:
    """Say whose the new files will be, where that is not simply the caller."""
    if caller()[0] == 0 and not engine.rootless:
        owner = path.stat().st_uid
        kept = owner if owner not in (0, 65534) else 1000
        ui.say(f"Called by root: files in {path} will belong to uid {kept}, because nothing runs as root inside.")
