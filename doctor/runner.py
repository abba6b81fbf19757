"""Runs a program with a time limit that holds even when the program cannot be killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

NOT_FOUND = 127
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Ran:
    """How a program ended and what it said."""

    code: int
    out: str = ""
    err: str = ""
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        """Whether it ended well."""
        return self.code == 0 and not self.timed_out

    @property
    def last_line(self) -> str:
        """Its last word, stderr before stdout."""
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return lines[-1].strip() if lines else f"exit code {self.code} and no message"


def run(command: Sequence[str], seconds: float, environ: Optional[Mapping[str, str]] = None) -> Ran:
    """Run it, collect what it says, and come back after `seconds` at the latest.

    Files instead of pipes, and no wait without a limit: a process that hangs inside the driver cannot be
    killed, and waiting for it would hang the doctor too.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            child = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=None if environ is None else dict(environ),
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            return Ran(NOT_FOUND, err=f"{command[0]}: {error.strerror or error}")
        timed_out = not _ends(child, seconds)
        if timed_out:
            _kill(child)
        code = child.returncode if child.returncode is not None else -int(signal.SIGKILL)
        return Ran(code, _text(out.fileno()), _text(err.fileno()), timed_out)


def _ends(child: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _kill(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    _ends(child, 0.5)


def _text(fd: int) -> str:
    return os.pread(fd, _MOST_BYTES, 0).decode("utf-8", "replace")
