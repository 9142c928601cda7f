"""Folk tunes: sound finds scores, scores find sound, and both can be played where they match."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from ccal import DualEncoder
from ccal.music import TuneLibrary, parse_abc, read_lines
from ccal.music.engraving import engrave_page
from tests.serve.browser.conftest import PLAYWRIGHT, Opener
from tests.serve.live import Live

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

expect = pytest.importorskip("playwright.sync_api", reason=PLAYWRIGHT).expect

CARDS = "#results .card"


@pytest.fixture(scope="module")
def tunes(library: TuneLibrary, model: DualEncoder) -> Iterator[Live]:
    """A server of four tunes."""
    from ccal.serve.tune_collection import TuneCollection

    server = Live(TuneCollection(library, model, title="Dances"))
    yield server
    server.stop()


def hear(page: Page, library: TuneLibrary, tune: int, path: Path) -> Locator:
    """Search with seconds 6 to 14 of a tune; returns the first result, which must be the tune."""
    path.write_bytes(library.wav(tune, (6.0, 14.0)))
    page.locator("#file").set_input_files(path)
    expect(page.locator("#status")).to_contain_text(re.compile("The best|The nearest"))
    first = page.locator(CARDS).first
    expect(first.locator("a.open")).to_contain_text(library.names[tune])
    return first


def test_a_sound_finds_its_score(
    visit: Opener, tunes: Live, library: TuneLibrary, tmp_path: Path
) -> None:
    page = visit(tunes)
    first = hear(page, library, 2, tmp_path / "heard.wav")
    expect(first).to_contain_text(re.compile(r"match 0:0\d–0:1\d"))
    expect(page.get_by_label("Your sound heard.wav")).to_be_visible()
    # The place is marked, and the staff scrolled to it.
    page.wait_for_function(
        "strip => strip.scrollLeft > 0", arg=first.locator(".strip").element_handle()
    )
    mark, strip = first.locator(".mark").bounding_box(), first.locator(".strip").bounding_box()
    assert mark is not None
    assert strip is not None
    middle = mark["x"] + mark["width"] / 2
    assert strip["x"] < middle < strip["x"] + strip["width"]


def test_a_match_is_played_from_where_it_matches(
    visit: Opener, tunes: Live, library: TuneLibrary, tmp_path: Path
) -> None:
    page = visit(tunes)
    first, second = hear(page, library, 1, tmp_path / "heard.wav"), page.locator(CARDS).nth(1)
    first.get_by_role("button", name=re.compile("^Play(?!.*from the start)")).click()
    pause = first.get_by_role("button", name=re.compile("^Pause"))
    expect(pause).to_be_visible()
    expect(first.locator(".head")).to_be_visible()
    expect(first.locator(".place")).to_have_text(re.compile(r"0:0[5-9]|0:1\d"))
    # When another sound is played, this one stops.
    second.get_by_role("button", name=re.compile("from the start")).click()
    expect(second.get_by_role("button", name=re.compile("^Pause"))).to_be_visible()
    expect(pause).to_be_hidden()


def test_a_staff_finds_its_tune(
    visit: Opener, tunes: Live, library: TuneLibrary, tmp_path: Path
) -> None:
    path = tmp_path / "staff.png"
    path.write_bytes(library.staff_png(3, (200, 600)))
    page = visit(tunes)
    page.locator("#file").set_input_files(path)
    expect(page.locator(CARDS).first.locator("a.open")).to_contain_text(library.names[3])
    expect(page.get_by_alt_text("Your picture staff.png")).to_be_visible()


@pytest.mark.parametrize("width", [390, 1280])
def test_the_tunes_of_a_pdf_file(
    visit: Opener, tunes: Live, library: TuneLibrary, tmp_path: Path, width: int
) -> None:
    pytest.importorskip("pypdfium2")
    path = tmp_path / "book.pdf"
    pages = [engrave_page(parse_abc(library.abc(tune)), look=tune) for tune in (1, 3)]
    first, second = map(Image.fromarray, pages)
    first.save(path, "PDF", save_all=True, append_images=[second], resolution=150)
    page = visit(tunes, width=width)
    page.locator("#file").set_input_files(path)
    for number, tune in enumerate((1, 3)):
        heading = page.locator(".group h2").nth(number)
        expect(heading).to_contain_text(f"of page {number + 1}: ")
        shown = page.get_by_alt_text(f"Page {number + 1} of book.pdf")
        expect(shown).to_be_visible()
        figure = page.locator(".pages figure").nth(number)
        assert figure.locator("polygon").count() == len(read_lines(pages[number]))
        name = page.locator(f".group:nth-of-type({4 * number + 1}) + .card a.open")
        expect(name).to_contain_text(library.names[tune])
    # The outlines cover the whole picture, so that shares of it are where they belong.
    outlines, picture = figure.locator("svg").bounding_box(), shown.bounding_box()
    assert outlines == pytest.approx(picture, abs=1)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_tune_finds_itself_and_others(visit: Opener, tunes: Live, library: TuneLibrary) -> None:
    page = visit(tunes, width=320, dark=True)
    page.locator(f"{CARDS} a.open").nth(1).click()
    page.wait_for_url(re.compile("item=tune-"))
    expect(page.locator("#query")).to_contain_text("Searched with")
    expect(page.locator("#query .strip")).to_be_visible()
    expect(page.locator(f"{CARDS} .mark").first).to_be_attached()
    assert page.evaluate("document.documentElement.scrollWidth") <= 320


def test_a_recording(visit: Opener, tunes: Live) -> None:
    page = visit(tunes, permissions=["microphone"])
    record = page.get_by_role("button", name="Search with a recording")
    record.click()
    expect(page.get_by_role("timer")).to_have_text(re.compile("0:01 of 0:20"))
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("timer")).to_be_hidden()
    assert page.locator("#query").inner_text() == ""
    record.click()
    expect(page.get_by_role("timer")).to_have_text(re.compile("0:03 of 0:20"))
    with page.expect_response("**/api/search/file**") as answered:
        page.get_by_role("button", name="Stop and search").click()
    assert answered.value.request.headers["content-type"] == "audio/wav"
    assert answered.value.status == 200, answered.value.text()
    mine = page.get_by_label("Your sound recording.wav")
    expect(mine).to_be_visible()
    page.wait_for_function(
        "audio => audio.duration > 2 && audio.duration < 9", arg=mine.element_handle()
    )
    # The recording is beeps, which may resemble any tune.
    expect(page.locator(CARDS)).to_have_count(4)


def test_a_tune_is_found_by_its_name(visit: Opener, tunes: Live, library: TuneLibrary) -> None:
    page = visit(tunes)
    page.get_by_role("searchbox", name="Search with words").fill("dance 3")
    page.keyboard.press("Enter")
    expect(page.locator(CARDS)).to_have_count(1)
    expect(page.locator(f"{CARDS} a.open")).to_contain_text(library.names[2])
    page.get_by_role("searchbox").fill("no such tune")
    page.keyboard.press("Enter")
    expect(page.locator(".empty")).to_contain_text("Nothing was found")
    assert page.locator("#status").inner_text() == "No tunes were found."
