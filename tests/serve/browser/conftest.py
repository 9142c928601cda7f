"""Chromium, and pages that are watched while tests use them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.serve.browser.watch import Watch

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.serve.live import Live

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or ""
ARGUMENTS = [
    "--no-sandbox",
    # A fake microphone that beeps, and needs no permission.
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
]
PLAYWRIGHT = "playwright is not installed: pip install playwright"
Opener = Callable[..., "Page"]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Debian's Chromium, without a screen."""
    playwright = pytest.importorskip("playwright.sync_api", reason=PLAYWRIGHT)
    if not CHROMIUM:
        pytest.skip("chromium is not installed: apt install chromium, or set CHROMIUM")
    # Generous, for a busy machine.
    playwright.expect.set_options(timeout=20_000)
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Opener]:
    """Open a page: `visit(server, "?q=words", width=320, dark=True)`.

    At the end of a test no page may have logged errors, but for those that contain one of
    `expected`, nor asked anyone but its server. `ready=False` does not wait for the server's first
    answer.
    """
    import playwright.sync_api as playwright

    watches: list[Watch] = []

    def open_page(
        server: Live,
        path: str = "",
        *,
        width: int = 1200,
        dark: bool = False,
        expected: tuple[str, ...] = (),
        ready: bool = True,
        **more: Any,
    ) -> Page:
        context = chromium.new_context(
            viewport={"width": width, "height": 800},
            color_scheme="dark" if dark else "light",
            **more,
        )
        context.set_default_timeout(20_000)
        page = context.new_page()
        watches.append(Watch(page, server.url, expected))
        page.goto(f"{server.url}/{path}")
        if ready:
            playwright.expect(page.locator("#about")).not_to_be_empty()
        return page

    yield open_page
    for watch in watches:
        watch.page.context.close()
    assert not [problem for watch in watches for problem in watch.problems]
