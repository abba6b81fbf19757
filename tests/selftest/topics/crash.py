"""A process that dies in the middle."""

from __future__ import annotations

import os
import signal

from selftest.checks import check


@check("passes before")
def passes() -> None:
    """Nothing to check."""


@check("crashes")
def crashes() -> None:
    print("last words", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)
