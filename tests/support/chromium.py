"""A Chromium in a container of its own, driven through its debugging port."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.containers import Containers

# Nothing goes out by itself: no updates, no accounts, no first-run page.
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--no-first-run"),
    *("--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@contextmanager
def chromium(containers: Containers, image: str) -> Iterator[Any]:
    """Give playwright's Browser. It shares the host's network: there published ports are on the loopback, as they
    are for a user, and a page from the loopback counts as a safe one."""
    from playwright.sync_api import sync_playwright

    network = ("--network", "host", "--shm-size", "512m")
    tracked = containers.start(image, "chromium", *OPTIONS, "about:blank", options=network, quiet=False)
    port = tracked.wait_for_line(r"DevTools listening on ws://127\.0\.0\.1:(\d+)/")[1]
    with sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(f"http://127.0.0.1:{port}")
        try:
            yield browser
        finally:
            browser.close()
            tracked.remove()
