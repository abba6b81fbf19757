"""The front door: every target has its help, is one command, and leads somewhere."""

from __future__ import annotations

import importlib.util
import re
import subprocess

import pytest

from scripts import names

MAKEFILE = (names.ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = dict(re.findall(r"(?m)^([a-z][a-z-]*):.*\n((?:\t.*\n)+)", MAKEFILE))


def test_help_is_the_default_and_lists_every_target() -> None:
    shown = subprocess.run(["make"], cwd=names.ROOT, capture_output=True, text=True, check=True).stdout
    assert [line.split()[1] for line in shown.splitlines()] == list(TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_is_one_command(target: str) -> None:
    assert len(TARGETS[target].splitlines()) == 1


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_is_phony(target: str) -> None:
    assert f".PHONY: {target}\n" in MAKEFILE


@pytest.mark.parametrize("module", sorted(set(re.findall(r"-m (scripts\.[a-z_]+)", MAKEFILE))))
def test_a_target_leads_to_a_program(module: str) -> None:
    assert importlib.util.find_spec(module) is not None


def test_ci_runs_both_halves_of_the_tests_even_when_the_first_fails() -> None:
    script = (names.ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "make test || status=$?" in script and "make test-slow || status=$?" in script
