from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ccal.errors import InputError
from ccal.reports import Example, ExampleHit, pages, pick_examples, write_comparison, write_report
from tests.reports.inputs import HOSTILE, Page, huge, pair, records, report, structure

TABLE = '<table>\n<tbody><tr><th scope="row">CCAL</th><td>99.9</td></tr></tbody>\n</table>'


def whole(path: Path, text: str = "plain", n: int = 60) -> str:
    """A page with everything in it, and `text` wherever a user's text can be."""
    x, y = pair(n)
    names = (text, "text")
    examples = pick_examples(x, y, x_items=[text] * n, names=names)
    write_report(
        path,
        title=text,
        facts={text: text, "method": "ccal"},
        report=report(n, name=text),
        records=[*records(stage=text), *records(5, stage="all")],
        structures={text: structure(), "other": structure(held_out=False)},
        examples=examples,
        reports_by_method={text: [report(name=text), report(seed=1)], "other": [report()]},
        table=TABLE,
        warnings=[text],
    )
    return path.read_text(encoding="utf-8")


def check(text: str) -> Page:
    """What holds for every page: well-formed, self-contained, without scripts, unique names."""
    page = Page(text)
    assert "http:" not in text
    assert "https:" not in text
    assert "script" not in page.tags()
    assert not {"link", "iframe", "object", "embed", "base"} & page.tags()
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert policy in page.attributes("content")
    assert not [name for _, attrs in page.seen for name in attrs if name.startswith("on")]
    for source in page.attributes("src"):
        assert source.startswith("data:image/")
    ids = Counter(page.attributes("id"))
    assert set(ids.values()) <= {1}
    clips = [clip.removeprefix("url(#").rstrip(")") for clip in page.attributes("clip-path")]
    assert {*clips, *(link[1:] for link in page.attributes("href"))} == set(ids)
    for tag, attrs in page.seen:
        if tag == "svg":
            assert attrs["role"] == "img"
            assert attrs["aria-label"]
        if tag == "img":
            assert attrs["alt"] is not None
    assert "@import" not in text
    return page


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    return whole(tmp_path_factory.mktemp("plain") / "report.html")


def test_everything_is_on_the_page(plain: str) -> None:
    page = check(plain)
    titles = re.findall(r"<h2>(.*?)</h2>", plain)
    assert titles == [
        "Summary",
        "About this run",
        "Methods",
        "Training",
        "Correlation structure",
        "Ranks",
        "Examples",
    ]
    shown = " ".join(page.text)
    given = report(name="plain").x_to_y
    assert given.low is not None
    assert given.high is not None
    assert f"{given.measures.mrr:.1f}" in shown
    assert f"[{given.low.mrr:.1f}, {given.high.mrr:.1f}]" in shown
    assert page.tags() >= {"caption", "main", "h1", "figcaption"}
    # Wide and narrow, of four plots.
    assert len([tag for tag, _ in page.seen if tag == "svg"]) == 8


def test_hostile_text_is_only_text(tmp_path: Path) -> None:
    written = whole(tmp_path / "report.html", HOSTILE + "<" * 10_000)
    check(written)
    assert len(written) < 1_000_000


def test_colours_follow_the_page(plain: str) -> None:
    drawings = "".join(re.findall(r"<svg.*?</svg>", plain, flags=re.DOTALL))
    assert "var(--series-1)" in drawings
    assert set(re.findall(r"#[0-9a-f]{6}\b", drawings)) == set()
    assert "prefers-color-scheme: dark" in plain


def test_a_report_alone_is_enough(tmp_path: Path) -> None:
    path = write_report(tmp_path / "report.html", title="t", facts={}, report=report(bootstrap=0))
    text = path.read_text(encoding="utf-8")
    check(text)
    assert re.findall(r"<h2>(.*?)</h2>", text) == ["Summary", "Ranks"]
    assert "intervals" not in text


def test_large_inputs_stay_small(tmp_path: Path) -> None:
    hit = ExampleHit("text " * 2_000, 1, 0.5, True)
    example = Example("a -> b", "best", "text " * 2_000, 1, (hit,) * 5, hit)
    path = write_report(
        tmp_path / "report.html",
        title="t",
        facts={},
        report=huge(16_000),
        records=records(2_000),
        structures={"a": structure(d=512, n=2_000)},
        examples=[example] * 12,
    )
    assert path.stat().st_size < 1_000_000


def test_comparison_page(tmp_path: Path) -> None:
    seeds = [report(seed=seed) for seed in range(3)]
    path = write_comparison(
        tmp_path / "new" / "comparison.html",
        title="Three <methods>",
        facts={"data": "digits"},
        reports_by_method={"CCAL": seeds, "DCCA": [report(seed=5)]},
        table=TABLE,
        structures={"CCAL": structure(), "DCCA": structure(held_out=False)},
        warnings=["DCCA has one seed."],
    )
    text = path.read_text(encoding="utf-8")
    check(text)
    assert "Three &lt;methods&gt;" in text
    assert f'tabindex="0">\n{TABLE}\n</div>' in text


def test_a_comparison_needs_methods(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="reports_by_method is empty"):
        write_comparison(tmp_path / "c.html", title="t", facts={}, reports_by_method={}, table="")
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_the_old_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")

    def fail(*_: Any, **__: Any) -> str:
        raise RuntimeError("no")

    monkeypatch.setattr(pages, "_page", fail)
    with pytest.raises(RuntimeError, match="no"):
        write_report(path, title="t", facts={}, report=report())
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_same_inputs_give_the_same_page(plain: str, tmp_path: Path) -> None:
    assert whole(tmp_path / "again.html") == plain
