"""`make test` itself: what it counts, and that nothing which did not run passes for a success."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts import names, test, ui
from scripts.engine import Engine
from scripts.test import Outcome, Suite
from tests.conftest import IMAGES
from tests.static.machine import DOCKER, make_machine

GOOD = Outcome("a", passed=3)
RESULT = """<testsuites><testsuite>
<testcase name="a"/><testcase name="b"><failure message="x"/></testcase><testcase name="c"><error/></testcase>
<testcase name="d"><skipped message="no GPU here"/></testcase>
</testsuite></testsuites>"""


def test_results_are_counted_and_skips_keep_their_reason(tmp_path: Path) -> None:
    (tmp_path / "r.xml").write_text(RESULT)
    outcome = test.read_result("image", tmp_path / "r.xml", 1)
    assert (outcome.passed, outcome.failed, outcome.skipped) == (1, 2, 1)
    assert outcome.reasons == ["d: no GPU here"] and outcome.bad


@pytest.mark.parametrize(
    ("xml", "code", "trouble"),
    [
        ("<testsuite/>", 5, "ran no test"),
        ('<testsuite><testcase name="d"><skipped message="m"/></testcase></testsuite>', 0, "ran no test"),
        ('<testsuite><testcase name="d"/></testsuite>', None, "hung"),
        ('<testsuite><testcase name="d"/></testsuite>', 3, "code 3"),
        ("", 2, "ran no test"),
        ("<testsui", -9, "ran no test"),
    ],
)
def test_a_suite_that_did_not_really_run_has_failed(tmp_path: Path, xml: str, code: int, trouble: str) -> None:
    (tmp_path / "r.xml").write_text(xml)
    outcome = test.read_result("image", tmp_path / "r.xml", code)
    assert outcome.bad and trouble in outcome.trouble


def test_a_missing_result_is_a_failure(tmp_path: Path) -> None:
    assert test.read_result("image", tmp_path / "none.xml", 1).bad


@pytest.mark.parametrize(
    ("outcomes", "code", "last"),
    [
        ([GOOD, Outcome("b", passed=1, skipped=1, reasons=["t: why"])], 0, "4 passed, 0 failed, 1 skipped"),
        ([GOOD, Outcome("b", trouble="it ran no test")], 1, "3 passed, 1 failed, 0 skipped"),
    ],
)
def test_the_summary_ends_with_the_counts(
    capsys: pytest.CaptureFixture[str], outcomes: list[Outcome], code: int, last: str
) -> None:
    assert test.report("embedded", 60, outcomes) == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == last and "base: embedded" in lines
    if outcomes[1].reasons:
        assert "skipped in b: t: why" in lines


def test_a_suite_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test, "SECONDS_TO_END", 0.5)
    stubborn = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(60)"
    assert test.run_limited([sys.executable, "-c", stubborn], Suite("s", ".", minutes=0.01), {}) is None


def test_a_suite_inside_the_image_cannot_write_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    machine = make_machine(monkeypatch)
    machine.when(f"{DOCKER} rm --force", "")
    monkeypatch.setattr(test, "run_limited", lambda command, suite, environ: commands.append(command))
    monkeypatch.delenv("TEST_ARGS", raising=False)
    suite = Suite("pinfeed", "tests/pinfeed", 10, inside=True)
    test.run_inside(Engine(DOCKER, "docker"), suite, "embedded", test.RESULTS / "pinfeed.xml")
    line = " ".join(commands[0])
    assert f"--volume {names.ROOT}:/src:ro" in line
    assert "pytorch-cuda:v2.7-embedded-test python -m pytest tests/pinfeed" in line
    assert line.endswith("--junitxml=/results/pinfeed.xml")


def test_the_images_own_tests_are_counted_with_the_gpu_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_machine(monkeypatch)
    commands: list[list[str]] = []
    monkeypatch.setattr(test, "run_limited", lambda command, *_: commands.append(list(command)))
    monkeypatch.setattr(test, "gpu_options", lambda _: (["--gpus", "all"], "Using the GPUs."))
    suite = next(suite for suite in test.SUITES if suite.word)
    test.run_word(Engine(DOCKER, "docker"), suite, "embedded", tmp_path / "in-image.xml")
    (command,) = commands
    assert command[-3:] == ["pytorch-cuda:v2.7-embedded", "selftest", "--junit=/results/in-image.xml"]
    assert "--gpus all" in " ".join(command)


def test_an_unknown_suite_is_a_mistake() -> None:
    with pytest.raises(ui.UserError, match="SUITE takes: static"):
        test.chosen(test.SUITES, "statics")


def test_what_the_tests_need_is_in_the_bake_file() -> None:
    for variant in names.VARIANTS:
        assert {*test.targets_of(variant).values(), test.inside_target(variant)} <= set(names.bake_targets())


def test_the_options_are_those_of_the_tests() -> None:
    assert dict(option.split("=") for option in test.options("embedded")) == {
        option: default for option, (default, _, _) in IMAGES.items()
    }
