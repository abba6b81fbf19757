"""What the host's programs say: plain lines, three-part problems, and what each step took."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import Callable, NoReturn

INTERRUPTED = 130


class UserError(Exception):
    """A failure that the user can do something about: what failed, what was seen, what to do."""

    def __init__(self, what: str, seen: str, do: str, code: int = 1) -> None:
        super().__init__(what)
        self.what, self.seen, self.do, self.code = what, seen, do, code

    def __str__(self) -> str:
        return f"{self.what}\n  seen: {_indent(self.seen)}\n  do:   {_indent(self.do)}"


def _indent(text: str) -> str:
    return "\n        ".join(text.strip().splitlines()) or "(nothing)"


def say(line: str = "") -> None:
    """Print one line at once, so that a log shows it when it happens."""
    print(line, flush=True)


def terminal() -> bool:
    """Tell whether somebody sits in front of this program."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


class Steps:
    """Names each step when it begins and remembers what it took."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, float]] = []

    @contextlib.contextmanager
    def step(self, name: str, why: str = "") -> Iterator[None]:
        """Say what begins (and why), and afterwards how long it took."""
        say(f"-> {name}" + (f": {why}" if why else ""))
        begun = time.monotonic()
        yield
        self.taken.append((name, time.monotonic() - begun))
        say(f"   done in {self.taken[-1][1]:.1f} s")

    def summary(self) -> None:
        """Print the steps of this run with their seconds; nothing when there was no step."""
        if not self.taken:
            return
        say("What each step took:")
        for name, seconds in self.taken:
            say(f"  {seconds:7.1f} s  {name}")
        say(f"  {sum(seconds for _, seconds in self.taken):7.1f} s  in all")


steps = Steps()


def _end(signum: int, frame: FrameType | None) -> NoReturn:
    """Turn TERM and HUP into an exception, so that every `finally` runs."""
    raise SystemExit(128 + signum)


def entry(name: str, program: Callable[[], int | None]) -> NoReturn:
    """Run a program: a UserError becomes one message on stderr, Ctrl-C an exit without a traceback."""
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGHUP, _end)
    try:
        sys.exit(program() or 0)
    except UserError as problem:
        sys.stdout.flush()
        print(f"{name}: {problem}", file=sys.stderr)
        sys.exit(problem.code)
    except KeyboardInterrupt:
        print(f"\n{name}: stopped by Ctrl-C", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()  # the reader (head, less) has gone: not worth a message
        sys.exit(1)
