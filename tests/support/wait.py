"""Waiting with a named budget: a test that gives up says what it wanted, how long it waited, and what it saw."""

from __future__ import annotations

import time
from typing import Callable, Optional, TypeVar

T = TypeVar("T")

# Seconds that a thing may take before it counts as hung. They are for hangs only, on two busy cores: what must be
# fast is timed and compared by the test that says so.
BUDGETS = {
    "a command": 60,
    "many logins": 240,
    "installing Podman": 240,
    "a program that loads torch": 180,
    "the compiler": 240,
    "a short training": 180,
    "the whole training": 400,
    "JupyterLab to answer": 90,
    "a kernel's answer": 120,
    "a container to end": 60,
    "a line in the log": 60,
    "the health to change": 60,
    "Chromium to answer": 60,
    "VS Code to answer": 60,
    "the dev-container CLI": 120,
    "docker compose": 120,
}


class BudgetError(AssertionError):
    """A budget is spent."""


def until(what: str, probe: Callable[[], Optional[T]], state: Callable[[], str], pause: float = 0.1) -> T:
    """Ask `probe` until it gives something true, for at most the budget of that name."""
    budget = BUDGETS[what]
    begun = time.monotonic()
    while True:
        found = probe()
        if found:
            return found
        waited = time.monotonic() - begun
        if waited > budget:
            raise BudgetError(f"waited {waited:.0f} s for {what} (budget {budget} s); seen:\n{state()}")
        time.sleep(pause)
