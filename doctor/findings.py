"""What a check found: one shape for all of them, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

OK, WARN, FAIL, SKIP = "ok", "warn", "fail", "skip"
STATUSES = (OK, WARN, FAIL, SKIP)


@dataclass(frozen=True)
class Finding:
    """`seen` is a fact, `why` says why it matters, `remedy` is what mends it; of a skip `seen` is the reason."""

    name: str
    status: str
    seen: str
    why: str = ""
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        """The finding as the JSON output has it."""
        return asdict(self)

    @property
    def one_line(self) -> str:
        """For the container's log, where a problem gets one line."""
        return "; ".join(part for part in (self.seen, self.why, self.remedy) if part)


def ok(name: str, seen: str, why: str = "") -> Finding:
    """All is well."""
    return Finding(name, OK, seen, why)


def warn(name: str, seen: str, why: str, remedy: str) -> Finding:
    """Something will be slow, or fail later."""
    return Finding(name, WARN, seen, why, remedy)


def fail(name: str, seen: str, why: str, remedy: str) -> Finding:
    """Something does not work."""
    return Finding(name, FAIL, seen, why, remedy)


def skip(name: str, reason: str) -> Finding:
    """Not looked at, and why."""
    return Finding(name, SKIP, reason)


def failed(findings: Iterable[Finding]) -> bool:
    """Whether anything does not work."""
    return any(finding.status == FAIL for finding in findings)
