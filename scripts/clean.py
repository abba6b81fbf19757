"""`make clean`: take away what the other commands made, but no work of the user's."""

from __future__ import annotations

import shutil

from scripts import names, ui
from scripts.engine import Engine, find_engine


def main() -> int:
    """Remove containers and images of this project, .venv and the build's logs."""
    engine = find_engine()
    if engine:
        remove_containers(engine)
        remove_images(engine)
    for folder in (names.VENV, names.LOGS):
        if folder.exists():
            shutil.rmtree(folder)
            ui.say(f"Removed {folder}")
    ui.say(f"Kept: {names.CODE}; the volumes of the homes ({names.CONTAINER}-home); the engine and its build cache.")
    return 0


def remove_containers(engine: Engine) -> None:
    """Remove the containers that `make run` and `make train` started, stopping those that run."""
    listed = engine.ask("ps", "--all", "--filter", f"label={names.LABEL}", "--format", "{{.Names}}")
    for name in listed.out.split():
        engine.ask("stop", "-t", "15", name)
        _removed(engine, "container", name)


def remove_images(engine: Engine) -> None:
    """Remove the images by their names; one that another container uses stays, and it is said."""
    for repository in (names.REPOSITORY, names.TEST_REPOSITORY, names.BASE_REPOSITORY):
        listed = engine.ask("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", repository)
        for image in listed.out.split():
            _removed(engine, "image", image)


def _removed(engine: Engine, kind: str, name: str) -> None:
    done = engine.ask(kind, "rm", name, timeout=120)
    ui.say(f"Removed the {kind} {name}" if done.ok else f"Kept the {kind} {name}: {done.last_words}")


if __name__ == "__main__":
    ui.entry("clean", main)
