"""doctor in a container, read as a program would."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.support.containers import Done

Finding = Mapping[str, str]


def findings(done: Done) -> dict[str, Finding]:
    """What `doctor --json` found, by name; its exit status must fit."""
    assert done.code in (0, 1), done
    told: dict[str, Any] = json.loads(done.out)
    assert told["version"] == 1 and told["checks"], done
    found = {check["name"]: check for check in told["checks"]}
    assert len(found) == len(told["checks"]), "a name is there twice"
    for check in told["checks"]:
        assert set(check) == {"name", "status", "seen", "why", "remedy"}, check
        assert check["status"] in ("ok", "warn", "fail", "skip"), check
        assert check["seen"] and (check["status"] in ("ok", "skip") or (check["why"] and check["remedy"])), check
        assert "check itself failed" not in check["seen"], check
    assert done.code == int(any(check["status"] == "fail" for check in told["checks"])), done
    return found


def troubles(found: Mapping[str, Finding]) -> dict[str, str]:
    """The findings that are not well: name -> status."""
    return {name: check["status"] for name, check in found.items() if check["status"] in ("warn", "fail")}
