"""Dark and light, small screens, and accessibility."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ccal.reports.style import DARK, GRID, INK, MUTED, PAPER, SERIES
from tests.serve.browser.conftest import PLAYWRIGHT, Opener
from tests.serve.live import Live

if TYPE_CHECKING:
    from playwright.sync_api import Page

expect = pytest.importorskip("playwright.sync_api", reason=PLAYWRIGHT).expect

QUERY = "?q=red+square"
VIEWS = ("", QUERY, f"{QUERY}&to=text", "?item=17.jpg", "?view=map", "?view=evaluation")
HERE = Path(__file__).parent
STRUCTURE, GROUNDS, SMALL = (
    (HERE / f"{name}.js").read_text() for name in ("structure", "grounds", "small")
)
STYLE = HERE.parents[2] / "src" / "ccal" / "serve" / "static" / "base.css"


def settled(page: Page) -> None:
    page.wait_for_load_state("networkidle")
    expect(page.locator("#results[aria-busy]")).to_have_count(0)


def colours() -> dict[str, tuple[str, str]]:
    found = re.findall(r"--([\w-]+): light-dark\((#\w+), (#\w+)\)", STYLE.read_text())
    return {name: (light, dark) for name, light, dark in found}


def luminance(colour: str) -> float:
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_contrast_of_the_colours(scheme: int) -> None:
    shade = {name: both[scheme] for name, both in colours().items()}
    for text in ("ink", "muted", "accent", "danger", "second", "third"):
        for ground in ("paper", "raised"):
            assert contrast(shade[text], shade[ground]) >= 4.5, (text, ground)
    for text, ground in (
        ("on-accent", "accent"),
        ("accent", "accent-soft"),
        ("ink", "accent-soft"),
        ("ink", "mark"),
    ):
        assert contrast(shade[text], shade[ground]) >= 4.5, (text, ground)
    # Borders of controls, and bars.
    assert contrast(shade["edge"], shade["paper"]) >= 3
    assert contrast(shade["second"], shade["mark"]) >= 2


def test_the_colours_are_those_of_the_reports() -> None:
    shared = {"ink": INK, "muted": MUTED, "grid": GRID, "paper": PAPER}
    shared |= dict(zip(("accent", "second", "third"), SERIES, strict=False))
    for name, colour in shared.items():
        assert colours()[name] == (colour, DARK[colour])


def test_dark_by_the_system_and_by_the_button(visit: Opener, live: Live) -> None:
    page = visit(live, dark=True)
    ground = "getComputedStyle(document.body).backgroundColor"
    button = page.get_by_role("button", name="Dark colours")
    expect(button).to_have_attribute("aria-pressed", "true")
    assert page.evaluate(ground) == "rgb(21, 24, 28)"
    button.click()
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    page.reload()
    expect(button).to_have_attribute("aria-pressed", "false")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    button.click()
    # Back to the colour scheme of the system, which the page then follows.
    page.emulate_media(color_scheme="light")
    expect(button).to_have_attribute("aria-pressed", "false")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"


@pytest.mark.parametrize(("width", "dark"), [(320, True), (1200, False)])
def test_every_view(visit: Opener, live: Live, width: int, dark: bool) -> None:
    page = visit(live, width=width, dark=dark)
    for view in VIEWS:
        page.goto(f"{live.url}/{view}")
        settled(page)
        if view.startswith("?q"):
            page.locator(".why summary").first.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
        assert page.evaluate(SMALL) == [], view
        assert page.evaluate(STRUCTURE) == [], view
        texts = page.evaluate(GROUNDS)
        assert len(texts) > 5
        for text, colour, ground in texts:
            assert contrast(colour, ground) >= 4.5, (view, text, colour, ground)


def test_no_motion_for_those_who_do_not_want_it(visit: Opener, live: Live) -> None:
    page = visit(live, reduced_motion="reduce")
    page.route("**/api/search", lambda route: None)
    page.get_by_role("searchbox").fill("red")
    page.keyboard.press("Enter")
    bar = page.get_by_role("progressbar")
    expect(bar).to_be_visible()
    moving = bar.evaluate("bar => getComputedStyle(bar, '::after').animationIterationCount")
    assert moving == "1"
