"""What came of the checks, and the forms in which it is told: text, JSON, JUnit."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

VERSION = 1
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
_MARKS = {PASSED: "ok  ", FAILED: "FAIL", SKIPPED: "skip"}


@dataclass(frozen=True)
class Result:
    """One check's end. `text` is what a pass has to say, why one failed, or why it was skipped."""

    topic: str
    name: str
    status: str
    seconds: float = 0.0
    text: str = ""


def counts(results: Sequence[Result]) -> dict[str, int]:
    """How many passed, failed and were skipped."""
    counted = Counter(result.status for result in results)
    return {status: counted[status] for status in (PASSED, FAILED, SKIPPED)}


def as_json(results: Sequence[Result], machine: Mapping[str, object]) -> str:
    """For programs."""
    whole = {
        "version": VERSION,
        "machine": dict(machine),
        "summary": counts(results),
        "checks": [asdict(result) for result in results],
    }
    return json.dumps(whole, indent=2)


def as_junit(results: Sequence[Result]) -> str:
    """For the tools of a CI."""
    counted = counts(results)
    suite = ElementTree.Element(
        "testsuite",
        name="selftest",
        tests=str(len(results)),
        failures=str(counted[FAILED]),
        skipped=str(counted[SKIPPED]),
        errors="0",
        time=f"{sum(result.seconds for result in results):.3f}",
    )
    for result in results:
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"selftest.{result.topic}", name=result.name, time=f"{result.seconds:.3f}"
        )
        if result.status != PASSED:
            kind = "failure" if result.status == FAILED else "skipped"
            message = _xml_text(result.text)
            ElementTree.SubElement(case, kind, message=message.splitlines()[0] if message else "").text = message
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


def line(result: Result) -> str:
    """One line for people; a failure shows all that it has to say."""
    lines = result.text.splitlines()
    text = f"{_MARKS[result.status]} {result.topic:<12} {result.name}"
    if lines and result.status != FAILED:
        text += f": {lines[0]}"
    text += f"  ({result.seconds:.1f} s)"
    return "\n       ".join([text, *(lines if result.status == FAILED else ())])


def summary(results: Sequence[Result]) -> str:
    """The counts, and each reason for skipping with how often it was one."""
    counted = counts(results)
    reasons = Counter(result.text for result in results if result.status == SKIPPED)
    lines = [f"skipped {number}: {reason}" for reason, number in reasons.items()]
    return "\n".join([*lines, ", ".join(f"{number} {status}" for status, number in counted.items())])


def _xml_text(text: str) -> str:
    """XML knows no control characters."""
    return "".join(character for character in text if character >= " " or character in "\n\t")
