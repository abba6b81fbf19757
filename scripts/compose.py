"""The compose files: which of them this machine needs, and what is said about .env before compose reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts import names, process, ui
from scripts.engine import Engine, ensure_engine, find_engine
from scripts.ways_in import Published

FILE = names.ROOT / "docker-compose.yml"
WITHOUT_GPU = names.ROOT / "docker-compose.cpu.yml"
OF_THE_USER = names.ROOT / "docker-compose.override.yml"
ENV_FILE = names.ROOT / ".env"
SERVICE = "lab"
PROJECT_LABEL = "com.docker.compose.project"
_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?(\w+)\s*=\s*(.*)")
# What compose says when it took a part of a value for a variable.
_EATEN = re.compile(r"variable is not set")


@dataclass(frozen=True)
class Lab:
    """What compose makes of its files, .env and the environment."""

    project: str
    image: str
    container: str
    published: Published
    volumes: tuple[str, ...]


def find_docker() -> Engine:
    """Find a Docker with compose."""
    engine = find_engine() or ensure_engine()
    if engine.kind != "docker":
        raise ui.UserError("compose needs Docker", f"the engine here is {engine.kind}", "make run   (needs no compose)")
    answer = engine.ask("compose", "version", "--short")
    if not answer.ok:
        raise ui.UserError(
            "this Docker has no compose",
            answer.last_words,
            "make run needs none. To install it: the package docker-compose (Debian 13), docker-compose-v2 (Ubuntu)\n"
            "or docker-compose-plugin (Docker's own repository)",
        )
    return engine


def files(with_gpu: bool) -> list[Path]:
    """List the files that this machine needs; the user's own comes last, so that it wins."""
    return [FILE, *([] if with_gpu else [WITHOUT_GPU]), *([OF_THE_USER] if OF_THE_USER.is_file() else [])]


def command(engine: Engine, used: Sequence[Path], *arguments: str) -> list[str]:
    """Write a compose command line; the files are always named, wherever it is called from."""
    return engine.command("compose", *(part for file in used for part in ("--file", str(file))), *arguments)


def read(engine: Engine, used: Sequence[Path], environ: Mapping[str, str], env_file: Path = ENV_FILE) -> Lab:
    """Let compose put all together, and take what we need from its answer."""
    answer = process.capture(command(engine, used, "config", "--format", "json"), environ=environ)
    if not answer.ok:
        raise ui.UserError("compose cannot read its files", answer.last_words, "mend what it names, or .env")
    if _EATEN.search(answer.err):
        raise _eaten(env_file)
    seen: dict[str, Any] = json.loads(answer.out)
    lab = seen["services"][SERVICE]
    return Lab(
        project=seen["name"],
        image=lab["image"],
        container=lab["container_name"],
        published=Published.parse(lab["labels"]["pytorch-cuda.published"]) or Published(),
        volumes=tuple(volume["name"] for volume in seen["volumes"].values()),
    )


def _eaten(env_file: Path) -> ui.UserError:
    """Name the variables, never their values: what compose took away may be a secret."""
    wrong = [name for name, value in assignments(env_file) if "$" in value and not value.startswith("'")]
    return ui.UserError(
        "compose takes the $ in a value for the beginning of a variable's name",
        f"{env_file}: {', '.join(wrong)}" if wrong else "a $ in one of the compose files",
        "put the value into single quotes: NAME='...'" if wrong else "write $$ for each $ there",
        64,
    )


def assignments(env_file: Path = ENV_FILE) -> Iterator[tuple[str, str]]:
    """Read the names that .env sets, and the raw texts behind them."""
    try:
        text = env_file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise ui.UserError(
            f"{env_file} cannot be read", str(error), "save it as UTF-8 text, readable for you"
        ) from None
    for line in text.splitlines():
        if match := _ASSIGNMENT.match(line):
            yield match[1], match[2]


def say_line_ends(env_file: Path = ENV_FILE) -> None:
    """Compose takes the CR of a Windows line end off; `docker run --env-file` and shells do not."""
    if env_file.is_file() and b"\r" in env_file.read_bytes():
        ui.say(
            f"{env_file} has Windows line ends (CR LF): compose takes the CR off, other programs keep it in the values."
        )
        ui.say(f"  to mend it: sed -i 's/\\r$//' {env_file}")
