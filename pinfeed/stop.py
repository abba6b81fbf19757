"""SIGTERM, Ctrl-C and a closed terminal: noticed between two steps, so that a run can save and leave."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any, Optional

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

# One Ctrl-C can arrive twice: from the terminal, and passed on by a parent process.
_SAME_KEYSTROKE = 1.0


class StopRequested(Exception):  # noqa: N818 - no error but a request
    """Raised by `Stop.check` once a signal has come."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


class Stop:
    """While it is entered, a signal is only remembered; `check` raises it where the caller can bear it."""

    def __init__(self) -> None:
        self._signum: Optional[int] = None
        self._since = 0.0
        self._before: dict[int, Any] = {}

    @property
    def signum(self) -> int:
        """The signal that has come, or 0."""
        return self._signum or 0

    def check(self) -> None:
        """Raise StopRequested if a signal has come."""
        if self._signum is not None:
            raise StopRequested(self._signum)

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            for signum in SIGNALS:
                # nohup, and a shell's `&`, set a signal to "ignored": that is meant.
                if signal.getsignal(signum) is not signal.SIG_IGN:
                    self._before[signum] = signal.signal(signum, self._note)
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        self._before.clear()

    def _note(self, signum: int, frame: Optional[FrameType]) -> None:
        if self._signum is None:
            self._signum, self._since = signum, time.monotonic()
        elif signum == signal.SIGINT and time.monotonic() - self._since > _SAME_KEYSTROKE:
            raise KeyboardInterrupt  # whoever presses Ctrl-C again does not want to wait
