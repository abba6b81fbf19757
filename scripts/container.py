"""The containers that `make run` and `make train` start: what is known of one, and what goes into each."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entrypoint.settings import TABLE
from scripts import names, ui
from scripts.engine import Engine, caller, find_engine

RUN_DIRECTORY = "/run/pytorch-cuda"
# What `docker exec` runs as root is static and named by its whole path: the user may put programs first on PATH, and
# libraries into LD_LIBRARY_PATH.
READ = ("/bin/busybox", "cat")
SHELL = ("/bin/busybox", "sh", "-c")
PUBLISHED_LABEL = "pytorch-cuda.published"
# Not passed on: PUID and PGID are the caller's ids; inside, the ports stay the usual ones, and on the host PORT and
# SSH_PORT say where they are published.
NOT_PASSED = ("PUID", "PGID", "SSH_PORT", "JUPYTER_PORT", "CODE_PORT")
VALUES = (*(row.name for row in TABLE if row.kind != "path" and row.name not in NOT_PASSED), "TZ")
FILES = (
    *(f"{row.name}_FILE" for row in TABLE if row.by_file),
    *(row.name for row in TABLE if row.kind == "path"),
)


@dataclass(frozen=True)
class Container:
    """A container that exists, running or not."""

    name: str
    image_id: str
    running: bool
    exit_code: int
    published: str
    environ: Mapping[str, str]


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
        image_id=_bare(seen["Image"]),
        running=bool(seen["State"]["Running"]),
        exit_code=int(seen["State"].get("ExitCode") or 0),
        published=(seen["Config"].get("Labels") or {}).get(PUBLISHED_LABEL, ""),
        environ=dict(pair.split("=", 1) for pair in seen["Config"].get("Env") or [] if "=" in pair),
    )


def _bare(image_id: str) -> str:
    """Leave the digest's algorithm out: Docker writes it, Podman does not."""
    return image_id.split(":")[-1]


def is_from(engine: Engine, container: Container, image: str) -> bool:
    """Tell whether the container was made from what the image's name means now."""
    return container.image_id == _bare(engine.image_id(image) or "")


def running(purpose: str) -> tuple[Engine, Container]:
    """Give the running container for a command that needs one."""
    engine = find_engine()
    container = find(engine, name()) if engine else None
    if engine and container and container.running:
        return engine, container
    if engine is None:
        seen = "no container engine answers"
    else:
        seen = f"{name()} is stopped" if container else f"there is no container {name()}"
    extra = "" if name() == names.CONTAINER else f" NAME={name()}"
    raise ui.UserError(f"there is no running container to {purpose}", seen, f"make run{extra}")


def terminal_options() -> list[str]:
    """Give -it on a terminal, else -i: output that goes to a file or pipe must stay plain."""
    return ["-it"] if ui.terminal() else ["-i"]


def given(environ: Mapping[str, str]) -> dict[str, str]:
    """Collect the image's settings that the caller gave. An empty token too: the image explains that error."""
    return {variable: environ[variable] for variable in VALUES if variable in environ}


def setting_options(environ: Mapping[str, str]) -> list[str]:
    """Pass settings on: values by name, so that none stands in a command line; files as read-only mounts."""
    options = [part for variable in given(environ) for part in ("-e", variable)]
    for variable in FILES:
        if environ.get(variable):
            path = Path(environ[variable]).expanduser().resolve()
            if not path.is_file():
                raise ui.UserError(
                    f"{variable} must name a file", f"{variable}={environ[variable]}", "mend the path", 64
                )
            inside = f"/run/secrets/{variable.lower()}"
            options += ["--volume", f"{path}:{inside}:ro", "-e", f"{variable}={inside}"]
    return options


def code_folder(path: Path = names.CODE) -> Path:
    """Make ./code before the engine would make it as root's."""
    uid, gid = caller()
    if not path.exists():
        path.mkdir()
        if os.getuid() == 0 and uid:
            os.chown(path, uid, gid)
    if not path.is_dir():
        raise ui.UserError(f"{path} must be a folder", "it is something else", f"mv {path} {path}.old")
    return path


def say_owner(engine: Engine, path: Path) -> None:
    """Say whose the new files will be, where that is not simply the caller."""
    if caller()[0] == 0 and not engine.rootless:
        owner = path.stat().st_uid
        kept = owner if owner not in (0, 65534) else 1000
        ui.say(f"Called by root: files in {path} will belong to uid {kept}, because nothing runs as root inside.")
