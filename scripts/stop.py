"""`make stop`: stop the container; what is in it stays for the next `make run`."""

from __future__ import annotations

from scripts import container, ui
from scripts.engine import find_engine

SECONDS_TO_STOP = 15  # the container itself gives running work 8 s to save


def main() -> int:
    """Stop the container if it runs."""
    engine = find_engine()
    found = container.find(engine, container.name()) if engine else None
    if engine is None or found is None or not found.running:
        ui.say(f"Nothing to stop: {container.name()} does not run.")
        return 0
    done = engine.ask("stop", "-t", str(SECONDS_TO_STOP), found.name, timeout=SECONDS_TO_STOP + 30)
    if not done.ok:
        raise ui.UserError(f"{found.name} could not be stopped", done.last_words, f"{engine.kind} kill {found.name}")
    ui.say(f"Stopped {found.name}. `make run` starts it again, with all that is in it.")
    return 0


if __name__ == "__main__":
    ui.entry("stop", main)
