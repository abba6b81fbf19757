"""`make shell`: a shell in the running container, as its user."""

from __future__ import annotations

from scripts import container, process, ui


def main() -> int:
    """Become the shell: its terminal, signals and exit code are the caller's."""
    engine, found = container.running("open a shell in")
    options = container.terminal_options()
    process.become(engine.command("exec", *options, "--user", "user", "--workdir", "/workspace", found.name, "bash"))


if __name__ == "__main__":
    ui.entry("shell", main)
