"""The one place from which the host's programs start other programs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, NoReturn

NOT_FOUND = 127
TIMED_OUT = 124


@dataclass(frozen=True)
class Result:
    """How a program ended, and what it said."""

    code: int
    out: str = ""
    err: str = ""

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def last_words(self) -> str:
        """Give the last lines it said, stderr before stdout: what a message quotes as `seen`."""
        text = self.err.strip() or self.out.strip()
        return "\n".join(text.splitlines()[-5:]) or f"exit code {self.code} and no message"


def capture(command: Sequence[str], timeout: float = 60, environ: Mapping[str, str] | None = None) -> Result:
    """Run a program and collect what it says. Never raises: a missing program is code 127."""
    try:
        done = subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env=environ and dict(environ),
            check=False,
        )
    except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
        return Result(NOT_FOUND, err=str(error))
    except subprocess.TimeoutExpired:
        return Result(TIMED_OUT, err=f"{' '.join(command[:3])}: no answer in {timeout:.0f} s")
    return Result(done.returncode, done.stdout, done.stderr)


def stream(
    command: Sequence[str],
    log: Path,
    on_line: Callable[[str], None],
    environ: Mapping[str, str] | None = None,
) -> Result:
    """Run a program, keep all it says in `log`, and hand each line on. The result has the last lines."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("w", encoding="utf-8") as book,
        subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environ and dict(environ),
        ) as child,
    ):
        assert child.stdout is not None
        try:
            for line in child.stdout:
                book.write(line)
                book.flush()
                on_line(line.rstrip("\n"))
        except BaseException:
            child.terminate()
            raise
    return Result(child.returncode, out="\n".join(tail(log, 40)))


def pipe(first: Sequence[str], second: Sequence[str], log: Path, environ: Mapping[str, str]) -> tuple[Result, Result]:
    """Run `first | second`, no shell between them; what `first` says beside its data goes to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("wb") as book,
        subprocess.Popen(
            list(first), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=book, env=dict(environ)
        ) as left,
    ):
        right = subprocess.run(list(second), stdin=left.stdout, capture_output=True, text=True, check=False)
        assert left.stdout is not None
        left.stdout.close()  # when `second` ended early, `first` must not wait for a reader for ever
    return Result(left.returncode, err="\n".join(tail(log, 20))), Result(right.returncode, right.stdout, right.stderr)


def become(command: Sequence[str]) -> NoReturn:
    """Replace this program by another: its signals, terminal and exit code are then the user's."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(command[0], list(command))


def wait_until(ready: Callable[[], bool], seconds: float, pause: float = 0.25) -> bool:
    """Ask again and again, for at most so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        if ready():
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)


def tail(path: Path, lines: int) -> list[str]:
    """Give the last lines of a file that may be missing."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
    except OSError:
        return []
