"""Signals: saved at once, and the exit code says that the run is not finished."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch

from pinfeed.stop import Stop, StopRequested
from tests.pinfeed.support import arguments, start


def _until_training(program: subprocess.Popen[str]) -> None:
    """Wait for the first epoch's line: from then on the program is in mid-epoch nearly all the time."""
    assert program.stdout is not None
    for line in program.stdout:
        if line.startswith("epoch 1/"):
            return
    raise AssertionError(program.communicate())


@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)], ids=str
)
def test_a_signal_in_mid_epoch_saves_and_exits_within_two_seconds(
    signum: int, code: int, small: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with start(*arguments(small, out, "--epochs", "5000")) as program:
        _until_training(program)
        sent = time.monotonic()
        program.send_signal(signum)
        _, errors = program.communicate(timeout=30)
        took = time.monotonic() - sent
    assert program.returncode == code, errors
    assert took < 2
    assert errors.startswith(f"pinfeed: stopped by {signal.Signals(signum).name}: saved at epoch ")
    assert f"go on with: pinfeed train --resume {out}/checkpoint.pt" in errors
    assert len(errors.splitlines()) == 1
    assert torch.load(out / "checkpoint.pt", weights_only=True)["progress"]["epoch"] >= 1
    assert not (out / "metrics.json").exists()
    assert [path.name for path in out.glob(".*")] + [path.name for path in out.glob("*.part")] == []


def test_a_signal_before_the_first_step_leaves_no_half_run(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with start(*arguments(small, out)) as program:
        # torch is loading: this takes seconds, and the handlers are there well before.
        _until_handled(program, signal.SIGTERM)
        program.terminate()
        _, errors = program.communicate(timeout=60)
    assert program.returncode == 143, errors
    assert "nothing to save" in errors
    assert not (out / "checkpoint.pt").exists()


def _until_handled(program: subprocess.Popen[str], signum: int) -> None:
    while True:
        status = Path(f"/proc/{program.pid}/status").read_text()
        caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
        if int(caught.split()[1], 16) >> (signum - 1) & 1:
            return
        time.sleep(0.01)


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Stop() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            stop.check()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_one_keystroke_that_arrives_twice_is_one_and_a_later_one_means_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr("pinfeed.stop.time.monotonic", lambda: now[0])
    with Stop() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        now[0] += 0.2
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(StopRequested):
            stop.check()
        now[0] += 3
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_repeated_sigterm_does_not_cut_the_saving_short(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("pinfeed.stop.time.monotonic", lambda: now[0])
    with Stop() as stop:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
            now[0] += 5
        with pytest.raises(StopRequested):
            stop.check()


def test_the_handlers_of_the_caller_come_back() -> None:
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    with Stop():
        assert signal.getsignal(signal.SIGTERM) is not before[signal.SIGTERM]
    assert {signum: signal.getsignal(signum) for signum in before} == before
