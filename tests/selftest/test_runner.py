"""Topics in processes of their own: what comes of crashes, hangs, failures and skips."""

from __future__ import annotations

import json
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from selftest import __main__ as program
from selftest import machine, results, runner
from selftest.results import FAILED, PASSED, SKIPPED, Result
from selftest.topic import TOPICS

PACKAGE = "tests.selftest.topics"


def run(topic: str, seconds: float = 30) -> list[Result]:
    return runner.run_topic(topic, seconds, PACKAGE)


def test_every_kind_of_end_is_told_apart() -> None:
    found = run("mixed")
    assert [one.status for one in found] == [PASSED, FAILED, FAILED, SKIPPED, SKIPPED, SKIPPED]
    assert found[0].text == "three words here"
    assert found[1].text == "seen: 2\nwanted: 3"
    assert "ZeroDivisionError: oops" in found[2].text and "mixed.py:" in found[2].text
    assert [one.text for one in found[3:]] == ["no GPU", "not in the image", "needs a second GPU"]


def test_require_gpu_makes_a_missing_gpu_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing else: a second GPU and the image are not what it asks for."""
    monkeypatch.setenv("REQUIRE_GPU", "1")
    found = run("mixed")
    assert [one.status for one in found[3:]] == [FAILED, SKIPPED, SKIPPED]
    assert found[3].text == "REQUIRE_GPU=1, and there is no GPU"


def test_a_crash_is_the_failure_of_the_check_that_ran() -> None:
    before, crashed = run("crash")
    assert (before.status, before.name) == (PASSED, "passes before")
    assert (crashed.status, crashed.name) == (FAILED, "crashes")
    assert crashed.text.splitlines() == ["killed by SIGSEGV", "last words"]


def test_a_hang_is_ended_and_named() -> None:
    begun = time.monotonic()
    (found,) = run("hang", seconds=3)
    assert time.monotonic() - begun < 15
    assert (found.status, found.name) == (FAILED, "hangs")
    assert "no end after 3 s" in found.text


@pytest.mark.parametrize("topic", ["empty", "missing"])
def test_a_topic_that_tests_nothing_has_failed(topic: str) -> None:
    assert [one.status for one in run(topic)] == [FAILED]


def test_junit_counts_what_was_not_passed() -> None:
    suite = ElementTree.fromstring(results.as_junit(run("mixed")))
    assert [suite.get(name) for name in ("tests", "failures", "skipped")] == ["6", "2", "3"]
    reasons = [case.find("skipped") for case in suite]
    assert [one.get("message") for one in reasons if one is not None] == [
        "no GPU",
        "not in the image",
        "needs a second GPU",
    ]


def test_junit_takes_any_text() -> None:
    odd = Result("topic", 'a "name" <&>', FAILED, 0.1, "escape \x1b[31m and \x00 zero")
    case = ElementTree.fromstring(results.as_junit([odd]))[0]
    assert case.get("name") == 'a "name" <&>'


def test_json_says_on_what_it_ran_and_what_came_of_it() -> None:
    told = json.loads(results.as_json(run("mixed"), {"torch": "2.7.1"}))
    assert told["version"] == 1 and told["machine"] == {"torch": "2.7.1"}
    assert told["summary"] == {"passed": 1, "failed": 2, "skipped": 3}
    assert set(told["checks"][0]) == {"topic", "name", "status", "seconds", "text"}


def test_the_summary_counts_the_reasons() -> None:
    lines = results.summary(run("mixed")).splitlines()
    assert "skipped 1: no GPU" in lines and lines[-1] == "1 passed, 2 failed, 3 skipped"


@pytest.mark.parametrize(("status", "code"), [(PASSED, 0), (SKIPPED, 0), (FAILED, 1)])
def test_only_a_failure_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: str, code: int) -> None:
    monkeypatch.setattr(machine, "describe", dict)
    monkeypatch.setattr(program, "run_topics", lambda _: [Result("t", "n", status, 0.0, "text")])
    path = tmp_path / "junit.xml"
    assert program.main(["--junit", str(path)]) == code
    assert ElementTree.parse(path).getroot().get("tests") == "1"


def test_json_on_stdout_is_json_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(machine, "describe", dict)
    monkeypatch.setattr(program, "run_topics", lambda _: [Result("t", "n", PASSED)])
    program.main(["--json"])
    assert json.loads(capsys.readouterr().out)["summary"]["passed"] == 1


def test_an_unknown_topic_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program.main(["cuda", "kuda"])
    assert "there is no topic 'kuda'" in capsys.readouterr().err


def test_every_topic_is_run() -> None:
    folder = Path(runner.__file__).with_name("topics")
    assert {path.stem for path in folder.glob("*.py")} - {"__init__"} == set(TOPICS)
