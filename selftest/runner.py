"""Runs topics one after the other, each in a process of its own, and reads what came of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from selftest.results import FAILED, Result
from selftest.topic import PACKAGE

# A topic that takes longer hangs: the slowest needs a minute and a half on two cores.
SECONDS = 420.0
# The parent folder of this package, wherever it lies: the children find it there.
ROOT = Path(__file__).resolve().parent.parent


def run_topics(topics: Sequence[str], seconds: float = SECONDS) -> Iterator[Result]:
    """The results of all the topics, topic by topic."""
    for topic in topics:
        yield from run_topic(topic, seconds)


def run_topic(topic: str, seconds: float = SECONDS, package: str = PACKAGE) -> list[Result]:
    """The results of one topic; a crash or a hang is the failure of the check that was running."""
    with tempfile.TemporaryDirectory(prefix="selftest-") as folder:
        path, log = Path(folder, "results"), Path(folder, "log")
        end = _run([sys.executable, "-m", "selftest.topic", topic, str(path), package], log, seconds)
        results, running = _read(path)
        if end:
            said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-8:]
            results.append(Result(topic, running or "the topic runs to its end", FAILED, text="\n".join([end, *said])))
        return results or [Result(topic, "the topic has checks", FAILED, text="none ran")]


def _run(command: Sequence[str], log: Path, seconds: float) -> str:
    """Why the child did not end well; empty when it did."""
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}".rstrip(os.pathsep)}
    with log.open("wb") as file:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environ,
            start_new_session=True,
        )
        try:
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"no end after {seconds:g} s: it hangs"
        finally:
            # Also what a check left running, and also when Ctrl-C ends the wait.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(5)
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"ended with code {code}" if code else ""


def _read(path: Path) -> tuple[list[Result], str]:
    """The results that were written, and the check that was running when the writing stopped."""
    results, running = [], ""
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError):  # a line that a crash cut off
            told = json.loads(line)
            running = str(told.get("running", ""))
            if "status" in told:
                results.append(Result(**told))
    return results, running
