"""What a user is told when a run cannot start or go on, and the exit codes that go with it."""

from __future__ import annotations

# The names and numbers of sysexits.h: a script can tell a typo from a full disk.
NO_GPU = 3  # a GPU is needed, and there is none: the one number of our own
USAGE = 64  # a setting is wrong
BAD_DATA = 65  # a file is there, but not what it should be
NO_INPUT = 66  # a file is not there, or cannot be read
UNAVAILABLE = 69  # a GPU is there, but cannot be used
DIVERGED = 70  # the loss is no longer a number
CANNOT_CREATE = 73  # the output folder cannot be made or written
WRITE_FAILED = 74  # the disk is full, or writing failed later on


class PinfeedError(Exception):
    """A failure with its three parts: what failed, what was seen, what to do."""

    def __init__(self, what: str, seen: str, do: str, code: int = USAGE) -> None:
        super().__init__(what)
        self.what = what
        self.seen = seen
        self.do = do
        self.code = code

    def __str__(self) -> str:
        return f"pinfeed: {self.what}\n  seen: {self.seen}\n  do:   {self.do}"


class Stopped(Exception):  # noqa: N818 - no error: it did what it was told
    """The run was asked to stop by a signal, and has saved what there was to save."""

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(message)
        self.code = 128 + signum  # what a shell, Docker and Kubernetes make of that signal
