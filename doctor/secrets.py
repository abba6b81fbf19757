"""What must not be printed: a diagnosis is made to be pasted into an issue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from doctor.findings import Finding

_SECRET_NAME = re.compile(r"TOKEN|PASSW|SECRET|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|CREDENTIAL|_HASH$", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"(?<=://)[^/\s@]+@")
# A shorter value is no secret, and taking "1" out of every text would leave nothing to read.
_SHORTEST = 6
HIDDEN = "[hidden]"


def without_secrets(findings: Iterable[Finding], environ: Mapping[str, str]) -> list[Finding]:
    """The findings with the values of secret variables, and logins in addresses, taken out."""
    values = sorted(_secrets(environ), key=len, reverse=True)

    def clean(text: str) -> str:
        for value in values:
            text = text.replace(value, HIDDEN)
        return _IN_ADDRESS.sub(f"{HIDDEN}@", text)

    return [replace(one, seen=clean(one.seen), why=clean(one.why), remedy=clean(one.remedy)) for one in findings]


def _secrets(environ: Mapping[str, str]) -> set[str]:
    return {
        value
        for name, value in environ.items()
        if _SECRET_NAME.search(name) and not name.endswith("_FILE") and len(value) >= _SHORTEST
    }
