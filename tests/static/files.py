"""The repository's own files, for tests that read all of them."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

from scripts import lint, names


def _git(*arguments: str) -> list[str]:
    """What git answers, line by line; nothing where the checkout is no repository of the caller's."""
    done = subprocess.run(["git", *arguments], cwd=names.ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


@functools.cache
def tracked() -> tuple[Path, ...]:
    """Paths, relative to the root: those git knows; without git (a downloaded archive) all that lie here."""
    known = [Path(line) for line in _git("-c", "core.quotePath=false", "ls-files")]
    return tuple(path for path in known or lint.files() if (names.ROOT / path).is_file())


def modes() -> dict[str, bool]:
    """Each file with "is it executable", as git has it; a checkout on Windows says nothing about that."""
    lines = _git("-c", "core.quotePath=false", "ls-files", "--stage")
    if lines:
        return {line.partition("\t")[2]: line.startswith("100755") for line in lines}
    return {path.as_posix(): bool((names.ROOT / path).stat().st_mode & 0o100) for path in tracked()}


def is_binary(path: Path) -> bool:
    """Tell a picture or a font from a text, as git does: by a zero byte."""
    return b"\0" in (names.ROOT / path).read_bytes()[:8000]


@functools.cache
def texts() -> dict[str, str]:
    """Every tracked text file by its name."""
    return {
        path.as_posix(): (names.ROOT / path).read_bytes().decode("utf-8") for path in tracked() if not is_binary(path)
    }


def python_files(*folders: str) -> list[Path]:
    """The Python files below some folders."""
    return [path for path in tracked() if path.suffix == ".py" and path.parts[0] in folders]
