"""`make down`: stop and remove what `make up` started; the volumes and ./code stay for the next `make up`."""

from __future__ import annotations

import os

from scripts import compose, names, process, ui


def main() -> int:
    """Take the service down."""
    engine = compose.find_docker()
    used = compose.files(with_gpu=False)  # the same service in both forms; this one is valid on every machine
    lab = compose.read(engine, used, os.environ)
    down = compose.command(engine, used, "down")
    with ui.steps.step("stop the service", "running work gets its time to save"):
        done = process.stream(down, names.LOGS / "compose-down.log", lambda line: None, os.environ)
    if not done.ok:
        raise ui.UserError(
            "compose could not stop the service", done.last_words, f"{engine.kind} rm -f {lab.container}"
        )
    ui.say(f"Kept: {names.CODE}, and the volumes {', '.join(lab.volumes)}. `make up` starts it again with them.")
    return 0


if __name__ == "__main__":
    ui.entry("down", main)
