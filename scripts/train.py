"""`make train`: train on Fashion-MNIST in a container of its own; the results land in ./code/runs/<name>."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Mapping

from scripts import container, names, process, run, ui
from scripts.engine import Engine, gpu_options, identity_options

PASSED = ("REQUIRE_GPU", "TZ")


def main() -> int:
    """Become the training: its progress, Ctrl-C and exit code are the caller's."""
    name = run_name(os.environ)
    engine, image = run.ensure_image(os.environ.get("IMAGE", ""))
    folder = container.code_folder()
    container.say_owner(engine, folder)
    gpus, said = gpu_options(engine)
    ui.say(said)
    ui.say(f"The results will be in {folder / 'runs' / name}")
    settings = container.setting_options({key: os.environ[key] for key in PASSED if key in os.environ})
    more = [*gpus, *identity_options(engine), *settings]
    process.become(train_command(engine, image, name, more, os.environ))


def run_name(environ: Mapping[str, str]) -> str:
    """Give the run its name: RUN, or one with the time."""
    name = environ.get("RUN") or f"fashion-mnist-{time.strftime('%Y%m%d-%H%M%S')}"
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
        raise ui.UserError(
            "RUN must be a plain name: letters, digits, dot, dash, underscore",
            f"RUN={name}",
            "make train RUN=first",
            64,
        )
    return name


def train_command(engine: Engine, image: str, name: str, more: list[str], environ: Mapping[str, str]) -> list[str]:
    """Write the command; TRAIN_ARGS come last, so that they win."""
    try:
        given = shlex.split(environ.get("TRAIN_ARGS", ""))
    except ValueError as error:
        raise ui.UserError(
            "TRAIN_ARGS cannot be read as arguments", f"{error}: {environ['TRAIN_ARGS']}", "close the quotes", 64
        ) from None
    return engine.command(
        "run",
        "--rm",
        *container.terminal_options(),
        *("--name", f"{names.CONTAINER}-train-{name}"),
        *("--label", names.LABEL),
        *("--volume", f"{names.CODE}:/workspace/code"),
        *more,
        image,
        "train",
        *("--data", "fashion-mnist"),
        *("--out", f"/workspace/code/runs/{name}"),
        *given,
    )


if __name__ == "__main__":
    ui.entry("train", main)
