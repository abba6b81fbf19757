"""Fixtures of the pinfeed tests: a small set for speed, the real one where it matters."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pinfeed import data
from tests.pinfeed.support import write_set


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small made-up set. Not to be changed: `write_set` makes another."""
    return write_set(tmp_path_factory.mktemp("data") / "small")


@pytest.fixture(scope="session")
def real() -> Path:
    """The folder of the real Fashion-MNIST. Where it is missing the tests fail, for nothing is proven then."""
    return data.find("fashion-mnist", os.environ)


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the developer's shell has set must not decide a test."""
    monkeypatch.delenv("PIN_MEMORY", raising=False)
