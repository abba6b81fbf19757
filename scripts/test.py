"""`make test` and `make test-slow`: build what is tested, run the suites, and say what ran and what did not.

SUITE="static unit" runs only those; TEST_ARGS is handed to pytest. Which images are tested the tests learn from the
options of tests/conftest.py.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scripts import base, build, names, ui, venv
from scripts.engine import Engine, ensure_engine, gpu_options

RESULTS = names.LOGS / "results"
PYTEST = ("-m", "pytest")
# A limit ends a suite that hangs; design.md's share of each is smaller.
SECONDS_TO_END = 20


@dataclass(frozen=True)
class Suite:
    """A folder of tests: what it needs, where it runs, and when it is taken to hang."""

    name: str
    path: str
    minutes: float
    images: bool = True  # needs an engine and the images
    inside: bool = False  # runs in the test image: torch is nowhere else
    marker: str = "not slow"
    variants: tuple[str, ...] = ()  # also tested: `<variant>-<this>`
    word: str = ""  # a command of the image under test that writes the result itself, in the place of pytest


SUITES = (
    Suite("static", "tests/static", 5, images=False),
    Suite("unit", "tests/entrypoint", 5, images=False),
    Suite("doctor", "tests/doctor", 5, inside=True),  # its fake driver needs a compiler
    Suite("selftest", "tests/selftest", 5, inside=True),
    Suite("in-image", "selftest", 8, word="selftest"),
    Suite("image", "tests/image", 25),
    Suite("browser", "tests/browser", 8),
)
SLOW_SUITES = (
    Suite("pinfeed", "tests/pinfeed", 10, inside=True),
    Suite("image", "tests/image", 15, marker="slow"),
    Suite("ssh", "tests/ssh", 15, marker=""),
    Suite("compose", "tests/compose", 6, marker="slow"),
    Suite("code", "tests/code", 6, marker="slow", variants=("code",)),
    Suite("devcontainer", "tests/devcontainer", 4, marker="slow"),
)


@dataclass
class Outcome:
    """What a suite came to."""

    suite: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    reasons: list[str] = field(default_factory=list)
    trouble: str = ""

    @property
    def bad(self) -> bool:
        """A failure, a hang, or nothing tested: none of these may pass for a success."""
        return bool(self.failed or self.trouble)


def main() -> int:
    """Run the suites of this command."""
    suites = chosen(SLOW_SUITES if sys.argv[1:] == ["slow"] else SUITES, os.environ.get("SUITE", ""))
    begun = time.monotonic()
    engine, variant = None, "none (these suites need no image)"
    if any(suite.images for suite in suites):
        engine = ensure_engine(need_build=True)
        variant = base.choose_variant(engine)
        build_all(engine, variant, [f"{variant}-{more}" for suite in suites for more in suite.variants])
    python = venv.ensure_venv()
    ui.steps.summary()
    prepared = time.monotonic() - begun
    outcomes = [run_suite(suite, python, engine, variant) for suite in suites]
    return report(variant, prepared, outcomes)


def chosen(suites: Sequence[Suite], wanted: str) -> list[Suite]:
    """Take the suites that SUITE names; all of them when it is empty."""
    known = [suite.name for suite in suites]
    unknown = [name for name in wanted.split() if name not in known]
    if unknown:
        raise ui.UserError(f"SUITE takes: {' '.join(known)}", f"SUITE={wanted}", f"make test SUITE={known[0]}", 64)
    return [suite for suite in suites if not wanted or suite.name in wanted.split()]


def targets_of(variant: str) -> dict[str, str]:
    """Name the bake target behind each option of the tests; helpers fall back on the embedded base."""
    defined = names.bake_targets()

    def helper(kind: str) -> str:
        return f"{variant}-{kind}" if f"{variant}-{kind}" in defined else f"embedded-{kind}"

    return {
        "--image": variant,
        "--thin": helper("thin"),
        "--thin-glibc231": "glibc231-thin",
        "--glibc-image": "glibc-check",
        "--browser-image": "browser",
    }


def inside_target(variant: str) -> str:
    """Name the bake target of the image in which a suite runs."""
    return f"{variant}-test" if f"{variant}-test" in names.bake_targets() else "embedded-test"


def build_all(engine: Engine, variant: str, more: Sequence[str] = ()) -> None:
    """Build every image, also those that exist: what is tested is this checkout."""
    targets = list(dict.fromkeys([*targets_of(variant).values(), inside_target(variant), *more]))
    late = [target for target in targets if target.startswith("glibc")]  # one starts from the finished image
    build.build(engine, [target for target in targets if target not in late])
    if "glibc-check" in late and variant != "embedded":
        build.build(engine, ["embedded"])
    build.build(engine, late)


def options(variant: str) -> list[str]:
    """Tell the tests the names of what they test."""
    return [f"{option}={names.image_of(target)}" for option, target in targets_of(variant).items()]


def run_suite(suite: Suite, python: Path, engine: Engine | None, variant: str) -> Outcome:
    """Run one suite and read its result file."""
    ui.say(f"\n=== {suite.name}: {suite.path}, at most {suite.minutes:g} minutes")
    RESULTS.mkdir(parents=True, exist_ok=True)
    RESULTS.chmod(0o777)  # inside the test image another uid writes here
    result = RESULTS / f"{suite.name}.xml"
    result.unlink(missing_ok=True)
    environ = dict(os.environ)
    if engine:  # the tests call `docker`: let it be the one that was found to work
        environ["PATH"] = f"{Path(engine.program).parent}{os.pathsep}{environ['PATH']}"
    begun = time.monotonic()
    if suite.word and engine:
        code = run_word(engine, suite, variant, result)
    elif suite.inside and engine:
        code = run_inside(engine, suite, variant, result)
    else:
        more = options(variant) if engine else []
        code = run_limited([str(python), *PYTEST, *more, *_arguments(suite, result)], suite, environ)
    outcome = read_result(suite.name, result, code)
    outcome.seconds = time.monotonic() - begun
    return outcome


def _arguments(suite: Suite, result: Path) -> list[str]:
    return [suite.path, "-m", suite.marker, f"--junitxml={result}", *shlex.split(os.environ.get("TEST_ARGS", ""))]


def run_inside(engine: Engine, suite: Suite, variant: str, result: Path) -> int | None:
    """Run a suite in the test image, on this checkout, which it cannot write."""
    container = f"{names.CONTAINER}-test-{suite.name}"
    engine.ask("rm", "--force", container)
    command = engine.command(
        "run",
        "--rm",
        *("--name", container),
        *("--volume", f"{names.ROOT}:/src:ro"),
        *("--volume", f"{RESULTS}:/results"),
        *("--workdir", "/src"),
        names.image_of(inside_target(variant)),
        "python",
        *PYTEST,
        *_arguments(suite, Path("/results") / result.name),
    )
    try:
        return run_limited(command, suite, os.environ)
    finally:
        engine.ask("rm", "--force", container)


def run_word(engine: Engine, suite: Suite, variant: str, result: Path) -> int | None:
    """Run a command of the image under test, with the GPU where there is one."""
    container = f"{names.CONTAINER}-test-{suite.name}"
    engine.ask("rm", "--force", container)
    gpus, said = gpu_options(engine)
    ui.say(said)
    mount = f"{RESULTS}:/results"
    start = engine.command("run", "--rm", "--name", container, *gpus, "--volume", mount, names.image_of(variant))
    try:
        return run_limited([*start, suite.word, f"--junit=/results/{result.name}"], suite, os.environ)
    finally:
        engine.ask("rm", "--force", container)


def run_limited(command: Sequence[str], suite: Suite, environ: Mapping[str, str]) -> int | None:
    """Run a suite with its output going straight through; None when it had to be ended."""
    with subprocess.Popen(
        list(command), stdin=subprocess.DEVNULL, cwd=names.ROOT, env=dict(environ), start_new_session=True
    ) as child:
        try:
            return child.wait(suite.minutes * 60)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the suite's whole process group: first so that pytest can clean up, then for certain."""
    for signum in (signal.SIGINT, signal.SIGKILL):
        if child.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(child.pid, signum)
            child.wait(SECONDS_TO_END)


def read_result(name: str, path: Path, code: int | None) -> Outcome:
    """Count what pytest wrote down. A suite that ran no test has failed."""
    outcome = Outcome(name)
    if code is None:
        outcome.trouble = "it hung and was ended"
    # A missing or broken file is what a pytest that was killed leaves: then nothing counts as passed.
    with contextlib.suppress(OSError, ElementTree.ParseError):
        _count(ElementTree.parse(path).getroot(), outcome)
    if not outcome.trouble and not outcome.passed and not outcome.failed:
        outcome.trouble = "it ran no test"
    if not outcome.trouble and code and not outcome.failed:
        outcome.trouble = f"pytest ended with code {code}"
    return outcome


def _count(root: ElementTree.Element, outcome: Outcome) -> None:
    for case in root.iter("testcase"):
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            outcome.failed += 1
        elif skipped is not None:
            outcome.skipped += 1
            outcome.reasons.append(f"{case.get('name')}: {skipped.get('message', '')}")
        else:
            outcome.passed += 1


def report(variant: str, prepared: float, outcomes: Sequence[Outcome]) -> int:
    """Print the summary; its last line holds the counts in the plain form that machines read."""
    ui.say(f"\nbase: {variant}")
    ui.say(f"{'suite':<10} {'passed':>7} {'failed':>7} {'skipped':>8} {'minutes':>8}")
    ui.say(f"{'(build)':<10} {'':>7} {'':>7} {'':>8} {prepared / 60:>8.1f}")
    for one in outcomes:
        counts = f"{one.passed:>7} {one.failed:>7} {one.skipped:>8} {one.seconds / 60:>8.1f}"
        ui.say(f"{one.suite:<10} {counts}" + (f"  {one.trouble}" if one.trouble else ""))
    for one in outcomes:
        for reason in one.reasons:
            ui.say(f"skipped in {one.suite}: {reason}")
    # A suite in trouble counts as a failure of its own, so that the counts never look clean.
    failed = sum(one.failed + bool(one.trouble) for one in outcomes)
    passed, skipped = (sum(getattr(one, key) for one in outcomes) for key in ("passed", "skipped"))
    ui.say(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if any(one.bad for one in outcomes) else 0


if __name__ == "__main__":
    ui.entry("test", main)
