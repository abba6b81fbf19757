"""One topic's checks, run in a process of their own: a crash or a hang there is one failure, not the end of all.

Usage: python -m selftest.topic TOPIC FILE [PACKAGE]     results go to FILE, a JSON line each, since libraries print
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from selftest import checks
from selftest.results import FAILED, PASSED, SKIPPED, Result

PACKAGE = "selftest.topics"
# Import comes first and the slowest last.
TOPICS = ("image", "imports", "operators", "pinned", "cuda", "feed", "distributed", "compile")


def main(topic: str, path: Path, package: str = PACKAGE) -> None:
    """Run the topic's checks in the order of its file."""
    importlib.import_module(f"{package}.{topic}")
    with path.open("a", encoding="utf-8") as file:
        for check in [found for found in checks.FOUND if found.topic == topic]:
            _say(file, {"running": check.sentence})
            _say(file, asdict(run(check)))


def run(check: checks.Check) -> Result:
    """Run one check. REQUIRE_GPU=1 makes a missing GPU a failure."""
    begun = time.monotonic()
    try:
        obstacle = check.obstacle()
        if obstacle:
            raise checks.CannotRunError(obstacle)
        status, text = PASSED, str(check.function() or "")
    except checks.CannotRunError as skip:
        required = os.environ.get("REQUIRE_GPU") == "1" and str(skip) == checks.NO_GPU
        status, text = (FAILED, f"REQUIRE_GPU=1, and there is {skip}") if required else (SKIPPED, str(skip))
    except AssertionError as error:
        status, text = FAILED, str(error) or _where(error)
    except Exception as error:  # a check may fail by anything
        status, text = FAILED, f"{type(error).__name__}: {error}\n{_where(error)}"
    return Result(check.topic, check.sentence, status, time.monotonic() - begun, text)


def _where(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}:{frame.lineno}: {frame.line}"


def _say(file: Any, line: dict[str, Any]) -> None:
    file.write(json.dumps(line) + "\n")
    file.flush()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
