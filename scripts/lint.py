"""`make lint`: every checker over every file it knows. Runs in .venv, whose lock pins the checkers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from scripts import names, ui

NOT_OURS = {names.ROOT / ".git", names.VENV, names.LOGS, names.CODE}
CACHES = {"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", "node_modules"}
TOOLS = Path(sys.executable).parent


def main() -> int:
    """Run all checkers, also after one found something."""
    failed = [command[0] for command in commands() if not clean(command)]
    if failed:
        raise ui.UserError("the checkers are not content", f"findings above, of: {', '.join(failed)}", "mend them")
    return 0


def commands() -> list[list[str]]:
    """List each checker with its arguments; one that has no file to read is left out."""
    shell = [str(path) for path in files() if is_shell(path)]
    yaml = [str(path) for path in files() if path.suffix in (".yml", ".yaml")]
    return [
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["mypy"],
        ["hadolint", "Dockerfile"],
        *([["shellcheck", *shell]] if shell else []),
        *([["yamllint", "--strict", *yaml]] if yaml else []),
    ]


def clean(command: list[str]) -> bool:
    """Run one checker from .venv."""
    ui.say(f"-> {' '.join(command[:3])}")
    return subprocess.run([str(TOOLS / command[0]), *command[1:]], cwd=names.ROOT, check=False).returncode == 0


def files(folder: Path = names.ROOT) -> Iterator[Path]:
    """Walk through the repository's own files, relative to its root."""
    for path in sorted(folder.iterdir()):
        if path in NOT_OURS or path.name in CACHES or path.is_symlink():
            continue
        if path.is_dir():
            yield from files(path)
        else:
            yield path.relative_to(names.ROOT)


def is_shell(path: Path) -> bool:
    """Tell a shell program by its first line or its name."""
    with (names.ROOT / path).open("rb") as file:
        first = file.readline(64)
    return path.suffix == ".sh" or (first.startswith(b"#!") and first.split()[-1].split(b"/")[-1] in (b"sh", b"bash"))


if __name__ == "__main__":
    ui.entry("lint", main)
