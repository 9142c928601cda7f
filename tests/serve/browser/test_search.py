"""Words, pictures and results as queries, from the box to the grid."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ccal.data import Pairs
from ccal.data.pairs import Rows
from ccal.model import load
from ccal.retrieval import Index
from ccal.serve import IndexCollection
from tests.serve.browser.conftest import PLAYWRIGHT, Opener
from tests.serve.browser.photos import caption, file_name
from tests.serve.conftest import photo
from tests.serve.live import Live

if TYPE_CHECKING:
    from playwright.sync_api import Page

expect = pytest.importorskip("playwright.sync_api", reason=PLAYWRIGHT).expect

RESULTS = "#results .card"
ONE = "yellow", "blue", "left"


def ask(page: Page, words: str) -> None:
    page.get_by_role("searchbox").fill(words)
    page.keyboard.press("Enter")
    expect(page.locator("#status")).to_contain_text("The best")


def score(text: str) -> float:
    return float(text.split()[-1])


def test_words_find_pictures(visit: Opener, live: Live) -> None:
    page = visit(live)
    ask(page, caption(*ONE))
    cards = page.locator(RESULTS)
    expect(cards).to_have_count(24)
    first = cards.first.locator("img")
    expect(first).to_have_attribute("alt", file_name(*ONE))
    first.scroll_into_view_if_needed()
    page.wait_for_function("i => i.complete && i.naturalWidth > 0", arg=first.element_handle())
    scores = [score(text) for text in page.locator(f"{RESULTS} .score").all_text_contents()]
    assert scores == sorted(scores, reverse=True)
    words = page.locator(f"{RESULTS} .match").all_inner_texts()
    assert words == sorted(words, key=["strong", "fair", "weak"].index)
    assert len(words) == 24
    assert words[0] != "weak"
    expect(cards.first.locator(".match")).to_have_attribute("title", re.compile("of such hits"))
    # Words with weight are marked; a word that no caption has is struck out.
    ask(page, "a yellow square on a blueground xyzzy")
    marks = page.locator("#query mark")
    weights = dict(
        marks.evaluate_all(
            "all => all.map(m => [m.textContent, +m.style.getPropertyValue('--weight')])"
        )
    )
    assert weights["blueground"] > weights["square"]
    expect(page.locator("#query .unknown")).to_have_text("xyzzy")


def test_why_a_picture_matches(visit: Opener, live: Live) -> None:
    page = visit(live, "?q=a+yellow+square+on+a+redground")
    card = page.locator(RESULTS).first
    expect(card.locator(".panel")).to_be_hidden()
    card.get_by_text("Why").click()
    panel = card.locator(".panel")
    expect(panel).to_be_visible()
    expect(panel.locator("dt").get_by_text("redground", exact=True)).to_be_visible()
    # Words that the model learned for the dimensions, and pictures; linear towers are no CCA.
    correlation = panel.locator(".end strong").first.get_attribute("title", timeout=20_000)
    assert re.search(r"(yellow|redground) -?0\.\d\d", correlation or "")
    expect(panel.locator(".end strong").first).to_contain_text(re.compile("yellow|redground"))
    expect(panel.locator(".examples img").first).to_be_visible()
    assert "canonical" not in panel.inner_text()
    # All that is said to be added sums to the score.
    said = " ".join(panel.locator(".note").all_inner_texts()).replace("−", "-")
    added = sum(float(text) for text in re.findall(r"[+-]\d\.\d+", said))
    assert abs(added - score(card.locator(".score").inner_text())) < 0.006
    # Only one result is open at a time.
    page.locator(RESULTS).nth(1).get_by_text("Why").click()
    expect(panel).to_be_hidden()
    page.locator(RESULTS).nth(1).locator(".examples a").first.click()
    page.wait_for_url(re.compile("item="))


def test_search_the_other_way_and_back(visit: Opener, live: Live) -> None:
    page = visit(live, "?" + urllib.parse.urlencode({"q": caption(*ONE)}))
    page.locator(f"{RESULTS} a.open").first.click()
    page.wait_for_url(re.compile("item="))
    expect(page.locator("#query")).to_contain_text("Searched with")
    captions = page.locator(f"{RESULTS} .words")
    expect(captions.first).to_have_text(caption(*ONE))
    captions.first.click()
    expect(page.locator(f"{RESULTS} img").first).to_have_attribute("alt", file_name(*ONE))
    page.go_back()
    expect(captions.first).to_have_text(caption(*ONE))
    page.go_back()
    expect(page.get_by_role("searchbox")).to_have_value(caption(*ONE))
    expect(page.locator(f"{RESULTS} img").first).to_be_visible()
    page.go_forward()
    expect(captions.first).to_be_visible()


def test_a_picture_finds_captions(visit: Opener, live: Live, tmp_path: Path) -> None:
    path = tmp_path / "mine.png"
    photo(*ONE).save(path)
    page = visit(live)
    page.locator("#file").set_input_files(path)
    captions = page.locator(f"{RESULTS} .words")
    expect(captions.first).to_have_text(caption(*ONE))
    expect(page.get_by_alt_text("Your picture mine.png")).to_be_visible()
    page.get_by_role("button", name="Clear this query").click()
    expect(page.locator("#query")).to_be_empty()
    expect(page.get_by_role("searchbox")).to_be_focused()


def test_a_picture_is_dropped_or_pasted(visit: Opener, live: Live, tmp_path: Path) -> None:
    path = tmp_path / "dropped.png"
    photo(*ONE).save(path)
    page = visit(live)
    for event, target in (("drop", "dataTransfer"), ("paste", "clipboardData")):
        page.goto(live.url)
        expect(page.locator(RESULTS).first).to_be_visible()
        page.evaluate(
            """([data, event, target]) => {
                const carried = new DataTransfer();
                const bytes = Uint8Array.from(data);
                carried.items.add(new File([bytes], "dropped.png", { type: "image/png" }));
                const init = { bubbles: true, cancelable: true, [target]: carried };
                const kind = target === "dataTransfer" ? DragEvent : ClipboardEvent;
                if (event === "drop") {
                    document.dispatchEvent(new kind("dragenter", init));
                    if (document.getElementById("drop").hidden) throw Error("no sign to drop it");
                }
                document.dispatchEvent(new kind(event, init));
            }""",
            [list(path.read_bytes()), event, target],
        )
        expect(page.locator(f"{RESULTS} .words").first).to_have_text(caption(*ONE))
        expect(page.locator("#drop")).to_be_hidden()


def test_what_to_find_can_be_chosen(visit: Opener, live: Live) -> None:
    page = visit(live, "?q=red+square+on+a+greenground")
    choices = page.get_by_role("radiogroup", name="What to find")
    expect(choices.get_by_role("radio", name="images")).to_be_checked()
    choices.get_by_role("radio", name="texts").check()
    expect(page.locator(f"{RESULTS} .words").first).to_contain_text("red square on a greenground")
    assert urllib.parse.parse_qs(urllib.parse.urlsplit(page.url).query)["to"] == ["text"]


def test_more_results(visit: Opener, live: Live) -> None:
    page = visit(live, "?q=red+square+on+a+greenground")
    for number in (48, 72, 75):
        page.get_by_role("button", name="Show more").click()
        expect(page.locator(RESULTS)).to_have_count(number)
    expect(page.get_by_role("button", name="Show more")).to_be_hidden()


def test_an_address_with_markup_is_only_text(visit: Opener, live: Live) -> None:
    words = '<img src=x onerror="document.title=1"> <b>red</b> 🟥 square'
    page = visit(live, "?" + urllib.parse.urlencode({"q": words}))
    expect(page.locator("#status")).to_contain_text("The best")
    expect(page.get_by_role("searchbox")).to_have_value(words)
    expect(page.locator("#query mark", has_text="square")).to_have_text("square")
    assert page.locator("#query img, #query b").count() == 0
    assert page.title().startswith("<img")


def test_the_start_page_offers_something(visit: Opener, live: Live) -> None:
    page = visit(live)
    page.locator(".chips a").first.click()
    expect(page.locator("#status")).to_contain_text("The best")
    page.get_by_role("link", name="ccal photos").click()
    expect(page.get_by_role("searchbox")).to_have_value("")
    page.locator(f"{RESULTS} a.open").first.click()
    expect(page.locator(f"{RESULTS} .words").first).to_be_visible()


def test_a_newer_query_wins(visit: Opener, live: Live) -> None:
    page = visit(live)
    held: list[Any] = []
    page.route("**/api/search", lambda route: held.append(route) if not held else route.continue_())
    page.get_by_role("searchbox").fill("red square")
    page.keyboard.press("Enter")
    bar = page.get_by_role("progressbar", name="Searching")
    expect(bar).to_be_visible()
    expect(page.locator("#results")).to_have_attribute("aria-busy", "true")
    with page.expect_event("requestfailed", lambda request: request.url.endswith("api/search")):
        ask(page, caption(*ONE))
    expect(bar).to_be_hidden()
    expect(page.locator(f"{RESULTS} img").first).to_have_attribute("alt", file_name(*ONE))


def test_captions_of_photos_and_photos_of_captions(
    visit: Opener, serve: Callable[..., Live], photos: Path, tmp_path: Path
) -> None:
    captions = [f"a red square, number {number}" for number in range(6)]
    names = [str(photos / "0.jpg")] * 6 + [str(photos / "30.jpg")]
    texts = [*captions, "a blue square"]
    model = load(photos / "model")
    pairs = Pairs({"image": Rows(names, files=True), "text": texts})
    Index.build(tmp_path / "index", model, pairs).close()
    live = serve(IndexCollection(Index.open(tmp_path / "index"), model))
    page = visit(live, "?q=red+square")
    card = page.locator(RESULTS).first
    expect(card.locator(".name")).to_have_text(captions[0])
    expect(card.get_by_text(captions[1])).to_be_hidden()
    # Five captions come with the photo, and one more is counted.
    card.get_by_text("5 more").click()
    expect(card.get_by_text("and 1 more")).to_be_visible()
    card.get_by_text(captions[3]).click()
    page.wait_for_url(re.compile("item="))
    expect(page.locator("#query")).to_contain_text(captions[3])
    expect(page.locator("#query img")).to_be_visible()
    page.goto(f"{live.url}/?q=blue+square&to=text")
    beside = page.locator(RESULTS).first.locator(".beside")
    expect(beside.locator("img")).to_be_visible()
    beside.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#query .quote")).to_have_text("a blue square")
