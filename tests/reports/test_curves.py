from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ccal.errors import InputError
from ccal.reports import training_curves
from ccal.reports.curves import best_epoch, by_stage
from ccal.reports.style import NARROW, render
from tests.reports.inputs import HOSTILE, records


def lines(figure: Any, panel: int) -> list[np.ndarray[Any, Any]]:
    return [line.get_ydata() for line in figure.axes[panel].lines if len(line.get_ydata()) > 2]


def texts(figure: Any, panel: int) -> list[str]:
    return [text.get_text() for text in figure.axes[panel].texts]


def test_lines_are_the_records() -> None:
    given = records()
    figure = training_curves(given)
    assert lines(figure, 0)[0].tolist() == [r["loss"] for r in given]
    forth, back = lines(figure, 1)
    assert forth.tolist() == [100 * r["mrr_x_to_y"] for r in given]
    assert back.tolist() == [100 * r["mrr_y_to_x"] for r in given]
    assert texts(figure, 0) == ["lr 1e-4"]
    assert texts(figure, 1) == ["best: epoch 9"]


def test_missing_values_are_gaps_and_lone_values_have_a_marker() -> None:
    given = records(6)
    given[1]["loss"] = None
    given[3]["loss"] = float("nan")
    del given[4]["loss"]
    given[5]["loss"] = float("inf")
    figure = training_curves(given)
    line = figure.axes[0].lines[0]
    assert np.isnan(np.asarray(line.get_ydata())).tolist() == [False, True, False, True, True, True]
    assert line.get_markevery() == [0, 2]
    assert line.get_marker() == "o"


def test_no_loss_and_no_validation_are_reported() -> None:
    figure = training_curves([{"stage": "all", "epoch": 0, "loss": None}])
    assert texts(figure, 0) == ["no loss was recorded"]
    assert texts(figure, 1) == ["no validation was recorded"]
    render(figure, "svg")


def test_one_epoch_is_visible() -> None:
    figure = training_curves(records(1))
    assert figure.axes[0].lines[0].get_marker() == "o"
    assert figure.axes[0].get_xlim() == (0.5, 1.5)


def test_no_epochs_give_a_figure_that_says_so() -> None:
    figure = training_curves([])
    assert [text.get_text() for text in figure.texts] == ["No epochs were recorded."]
    assert b"No epochs were recorded." in render(figure, "svg")


def test_a_resumed_epoch_counts_once_and_lines_without_epoch_not_at_all() -> None:
    given = [*records(5), {**records(5)[4], "loss": 0.125}, {"stage": "test", "mrr": 3.0}]
    (line,) = lines(training_curves(given), 0)
    assert line.tolist() == [3.0, 1.5, 1.0, 0.75, 0.125]


def test_stages_share_the_axis() -> None:
    second = [{**r, "stage": "all", "mrr_x_to_y": None, "mrr_y_to_x": None} for r in records(10)]
    figure = training_curves([*records(), *second])
    assert [len(line) for line in lines(figure, 0)] == [12, 10]
    assert len(lines(figure, 1)) == 2
    assert texts(figure, 0) == ["lr 1e-4"]
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["train", "all"]


def test_a_gliding_rate_is_not_marked() -> None:
    given = [{**r, "learning_rate": 1e-3 * 0.9 ** r["epoch"]} for r in records()]
    assert texts(training_curves(given), 0) == []


def test_best_epoch_prefers_both_directions() -> None:
    given = records(3)
    given[2]["mrr_x_to_y"], given[2]["mrr_y_to_x"] = 0.99, None
    assert best_epoch(by_stage(given)) == ("train", 2)
    assert best_epoch({}) is None


def test_of_equal_epochs_the_last_is_best() -> None:
    given = [{**r, "mrr_x_to_y": 0.5, "mrr_y_to_x": 0.5} for r in records(4)]
    assert best_epoch(by_stage(given)) == ("train", 4)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"epoch": "one"}, "epoch must be a whole number, got 'one'"),
        ({"epoch": 1, "loss": "high"}, "loss must be a number or null, got 'high'"),
        ({"epoch": 1, "mrr_x_to_y": 45.2}, "must be a share between 0 and 1, got 45.2"),
    ],
)
def test_bad_records_are_named(record: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        training_curves([record])


def test_narrow_panels_stand_above_each_other() -> None:
    figure = training_curves(records(), width=NARROW, directions=(HOSTILE, "b → a"))
    figure.draw_without_rendering()
    top, bottom = (axes.get_position() for axes in figure.axes)
    assert top.y0 > bottom.y1
    render(figure, "png")
