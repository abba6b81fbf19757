"""A program on a terminal of its own: what `-it`, a prompt and Ctrl-C need."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Optional

from tests.support.wait import BUDGETS, BudgetError

CTRL_C = b"\x03"


class Terminal:
    """Runs a command with a pseudo-terminal as its stdin, stdout and stderr."""

    def __init__(
        self, command: Sequence[str], cwd: Optional[str] = None, environ: Optional[Mapping[str, str]] = None
    ) -> None:
        self._ours, theirs = pty.openpty()
        self._seen = b""
        self._process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, env=environ, start_new_session=True
        )
        os.close(theirs)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._ours)

    @property
    def screen(self) -> str:
        """All that was written so far."""
        return self._seen.decode("utf-8", "backslashreplace")

    def press(self, keys: bytes) -> None:
        """Type."""
        os.write(self._ours, keys)

    def wait_for(self, pattern: str, what: str = "a line in the log") -> re.Match[str]:
        """Read until the pattern is on the screen."""
        deadline = time.monotonic() + BUDGETS[what]
        while True:
            found = re.search(pattern, self.screen)
            if found:
                return found
            assert self._read(deadline), f"ended before it showed {pattern!r}:\n{self.screen}"
            if time.monotonic() > deadline:
                raise BudgetError(f"no {pattern!r} within {BUDGETS[what]} s ({what}); seen:\n{self.screen}")

    def wait(self) -> int:
        """Read until the program ends; its exit code."""
        deadline = time.monotonic() + BUDGETS["a container to end"]
        while self._read(deadline):
            if time.monotonic() > deadline:
                raise BudgetError(f"still running after {BUDGETS['a container to end']} s; seen:\n{self.screen}")
        return self._process.wait(timeout=10)

    def _read(self, deadline: float) -> bool:
        """Take what there is; False when the other end is closed."""
        ready, _, _ = select.select([self._ours], [], [], max(0.0, min(0.2, deadline - time.monotonic())))
        if not ready:
            return self._process.poll() is None
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # the program has closed the terminal
            return False
        self._seen += data
        return bool(data)
