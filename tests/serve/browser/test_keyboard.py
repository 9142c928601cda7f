"""Everything can be done without a mouse."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.serve.browser.conftest import PLAYWRIGHT, Opener
from tests.serve.browser.photos import caption, file_name
from tests.serve.live import Live

expect = pytest.importorskip("playwright.sync_api", reason=PLAYWRIGHT).expect


ONE = "yellow", "blue", "left"
FOCUS = (Path(__file__).parent / "focus.js").read_text()


def test_search_and_wander_with_the_keyboard(visit: Opener, live: Live) -> None:
    page = visit(live, "?q=red+square+on+a+greenground")
    links = page.locator("#results a.open")
    expect(links).to_have_count(24)
    box = page.get_by_role("searchbox")
    page.keyboard.press("/")
    expect(box).to_be_focused()
    expect(box).to_have_value("red square on a greenground")
    page.keyboard.type(caption(*ONE))
    page.keyboard.press("Enter")
    expect(page.locator("#results img").first).to_have_attribute("alt", file_name(*ONE))
    page.keyboard.press("ArrowDown")
    expect(links.first).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(links.nth(2)).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(links.nth(1)).to_be_focused()
    columns = page.locator("#results").evaluate(
        "grid => getComputedStyle(grid).gridTemplateColumns.split(' ').length"
    )
    assert columns > 2
    page.keyboard.press("ArrowDown")
    expect(links.nth(1 + columns)).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(box).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("End")
    expect(links.last).to_be_focused()
    expect(links.last).to_be_in_viewport()
    page.keyboard.press("Escape")
    expect(box).to_be_focused()
    page.keyboard.press("Escape")
    expect(box).to_have_value("")


def test_enter_searches_the_other_way_and_keeps_the_focus(visit: Opener, live: Live) -> None:
    page = visit(live, "?q=a+red+square+on+a+greenground+at+the+left")
    expect(page.locator("#results a.open")).to_have_count(24)
    page.keyboard.press("/")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("item="))
    first = page.locator("#results a.open").first
    expect(first).to_be_focused()
    expect(first).to_contain_text("red square on a greenground")
    # The reasons are opened by keyboard, too.
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#results .panel").first).to_be_visible()


def test_escape_stops_a_query(visit: Opener, live: Live) -> None:
    page = visit(live)
    page.route("**/api/search", lambda route: None)
    page.get_by_role("searchbox").fill("red")
    page.keyboard.press("Enter")
    expect(page.get_by_role("progressbar")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("progressbar")).to_be_hidden()
    expect(page.get_by_role("status").first).to_have_text("Stopped.")


def test_the_focus_can_be_seen_everywhere(visit: Opener, live: Live) -> None:
    page = visit(live, "?q=red+square+on+a+greenground")
    expect(page.locator("#results a.open")).to_have_count(24)
    seen = set()
    for _ in range(14):
        page.keyboard.press("Tab")
        name, visible = page.evaluate(FOCUS)
        seen.add(name)
        assert visible, f"no focus to be seen on {name}"
    assert {"skip", "words", "go", "theme", "open"} <= seen
