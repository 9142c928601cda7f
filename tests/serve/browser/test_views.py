"""The map to wander in, and the evaluation."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.serve.browser.conftest import PLAYWRIGHT, Opener
from tests.serve.live import Live

if TYPE_CHECKING:
    from playwright.sync_api import Route

expect = pytest.importorskip("playwright.sync_api", reason=PLAYWRIGHT).expect


def test_the_map_by_keyboard(visit: Opener, live: Live) -> None:
    page = visit(live, "?q=red+square")
    expect(page.locator("#results .card")).to_have_count(24)
    page.get_by_role("link", name="Map").click()
    canvas = page.get_by_role("application", name=re.compile("Map of 150 items"))
    expect(page.get_by_text("results of the last search")).to_be_visible()
    expect(page.locator(".legend")).to_contain_text("image")
    canvas.focus()
    said = page.locator("#view-map [role=status]")
    page.keyboard.press("ArrowRight")
    expect(said).not_to_be_empty()
    first = said.inner_text()
    page.keyboard.press("ArrowLeft")
    expect(said).not_to_have_text(first)
    expect(page.locator(".tip")).to_be_visible()
    whole = canvas.screenshot()
    for key in ("+", "+", "Shift+ArrowLeft"):
        page.keyboard.press(key)
    page.wait_for_timeout(200)
    assert canvas.screenshot() != whole
    page.keyboard.press("0")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("item="))
    expect(page.locator("#results .card").first).to_be_visible()
    page.go_back()
    expect(canvas).to_be_visible()


def test_pictures_from_close_by(visit: Opener, live: Live) -> None:
    page = visit(live, "?view=map")
    expect(page.locator("#view-map .note")).to_contain_text("neighbours together")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    canvas = page.locator("#view-map canvas")
    canvas.focus()
    for _ in range(4):
        page.keyboard.press("+")
    page.wait_for_load_state("networkidle")
    few = [url for url in asked if "/media/thumbnail" in url]
    # Those in view, each once.
    assert 0 < len(few) < 75
    assert len(set(few)) == len(few)
    before = canvas.screenshot()
    page.get_by_role("button", name="Dark colours").click()
    page.wait_for_timeout(200)
    assert canvas.screenshot() != before


def test_the_map_by_mouse(visit: Opener, live: Live) -> None:
    page = visit(live, "?view=map")
    canvas = page.locator("#view-map canvas")
    expect(canvas).to_be_visible()
    tip = page.locator(".tip")
    box = canvas.bounding_box()
    assert box is not None
    # The first point on a line across the middle.
    x, y = box["x"], box["y"] + box["height"] / 2
    for step in range(0, int(box["width"]), 12):
        page.mouse.move(x + step, y)
        if tip.is_visible():
            break
    expect(tip).to_be_visible()
    before = canvas.screenshot()
    page.mouse.wheel(0, -400)
    page.wait_for_timeout(200)
    assert canvas.screenshot() != before
    page.get_by_role("button", name="The whole map").click()
    page.mouse.move(x + 30, y)
    page.mouse.down()
    page.mouse.move(x + 130, y + 40, steps=4)
    page.mouse.up()
    # Dragging is no click.
    assert "item=" not in page.url
    page.get_by_role("button", name="The whole map").click()
    for step in range(0, int(box["width"]), 12):
        page.mouse.move(x + step, y)
        if tip.is_visible():
            page.mouse.click(x + step, y)
            break
    page.wait_for_url(re.compile("item="))


def test_the_map_by_touch(visit: Opener, live: Live) -> None:
    page = visit(live, "?view=map", width=320, has_touch=True)
    canvas = page.locator("#view-map canvas")
    expect(canvas).to_be_visible()
    box = canvas.bounding_box()
    assert box is not None
    whole = canvas.screenshot()
    # Two fingers that move apart, as events of the browser.
    client = page.context.new_cdp_session(page)
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def touch(kind: str, gap: float) -> None:
        points = [{"x": middle[0] + side * gap, "y": middle[1], "id": side} for side in (-1, 1)]
        client.send(
            "Input.dispatchTouchEvent",
            {"type": kind, "touchPoints": [] if kind == "touchEnd" else points},
        )

    touch("touchStart", 20)
    for gap in (30, 50, 80):
        touch("touchMove", gap)
    touch("touchEnd", 80)
    page.wait_for_timeout(200)
    assert canvas.screenshot() != whole
    assert "item=" not in page.url


def test_validation_and_test_on_one_scale(visit: Opener, live: Live) -> None:
    page = visit(live)
    found = {"queries": 40, "candidates": 50}

    def answer(route: Route, candidates: int) -> None:
        about = route.fetch().json()
        name, hits = about["directions"][0]["name"], {"right": 3, "hits": 4}
        about["reliability"] = [{"name": name, "strong": hits, "fair": hits, "weak": hits}]
        for way in about["directions"]:
            way |= {**found, "validation": {**found, "candidates": candidates, "mrr": 25.0}}
        route.fulfill(json=about)

    for candidates, said in ((50, "can be compared"), (60, "The numbers of candidates differ")):
        page.unroute("**/api/evaluation")
        page.route("**/api/evaluation", partial(answer, candidates=candidates))
        page.goto(f"{live.url}/?view=evaluation")
        expect(page.locator("#view-evaluation")).to_contain_text(said)
        row = page.get_by_role("row", name=re.compile("strong"))
        expect(row).to_contain_text("75%3 of 4")
        scale = page.locator("dl.scale")
        expect(scale).to_contain_text(f"40 queries, {candidates} candidates each")
        tracks = scale.locator(".track")
        widths = {round(tracks.nth(i).evaluate("node => node.offsetWidth")) for i in range(4)}
        assert len(widths) == 1
        bar, whole = tracks.first.locator("i").bounding_box(), tracks.first.bounding_box()
        assert bar is not None
        assert whole is not None
        assert bar["width"] / whole["width"] == pytest.approx(0.25, abs=0.01)


def test_the_evaluation(visit: Opener, live: Live) -> None:
    page = visit(live)
    page.get_by_role("link", name="Evaluation").click()
    view = page.locator("#view-evaluation")
    expect(view.get_by_role("columnheader", name="image → text")).to_be_visible()
    expect(view.get_by_role("row", name=re.compile("MRR"))).to_be_visible()
    plots = view.locator("figure img")
    expect(plots.first).to_be_visible()
    ranks = plots.first.element_handle()
    page.wait_for_function("image => image.naturalWidth > 0", arg=ranks)
    assert "theme=light" in (plots.first.get_attribute("src") or "")
    page.get_by_role("button", name="Dark colours").click()
    expect(plots.first).to_have_attribute("src", re.compile("theme=dark"))
    with page.expect_popup() as opened:
        page.get_by_role("link", name="The whole report").click()
    expect(opened.value.get_by_role("heading", level=1)).to_be_visible()
    page.go_back()
    expect(page.get_by_role("searchbox")).to_be_visible()
    assert page.title().startswith("photos")
