"""Watches a page for logged errors, and for requests to other servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import ConsoleMessage, Page, Request

__all__ = ["Watch"]


class Watch:
    """Collects what goes wrong on `page`, but for messages that contain one of `expected`."""

    def __init__(self, page: Page, url: str, expected: tuple[str, ...]) -> None:
        self.page, self.problems = page, list[str]()
        self._url, self._expected = url, expected
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        text = message.text
        if message.type in ("error", "warning") and not any(one in text for one in self._expected):
            self.problems.append(f"{message.type}: {text}")

    def _request(self, request: Request) -> None:
        if not request.url.startswith((f"{self._url}/", "blob:", "data:")):
            self.problems.append(f"request to {request.url}")
