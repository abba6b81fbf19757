"""One Chromium for all browser tests, and a page of its own for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.chromium import chromium
from tests.support.containers import Containers
from tests.support.wait import BUDGETS


@pytest.fixture(scope="module")
def browser(shared_containers: Containers, browser_image: str) -> Iterator[Any]:
    """A Chromium in a container."""
    with chromium(shared_containers, browser_image) as browser:
        yield browser


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page without cookies; an error that its programs do not catch fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.set_default_timeout(BUDGETS["JupyterLab to answer"] * 1000)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert errors == []


@pytest.fixture(scope="session")
def screenshots(request: pytest.FixtureRequest) -> Path:
    """Where pictures go (--screenshots); the documents show them."""
    return Path(request.config.getoption("--screenshots"))
