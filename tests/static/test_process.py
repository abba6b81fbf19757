"""Starting programs: nothing raises, nothing is lost, half a pipe is not a whole one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts import process, ui

MESSAGE = "t: it failed\n  seen: this\n        and that\n  do:   do so"


def test_a_missing_program_is_an_answer() -> None:
    assert process.capture(["/nowhere/program"]).code == process.NOT_FOUND


def test_a_silent_program_is_an_answer() -> None:
    result = process.capture([sys.executable, "-c", "import time; time.sleep(9)"], timeout=0.2)
    assert result.code == process.TIMED_OUT and "no answer" in result.last_words


def test_a_stream_keeps_all_and_hands_each_line_on(tmp_path: Path) -> None:
    lines: list[str] = []
    code = "import sys; print('one'); print('two', file=sys.stderr, flush=True); sys.exit(3)"
    result = process.stream([sys.executable, "-u", "-c", code], tmp_path / "logs" / "x.log", lines.append)
    assert result.code == 3 and lines == ["one", "two"]
    assert (tmp_path / "logs" / "x.log").read_text() == "one\ntwo\n"


def test_a_pipe_tells_of_both_ends(tmp_path: Path) -> None:
    first = [sys.executable, "-c", "import sys; print('data'); print('said', file=sys.stderr); sys.exit(2)"]
    second = [sys.executable, "-c", "import sys; print(sys.stdin.read().upper())"]
    made, taken = process.pipe(first, second, tmp_path / "log", {})
    assert (made.code, made.err, taken.code, taken.out.strip()) == (2, "said", 0, "DATA")


def test_a_pipe_ends_when_its_second_half_does_not_read(tmp_path: Path) -> None:
    endless = [sys.executable, "-c", "import sys\nwhile True: sys.stdout.write('x' * 9999)"]
    made, taken = process.pipe(endless, [sys.executable, "-c", "raise SystemExit(1)"], tmp_path / "log", {})
    assert taken.code == 1 and made.code != 0


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        ("raise ui.UserError('it failed', 'this\\nand that', 'do so', 64)", 64, MESSAGE),
        ("raise KeyboardInterrupt", 130, "stopped by Ctrl-C"),
        ("pass", 0, ""),
    ],
)
def test_a_program_ends_with_one_message_and_no_traceback(program: str, code: int, said: str) -> None:
    text = f"from scripts import ui\ndef f():\n    {program}\nui.entry('t', f)"
    result = process.capture([sys.executable, "-c", text])
    assert result.code == code and said in result.err and "Traceback" not in result.err


def test_a_step_that_fails_is_not_counted() -> None:
    steps = ui.Steps()
    with pytest.raises(ui.UserError), steps.step("one"):
        raise ui.UserError("a", "b", "c")
    assert steps.taken == []
