"""The figures on the result pages are those that benchmarks keeps."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from benchmarks import identify, pages, recordings
from benchmarks.peers import RESULTS, table
from ccal.experiments.paper_tables import MEASURES, table_of

ROOT = Path(__file__).parents[2]
PAGES = {
    "cub": "zero-shot.md",
    "cub-best-dcca": "zero-shot.md",
    "cub-best-learned": "zero-shot.md",
    "flickr8k": "flickr8k.md",
    "nottingham": "nottingham.md",
    "nottingham-10pct": "nottingham.md",
    "nottingham-10pct-same-start": "nottingham.md",
    "nottingham-10pct-same-start-10-epochs": "nottingham.md",
    "nottingham-27000-pairs": "nottingham.md",
    "nottingham-27000-pairs-same-start": "nottingham.md",
}


def means(runs: list[dict[str, Any]]) -> list[float]:
    """The figures of a row: both directions of all measures, or AP@50."""
    tests = [run["test"] for run in runs]
    if "ap" in tests[0]:
        return [fmean(test["ap"] for test in tests)]
    ways = ("x_to_y", "y_to_x")
    return [fmean(test[way][name] for test in tests) for way in ways for name in MEASURES]


@pytest.mark.parametrize("name", PAGES)
def test_every_row_stands_on_its_page(name: str) -> None:
    content = json.loads((ROOT / "benchmarks/reproduce" / f"{name}.json").read_text())
    lines = (ROOT / "docs/results" / PAGES[name]).read_text().splitlines()
    titles = table_of(content["table"]).rows
    by_row: dict[str, list[dict[str, Any]]] = {}
    for run in content["runs"]:
        by_row.setdefault(run["row"], []).append(run)
    for row, runs in by_row.items():
        shown = [line.split(" | ") for line in lines if line.startswith(f"| {titles[row]} |")]
        expected = {f"{value:.1f}" for value in means(runs)}
        cells = [{cell.split(" ± ")[0] for cell in line} for line in shown]
        assert any(expected <= found for found in cells), (name, row, expected)


def test_the_table_of_peers_stands_on_its_page() -> None:
    page = (ROOT / "docs/results/peers.md").read_text()
    assert table(json.loads(RESULTS.read_text())) in page


def test_the_pages_and_the_card_of_music_are_written_from_what_is_kept() -> None:
    rows = json.loads(recordings.RESULTS.read_text())
    assert recordings.page(rows) == recordings.PAGE.read_text()
    card = recordings.CARD.read_text()
    assert recordings.card(card, rows) == card
    for module in (identify, pages):
        assert module.page(json.loads(module.RESULTS.read_text())) == module.PAGE.read_text()
