"""Everything the entrypoint says goes to stderr: stdout belongs to the user's command."""

from __future__ import annotations

import contextlib
import os

_STDERR = 2


def say(line: str) -> None:
    """Print one line about the start."""
    _write(f"pytorch-cuda: {line}\n")


def warn(line: str) -> None:
    """Print one line about something that the user should mend."""
    say(f"warning: {line}")


def fail(error: BaseException) -> None:
    """Print the error that ends the start."""
    _write(f"{error}\n")


def _write(text: str) -> None:
    """Write at once and never fail: a closed stderr must not stop a container."""
    with contextlib.suppress(OSError):
        os.write(_STDERR, text.encode("utf-8", "backslashreplace"))
