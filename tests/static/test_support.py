"""What the tests stand on is tested too: a check that cannot fail would prove nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support import glibc_check, wait
from tests.support.containers import call
from tests.support.terminal import CTRL_C, Terminal
from tests.support.wheel import NAME, make_wheel


def test_a_budget_that_is_spent_names_itself_and_what_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(wait.BUDGETS, "a command", 0)
    with pytest.raises(wait.BudgetError, match=r"for a command \(budget 0 s\); seen:\nthe state"):
        wait.until("a command", lambda: None, lambda: "the state", pause=0.01)


def test_a_program_that_hangs_is_ended_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(wait.BUDGETS, "a command", 1)
    with pytest.raises(AssertionError, match="still running after 1 s"):
        call(sys.executable, "-c", "import time; time.sleep(30)")


def test_a_program_that_fails_shows_what_it_said() -> None:
    with pytest.raises(AssertionError, match=r"(?s)exit 3.*stdout\nout.*stderr\nerr"):
        call(sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)").ok()


def test_a_terminal_shows_the_program_and_passes_ctrl_c() -> None:
    code = "import sys, time; print(sys.stdin.isatty(), sys.stdout.isatty()); time.sleep(30)"
    command = ["setsid", "--ctty", "--wait", sys.executable, "-c", code]
    with Terminal(command) as terminal:
        terminal.wait_for("True True")
        terminal.press(CTRL_C)
        assert terminal.wait() != 0
    assert "KeyboardInterrupt" in terminal.screen


def test_the_wheel_installs(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    target = tmp_path / "target"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(target)]
    call(*pip, str(wheel)).ok()
    code = f"import {NAME}; {NAME}.main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=target, capture_output=True, text=True, check=True)
    assert done.stdout == "tiny and installed\n"


def libraries(folder: Path) -> list[Path]:
    """Some real extension modules of this Python, to look at."""
    found = sorted(Path(sysconfig.get_path("platstdlib"), "lib-dynload").glob("*.so"))[:3]
    copied = [shutil.copy(path, folder) for path in found]
    if not copied:  # a Python with its modules built in
        copied = [shutil.copy(Path(sys.executable).resolve(), folder / "program.so")]
    return [Path(path) for path in copied]


def test_glibc_check_reads_the_versions_that_a_file_needs(tmp_path: Path) -> None:
    for path in libraries(tmp_path):
        versions = glibc_check.needed_versions(path)
        assert any(name.startswith("GLIBC_2.") for name in versions), path


def test_glibc_check_is_content_with_this_systems_own_libraries(tmp_path: Path) -> None:
    count = len(libraries(tmp_path))
    report = glibc_check.check(tmp_path)
    assert report.files == count
    assert report.findings == []
    assert glibc_check.main([str(tmp_path)]) == 0


def test_glibc_check_fails_where_there_is_nothing_to_look_at(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("GROUP ( libc.so.6 )\n")
    assert glibc_check.main([str(tmp_path)]) == 1


@pytest.mark.parametrize(
    ("said", "finding"),
    [
        ("lib.so: /lib/libc.so.6: version `GLIBC_2.34' not found (required by lib.so)", "GLIBC_2.34"),
        ("lib.so: /lib/libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by lib.so)", "GLIBCXX_3.4.30"),
        ("undefined symbol: not_to_be_had\t(lib.so)", "undefined symbol not_to_be_had"),
        ("\tlibnobody.so.1 => not found", "needs libnobody.so.1"),
        ("symbol pow, version GLIBC_2.38 not defined in file libm.so.6 with link time reference", "GLIBC_2.38"),
    ],
)
def test_glibc_check_finds_what_cannot_be_bound(said: str, finding: str) -> None:
    report = glibc_check.Report()
    glibc_check.judge(Path("lib.so"), said, set(), report)
    assert len(report.findings) == 1
    assert finding in report.findings[0]


def test_glibc_check_tells_apart_what_others_bring() -> None:
    report = glibc_check.Report()
    said = "\tlibcuda.so.1 => not found\n\tlibc10.so => not found\nundefined symbol: PyList_New\t(lib.so)\n"
    said += "undefined symbol: _ZN3c10\t(lib.so)\nundefined symbol: dlopen\t(lib.so)\n"
    glibc_check.judge(Path("lib.so"), said, {"libc10.so"}, report)
    assert report.findings == []
    assert sum(report.apart.values()) == 5
