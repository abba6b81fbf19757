"""The findings as text for people, and as JSON for programs."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Sequence

from doctor.findings import FAIL, OK, SKIP, STATUSES, WARN, Finding

VERSION = 1
_WIDTH = 110


def as_json(findings: Sequence[Finding]) -> str:
    """The stable form: tests/doctor/schema.json describes it."""
    return json.dumps({"version": VERSION, "checks": [finding.as_dict() for finding in findings]}, indent=2)


def as_text(findings: Sequence[Finding], about: str = "") -> str:
    """One line a check, three for one that is not well, and the counts."""
    lines = [about] if about else []
    for finding in findings:
        lines.append(f"{finding.status:<5} {finding.name:<18} {finding.seen}")
        if finding.status in (WARN, FAIL):
            lines += _wrapped("why", finding.why) + _wrapped("do", finding.remedy)
        elif finding.status == OK and finding.why:
            lines += _wrapped("", finding.why)
    counts = Counter(finding.status for finding in findings)
    lines.append(", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status] or status != SKIP))
    return "\n".join(lines)


def _wrapped(label: str, text: str) -> list[str]:
    head = f"{label}:" if label else ""
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=f"      {head:<5}",
        subsequent_indent=" " * 11,
        break_long_words=False,
        break_on_hyphens=False,
    )
