"""`make logs`: what the container said; on a terminal it goes on until Ctrl-C."""

from __future__ import annotations

from scripts import container, process, ui
from scripts.engine import find_engine


def main() -> int:
    """Show the logs of the container, running or stopped."""
    engine = find_engine()
    found = container.find(engine, container.name()) if engine else None
    if engine is None or found is None:
        raise ui.UserError("there is no container to read", f"{container.name()}: no such container", "make run")
    follow = ["--follow"] if ui.terminal() and found.running else []
    process.become(engine.command("logs", *follow, "--tail", "200", found.name))


if __name__ == "__main__":
    ui.entry("logs", main)
