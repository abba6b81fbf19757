"""What a run says: a progress bar on a terminal, lines now and then in a log."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any, Optional, TextIO

_BAR = "{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
LINE_EVERY = 10.0  # seconds, in a log
_LOSS_EVERY = 1.0  # seconds, on the bar: reading the loss makes the processor wait for the GPU


class Talk:
    """Lines go to `out`; the bar, when `err` is a terminal, to `err`."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out = out
        self._err = err
        self._bar: Any = None
        self._label = ""
        self._due = 0.0
        self._began = 0.0
        self._first = 0
        self._steps = 0
        self._batch_size = 0
        self._unit = ""

    def say(self, text: str) -> None:
        """One line. A log that nobody reads any more must not end the training."""
        try:
            if self._bar is None:
                print(text, file=self._out, flush=True)
            else:
                self._bar.write(text, file=self._out)
                self._out.flush()
        except OSError:
            _mute(self._out)

    def begin_epoch(self, label: str, first: int, steps: int, batch_size: int) -> None:
        """An epoch of `steps` steps begins, of which `first` were done before the run was resumed."""
        self._label, self._first, self._steps, self._batch_size = label, first, steps, batch_size
        self._began = time.monotonic()
        self._bar = _bar(self._err, label, first, steps)
        self._due = self._began + (LINE_EVERY if self._bar is None else _LOSS_EVERY)

    def step(self, done: int, loss: Callable[[], float], waited: Callable[[], float] = lambda: 0.0) -> None:
        """`done` steps are done. `loss` and the share of time `waited` for data are only asked to be shown."""
        now = time.monotonic()
        if self._bar is not None:
            self._bar.update(done - self._bar.n)
        if now < self._due:
            return
        steps_a_second = (done - self._first) / (now - self._began)
        speed = f"{steps_a_second * self._batch_size:,.0f} img/s"
        if self._bar is None:
            left = (self._steps - done) / steps_a_second
            state = f"loss {loss():.4f}  {speed}, waited {waited():.1%} for data, {left:.0f} s left"
            self.say(f"{self._label}  step {done}/{self._steps}  {state}")
            self._due = now + LINE_EVERY
        else:
            self._bar.set_postfix_str(f"loss {loss():.4f}, {speed}, waited {waited():.1%}")
            self._due = now + _LOSS_EVERY

    def begin_work(self, label: str, first: int, total: int, unit: str) -> None:
        """Work other than training begins: `total` of `unit`, of which `first` were done before."""
        self._label, self._first, self._steps, self._unit = label, first, total, unit
        self._began = time.monotonic()
        self._bar = _bar(self._err, label, first, total)
        self._due = self._began + (LINE_EVERY if self._bar is None else _LOSS_EVERY)

    def work(self, done: int, note: str = "") -> None:
        """`done` of the work is done; `note` is shown beside the speed."""
        now = time.monotonic()
        if self._bar is not None:
            self._bar.update(done - self._bar.n)
        if now < self._due or done <= self._first:
            return
        speed = (done - self._first) / (now - self._began)
        text = f"{speed:,.0f} {self._unit}/s" + (f", {note}" if note else "")
        if self._bar is None:
            left = (self._steps - done) / speed
            self.say(f"{self._label}  {done:,}/{self._steps:,} {self._unit}  {text}, {left:.0f} s left")
            self._due = now + LINE_EVERY
        else:
            self._bar.set_postfix_str(text)
            self._due = now + _LOSS_EVERY

    def end_work(self) -> None:
        """Take the bar of `begin_work` away."""
        self.end_epoch()

    def end_epoch(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _bar(err: TextIO, label: str, first: int, steps: int) -> Optional[Any]:
    if not (err.isatty() and _columns(err)):
        return None
    try:
        from tqdm import tqdm
    except ImportError:  # lines will do
        return None
    return tqdm(total=steps, initial=first, desc=label, bar_format=_BAR, leave=False, file=err, dynamic_ncols=True)


def _columns(terminal: TextIO) -> int:
    """The width of a terminal; 0 where nobody has set one, as under `script`: no bar would be seen there."""
    try:
        return os.get_terminal_size(terminal.fileno()).columns
    except OSError:
        return 0


def _mute(stream: TextIO) -> None:
    """Send what is still to come, and what Python flushes at exit, to nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def to_nobody() -> Talk:
    """The talk of a process whose words another one says."""
    nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - as long as the process
    return Talk(nowhere, nowhere)


def to_terminal() -> Talk:
    """The talk of a program: standard output for lines, standard error for the bar."""
    return Talk(sys.stdout, sys.stderr)
