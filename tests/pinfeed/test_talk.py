"""What a run says: lines in a log, a bar on a terminal."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from pinfeed.talk import LINE_EVERY, Talk
from tests.pinfeed.support import ROOT, arguments, start


class Terminal(io.StringIO):
    """A terminal's side of a program, kept for reading."""

    def isatty(self) -> bool:
        return True


def test_a_log_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("pinfeed.talk.time.monotonic", lambda: now[0])
    out, err = io.StringIO(), io.StringIO()
    talk = Talk(out, err)
    talk.begin_epoch("epoch 1/2", first=0, steps=100, batch_size=10)
    for done in range(1, 101):
        now[0] += LINE_EVERY / 40
        talk.step(done, lambda: 0.5)
    talk.end_epoch()
    assert out.getvalue().splitlines() == [
        "epoch 1/2  step 40/100  loss 0.5000  40 img/s, waited 0.0% for data, 15 s left",
        "epoch 1/2  step 80/100  loss 0.5000  40 img/s, waited 0.0% for data, 5 s left",
    ]
    assert err.getvalue() == ""


def test_a_terminal_gets_a_bar_with_loss_and_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tqdm")
    now = [0.0]
    monkeypatch.setattr("pinfeed.talk.time.monotonic", lambda: now[0])
    monkeypatch.setattr("pinfeed.talk._columns", lambda terminal: 100)
    out, err = io.StringIO(), Terminal()
    talk = Talk(out, err)
    talk.begin_epoch("epoch 1/2", first=50, steps=100, batch_size=10)
    for done in range(51, 101):
        now[0] += 0.5
        talk.step(done, lambda: 0.25, lambda: 0.03)
    talk.say("a line")
    talk.end_epoch()
    assert "epoch 1/2" in err.getvalue()
    assert "loss 0.2500, 20 img/s, waited 3.0%" in err.getvalue()
    assert out.getvalue() == "a line\n"


def test_the_loss_is_only_read_when_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def loss() -> float:
        read.append(1)
        return 0.0

    talk = Talk(io.StringIO(), io.StringIO())
    talk.begin_epoch("epoch 1/1", first=0, steps=1000, batch_size=10)
    for done in range(1, 1001):
        talk.step(done, loss)
    assert read == []


def test_on_a_terminal_a_run_shows_its_bar_and_ends_with_clean_lines(small: Path, tmp_path: Path) -> None:
    pytest.importorskip("tqdm")
    text = _on_a_terminal(100, arguments(small, tmp_path / "out"))
    assert "/13 [" in text  # the bar's count of steps
    assert text.rstrip().splitlines()[-1].startswith("test accuracy ")


def test_a_terminal_without_a_width_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    main, side = pty.openpty()
    with open(side, "w") as err:
        talk = Talk(io.StringIO(), err)
        talk.begin_epoch("epoch 1/2", first=0, steps=100, batch_size=10)
        assert talk._bar is None
    os.close(main)


def _on_a_terminal(columns: int, argv: list[str]) -> str:
    """What pinfeed shows on a terminal of that width."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    command = [sys.executable, "-m", "pinfeed", *argv]
    program = subprocess.Popen(
        command, stdin=side, stdout=side, stderr=side, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    os.close(side)
    seen = b""
    while True:
        try:
            seen += os.read(main, 65536)
        except OSError:  # the other side is closed
            break
    os.close(main)
    assert program.wait() == 0
    return seen.decode()


def test_a_log_that_nobody_reads_any_more_does_not_end_the_training(small: Path, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with start(*arguments(small, tmp_path / "out"), stdout=writing) as program:
        os.close(writing)
        _, errors = program.communicate(timeout=120)
    assert program.returncode == 0
    assert errors == ""
    assert (tmp_path / "out" / "metrics.json").exists()
