"""Errors on the page: large files, a server that dies, a missing token."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ccal.serve.collection import PendingCollection, Report
from tests.serve.browser.conftest import PLAYWRIGHT, Opener
from tests.serve.conftest import open_collection, photo
from tests.serve.live import Live

if TYPE_CHECKING:
    from playwright.sync_api import Page

expect = pytest.importorskip("playwright.sync_api", reason=PLAYWRIGHT).expect

FAILED = ("Failed to load resource",)


def problem(page: Page) -> Any:
    return page.locator("#problem .problem")


def test_an_oversized_file(visit: Opener, live: Live, tmp_path: Path) -> None:
    path = tmp_path / "huge.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(21_000_000))
    page = visit(live, "?q=red+square+on+a+greenground", expected=FAILED)
    expect(page.locator("#status")).to_contain_text("The best")
    page.locator("#file").set_input_files(path)
    expect(problem(page)).to_contain_text("huge.png has 21 MB; at most 20 MB can be sent")
    # The results stay.
    expect(page.locator("#results .card")).to_have_count(24)


def test_the_server_refuses_an_oversized_file(
    visit: Opener, serve: Callable[..., Live], tmp_path: Path
) -> None:
    path = tmp_path / "large.png"
    photo("red", "blue", "left").save(path)
    size = path.stat().st_size
    page = visit(serve(upload_bytes=size - 1), expected=FAILED)
    # A page that knows another limit sends the file, and shows the answer of the server.
    page.route("**/api/info", lambda route: _with_limit(route, 10 * size))
    page.reload()
    expect(page.locator("#about")).not_to_be_empty()
    page.locator("#file").set_input_files(path)
    expect(problem(page)).to_contain_text("This file is too large")
    page.get_by_role("searchbox").fill("red square")
    page.keyboard.press("Enter")
    expect(page.locator("#status")).to_contain_text("The best")
    expect(problem(page)).to_have_count(0)


def _with_limit(route: Any, limit: int) -> None:
    response = route.fetch()
    body = response.json()
    body["limits"]["upload_bytes"] = limit
    route.fulfill(response=response, json=body)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("notes.txt", b"hello", "notes.txt is text/plain. This collection takes"),
        ("nothing.png", b"", "This file is empty"),
        ("broken.png", b"\x89PNG\r\n\x1a\nbroken", "cannot be"),
        ("page.png", b"<html>no picture</html>", "This kind of file cannot be searched with"),
    ],
)
def test_files_that_cannot_be_searched_with(
    visit: Opener, live: Live, tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    page = visit(live, expected=FAILED)
    page.locator("#file").set_input_files(path)
    expect(problem(page)).to_contain_text(said)
    assert page.locator("[role=alert] .problem").count() == 1


def test_unknown_words_and_items(visit: Opener, live: Live) -> None:
    page = visit(live, "?q=xyzzy+plugh", expected=FAILED)
    expect(problem(page)).to_contain_text("known to the model")
    expect(page.locator("#results .card")).to_have_count(0)
    page.goto(f"{live.url}/?item=../../etc/passwd")
    expect(problem(page)).to_contain_text("There is no such item")
    page.get_by_role("searchbox").fill("red")
    page.keyboard.press("Enter")
    expect(page.locator("#results .card")).to_have_count(24)
    expect(problem(page)).to_have_count(0)


def test_a_server_that_dies_and_comes_back(
    visit: Opener, photos: Path, serve: Callable[..., Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ccal.serve.app import listen

    server = Live(open_collection(photos))
    page = visit(server, "?q=red+square", expected=FAILED)
    expect(page.locator("#results .card")).to_have_count(24)
    server.stop()
    page.get_by_role("searchbox").fill("green square")
    page.keyboard.press("Enter")
    expect(problem(page)).to_contain_text("The server does not answer")
    expect(page.locator("#results .card")).to_have_count(0)
    expect(page.get_by_role("progressbar")).to_be_hidden()
    page.get_by_role("button", name="Try again").click()
    expect(problem(page)).to_contain_text("The server does not answer")
    # A new server at the same address.
    monkeypatch.setattr("tests.serve.live.listen", lambda host, _: listen(host, server.port))
    serve()
    # Without a click.
    expect(page.locator("#results .card")).to_have_count(24)
    expect(problem(page)).to_have_count(0)


def test_a_collection_that_is_still_being_made(
    visit: Opener, photos: Path, serve: Callable[..., Live]
) -> None:
    done = threading.Event()

    def make(report: Report) -> Any:
        while not done.wait(0.05):
            report("rendering tunes", 57, 184)
        return open_collection(photos)

    late = PendingCollection(make, title="photos")
    page = visit(serve(late), "?q=red+square", width=320, expected=FAILED, ready=False)
    expect(page.locator(".preparing")).to_contain_text("rendering tunes, 57 of 184")
    bar = page.get_by_role("progressbar", name="Getting ready")
    expect(bar).to_have_attribute("max", "184")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    expect(problem(page)).to_have_count(0)
    done.set()
    # Without a click, and with what was asked for.
    expect(page.locator("#results .card")).to_have_count(24)
    expect(page.locator(".preparing")).to_have_count(0)


def test_a_token(visit: Opener, serve: Callable[..., Live]) -> None:
    token = "open sesame, please"
    page = visit(serve(token=token), "?q=red+square", expected=FAILED, ready=False)
    dialog = page.get_by_role("dialog", name="This server asks for a token")
    expect(dialog).to_be_visible()
    page.get_by_role("textbox", name="Token").fill("wrong")
    page.keyboard.press("Enter")
    expect(dialog).to_contain_text("The token was not accepted")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(problem(page)).to_contain_text("A token is needed")
    page.get_by_role("button", name="Enter the token").click()
    page.get_by_role("textbox", name="Token").fill(token)
    page.keyboard.press("Enter")
    expect(page.locator("#results .card")).to_have_count(24)
    # Pictures need the token, too, and are loaded when they come near the screen.
    first = page.locator("#results img").first.element_handle()
    page.wait_for_function("i => i.src.startsWith('blob:') && i.naturalWidth > 0", arg=first)
    assert page.locator("#results img").last.get_attribute("src") is None
    page.reload()
    expect(page.locator("#results .card")).to_have_count(24)
    assert "sesame" not in page.url


def test_pictures_that_are_gone(visit: Opener, live: Live) -> None:
    page = visit(live, expected=FAILED)
    page.route("**/media/thumbnail**", lambda route: route.fulfill(status=404))
    page.get_by_role("searchbox").fill("red")
    page.keyboard.press("Enter")
    expect(page.locator("#status")).to_contain_text("The best")
    expect(page.locator("#results .frame").first).to_have_class("frame broken")
