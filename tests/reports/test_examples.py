from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from ccal.data.pairs import Rows
from ccal.errors import CcalError, InputError
from ccal.evaluation import two_way_ranks
from ccal.reports import Example, ExampleHit, inline, pick_examples, write_report
from ccal.reports.inline import data_uri
from tests.reports.inputs import HOSTILE, Page, pair, report


def test_examples_are_the_extremes_and_the_middle() -> None:
    x, y = pair()
    ranks, _ = two_way_ranks(x, y)
    own = [e for e in pick_examples(x, y, each=3) if e.direction == "x -> y"]
    assert [e.kind for e in own] == ["best"] * 3 + ["typical"] * 3 + ["worst"] * 3
    ordered = ranks.sort().values.tolist()
    assert [e.rank for e in own[:3]] == ordered[:3]
    assert [e.rank for e in own[3:6]] == ordered[28:31]
    assert [e.rank for e in own[6:]] == ordered[:-4:-1]
    assert len({e.query for e in own}) == 9


def test_hits_are_the_highest_cosines() -> None:
    x, y = pair()
    for example in pick_examples(x, y, k=4):
        a, b = (x, y) if example.direction == "x -> y" else (y, x)
        row = int(str(example.query).split()[1])
        scores = torch.nn.functional.cosine_similarity(a[row], b)
        best = scores.topk(4)
        assert [hit.item for hit in example.hits] == [f"row {i}" for i in best.indices.tolist()]
        assert [hit.score for hit in example.hits] == pytest.approx(best.values.tolist(), abs=1e-6)
        assert [hit.right for hit in example.hits] == [i == row for i in best.indices.tolist()]
        assert [hit.rank for hit in example.hits] == [1, 2, 3, 4]
        assert example.counterpart.item == f"row {row}"
        assert example.counterpart.rank == 1 + int((scores > scores[row]).sum())


def test_groups_have_several_right_answers() -> None:
    x = torch.eye(3)
    y = x.repeat(2, 1) + 0.01 * torch.arange(6)[:, None]
    groups = torch.tensor([0, 1, 2, 0, 1, 2])
    forth = pick_examples(x, y, groups=groups, each=1, k=2)[0]
    assert [hit.right for hit in forth.hits] == [True, True]
    assert len(pick_examples(x, y, groups=groups, each=9)) == 3 + 6


@pytest.mark.parametrize(("ties", "first"), [("optimistic", True), ("pessimistic", False)])
def test_ties_fall_as_in_the_ranks(ties: Any, first: bool) -> None:
    x = torch.ones(4, 2)
    for example in pick_examples(x, x, ties=ties, k=1):
        assert example.hits[0].right == first
        assert example.rank == (1 if first else 4)


def test_items_come_from_lists_and_rows() -> None:
    x, y = pair(3)
    texts = Rows(["a", "b", "c"])
    picked = pick_examples(x, y, x_items=Rows(np.eye(3)), y_items=texts, each=1)
    assert str(picked[0].query).startswith("row ")
    assert picked[0].hits[0].item in {"a", "b", "c"}


def test_one_pair_gives_one_example_a_direction() -> None:
    assert [e.kind for e in pick_examples(torch.eye(1), torch.eye(1))] == ["best", "best"]


def test_bad_arguments_are_named() -> None:
    x, y = pair(5)
    with pytest.raises(InputError, match="y_items must have one entry for each of the 5 rows"):
        pick_examples(x, y, y_items=["a"])
    with pytest.raises(InputError, match="each must be a whole number of at least 1, got each=0"):
        pick_examples(x, y, each=0)


def picture(path: Path, side: int = 600, mode: str = "RGB") -> Path:
    noise = np.random.default_rng(0).integers(0, 256, (side, side, 4), dtype=np.uint8)
    Image.fromarray(noise).convert(mode).save(path)
    return path


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P", "1", "LA"])
def test_pictures_are_scaled_down(tmp_path: Path, mode: str) -> None:
    path = picture(tmp_path / "large.png", mode=mode)
    uri = data_uri(path)
    assert uri is not None
    assert uri.startswith("data:image/jpeg;base64,")
    assert len(uri) < 60_000


def test_without_pillow_small_pictures_are_kept_and_large_ones_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: Any, **__: Any) -> Any:
        raise CcalError("not there")

    small = picture(tmp_path / "small.png", side=16)
    large = picture(tmp_path / "large.png")
    assert large.stat().st_size > 200_000
    monkeypatch.setattr(inline, "require", missing)
    uri = data_uri(small)
    assert uri is not None
    assert uri.startswith("data:image/png;base64,")
    assert data_uri(large) is None


def gallery(folder: Path, example: Example) -> str:
    """The HTML of an example on a page."""
    page = write_report(
        folder / "page.html", title="t", facts={}, report=report(bootstrap=0), examples=[example]
    )
    return (
        page.read_text(encoding="utf-8")
        .partition("<h2>Examples</h2>")[2]
        .partition("</section>")[0]
    )


def test_a_file_that_is_no_picture_is_shown_by_its_name(tmp_path: Path) -> None:
    text = tmp_path / "<b>.txt"
    text.write_text("no picture")
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\nbut not really")
    assert data_uri(text) is None
    assert data_uri(tmp_path / "absent.png") is None
    assert data_uri(tmp_path) is None
    hit = ExampleHit(text, 1, 0.5, True)
    shown = gallery(tmp_path, Example("a -> b", "best", "query", 1, (hit,), hit))
    assert "&lt;b&gt;.txt" in shown
    assert "<img" not in shown


def test_the_gallery_shows_the_counterpart_that_was_not_found(tmp_path: Path) -> None:
    hit, right = ExampleHit("wrong", 1, -0.5, False), ExampleHit(HOSTILE, 1234, -0.7, True)
    shown = gallery(tmp_path, Example("a -> b", "worst", "x" * 10_000, 1234, (hit,), right))
    text = " ".join(Page(shown).text)
    assert "1,234." in text
    assert "−0.70" in text
    assert "<script>" not in shown
    assert "✓ counterpart" in text
    assert len(shown) < 2_000
