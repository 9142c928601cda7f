"""Classes on a page: tables, the plot of confusions, classes as queries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ccal.errors import InputError
from ccal.evaluation import ClassReport, evaluate_classes
from ccal.reports import confusion_plot, pick_classes, save_plots, training_curves, write_report
from tests.reports.inputs import HOSTILE, report

pytest.importorskip("matplotlib")


def given(classes: int = 7, each: int = 6, noise: float = 1.2) -> tuple[Any, ...]:
    """Queries and items around the centres of their classes, with labels."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(classes).repeat_interleave(each)
    centres = torch.randn(classes, 5, generator=generator)[labels]
    queries, items = (
        centres + noise * torch.randn(centres.shape, generator=generator) for _ in range(2)
    )
    return queries, labels, items, labels


def found(classes: int = 7, **more: Any) -> ClassReport:
    names = [f"class {number}" for number in range(classes)]
    return evaluate_classes(*given(classes), k=6, **{"names": names, **more})


def test_a_cell_for_each_confusion_that_occurs() -> None:
    of = found()
    axes = confusion_plot(of).axes[0]
    assert len(axes.collections[0].get_paths()) == int((of.confusion > 0).sum())
    assert [label.get_text() for label in axes.get_yticklabels()] == list(of.names)


def test_many_classes_are_not_named(tmp_path: Path) -> None:
    of = found(90)
    assert "class 11" not in [text.get_text() for text in confusion_plot(of).axes[0].texts]
    paths = save_plots(tmp_path, classes=of)
    assert [path.name for path in paths] == ["confusion.png", "confusion.svg"]
    assert "class 11" not in paths[1].read_text()


def test_the_page_has_the_numbers_and_escapes_the_names(tmp_path: Path) -> None:
    names = [HOSTILE, "<b>wren</b>", *(f"class {number}" for number in range(5))]
    of = found(names=names)
    examples = pick_classes(of, *given(), each=2, k=3)
    path = write_report(
        tmp_path / "page.html",
        title="Birds",
        facts={},
        report=report(),
        classes=of,
        examples=examples,
    )
    page = path.read_text(encoding="utf-8")
    assert "<h2>Classes</h2>" in page
    assert f"<td>{of.ap:.1f}</td>" in page
    assert "class → item" in page
    assert "<script" not in page
    assert "<b>wren" not in page
    assert "&lt;b&gt;wren&lt;/b&gt;" in page


def test_a_long_list_of_classes_loses_its_middle(tmp_path: Path) -> None:
    of = found(90)
    path = write_report(tmp_path / "p.html", title="t", facts={}, report=report(), classes=of)
    page = path.read_text(encoding="utf-8")
    assert "30 classes in the middle are left out" in page


def test_examples_are_in_the_order_of_precision() -> None:
    of, data = found(), given()
    examples = pick_classes(of, *data, each=2, k=4, name="image")
    assert {example.direction for example in examples} == {"class -> image"}
    precision = dict(zip(of.names, of.precision.tolist(), strict=True))
    best = [e for e in examples if e.kind == "best"]
    worst = [e for e in examples if e.kind == "worst"]
    assert precision[str(best[0].query)] == max(precision.values())
    assert precision[str(worst[0].query)] == min(precision.values())
    for example in examples:
        assert [hit.rank for hit in example.hits] == [1, 2, 3, 4]
        scores = [hit.score for hit in example.hits]
        assert scores == sorted(scores, reverse=True)
        for hit in example.hits:
            assert hit.right == (hit.item == example.query)
        assert example.counterpart.right
        assert example.counterpart.rank == example.rank


def test_pictures_are_shown_with_their_class(tmp_path: Path) -> None:
    of, data = found(), given()
    shows = [tmp_path / f"{row}.jpg" for row in range(len(data[2]))]
    (example, *_) = pick_classes(of, *data, shows=shows, each=1, k=2)
    assert all(isinstance(hit.item, Path) for hit in example.hits)
    assert {hit.note for hit in example.hits} <= set(of.names)


def test_labels_that_do_not_fit_are_refused() -> None:
    of, data = found(), given()
    with pytest.raises(InputError, match="each must be a whole number of at least 1, got each=0"):
        pick_classes(of, *data, each=0)
    with pytest.raises(InputError, match="labels must be 0 to 1"):
        pick_classes(replace(of, names=("a", "b")), *data)


def test_curves_of_a_run_that_chose_by_classes() -> None:
    records = [
        {"stage": "train", "epoch": e, "loss": 1.0, "score": s, "mrr_x_to_y": None}
        for e, s in enumerate([0.2, 0.515, 0.49], start=1)
    ]
    axes = training_curves(records).axes[1]
    assert axes.get_title("left") == "Validation AP@k of classes (%)"
    assert axes.lines[0].get_ydata().tolist() == [20.0, 51.5, 49.0]  # type: ignore[union-attr]
    assert "best: epoch 2" in [text.get_text() for text in axes.texts]
