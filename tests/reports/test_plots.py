"""Correlation structure, ranks, comparison, and what all plots share."""

from __future__ import annotations

import sys
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
import torch

from ccal.errors import CcalError, InputError
from ccal.evaluation import Direction, Measures, Report
from ccal.reports import (
    comparison_plot,
    correlation_plot,
    rank_plot,
    save_plots,
    style,
    training_curves,
)
from ccal.reports.plots import cumulative
from ccal.reports.style import DARK, INK, MUTED, NARROW, PAPER, SERIES, render
from tests.fresh import run
from tests.reports.inputs import HOSTILE, huge, records, report, structure


def legend(figure: Any) -> list[str]:
    owner = figure.legends[0] if figure.legends else figure.axes[0].get_legend()
    return [text.get_text() for text in owner.get_texts()]


def test_correlations_are_drawn_as_they_are() -> None:
    one, other = structure(), structure(held_out=False, d=5)
    figure = correlation_plot({"CCAL": one, "DCCA": other})
    assert one.held_out is not None
    drawn = [np.asarray(line.get_ydata()) for line in figure.axes[0].lines]
    for values in (one.train, one.held_out, other.train):
        assert any(np.array_equal(values.numpy(), line) for line in drawn)
    levels = [line[0] for line in drawn if len(line) == 2]
    assert levels == [one.chance, other.chance]
    assert legend(figure)[:2] == [
        f"CCAL: {one.train.mean():.2f}, held out {one.held_out.mean():.2f}",
        f"DCCA: {other.train.mean():.2f}",
    ]


def test_one_chance_level_is_drawn_once() -> None:
    figure = correlation_plot({"a": structure(), "b": structure()})
    assert sum(len(np.asarray(line.get_ydata())) == 2 for line in figure.axes[0].lines) == 1


def test_one_dimension_is_visible() -> None:
    figure = correlation_plot({"one": structure(d=1)})
    assert figure.axes[0].lines[0].get_marker() == "o"
    render(figure, "png")


def test_cumulative_share_is_exact_and_small() -> None:
    given = huge()
    k, share = cumulative(given.x_to_y)
    assert len(k) < 220
    assert set(range(1, 11)) <= set(k.tolist())
    expected = [100 * (given.x_to_y.ranks <= int(one)).double().mean().item() for one in k]
    np.testing.assert_allclose(share, expected)
    assert (k[-1], share[-1]) == (16_000, 100.0)
    assert len(render(rank_plot(given), "svg")) < 100_000


def test_rank_plot_marks_recall() -> None:
    given = report()
    figure = rank_plot(given)
    labels = [text.get_text() for text in figure.axes[0].texts]
    pair = given.x_to_y.measures, given.y_to_x.measures
    assert labels == [f"{getattr(m, r):.0f}" for r in ("r1", "r5", "r10") for m in pair]
    assert legend(figure) == ["image → text", "text → image", "guessing"]


def test_rank_plot_of_one_query_and_of_several_reports() -> None:
    one = Direction("a -> b", 1, Measures(100, 100, 100, 1, 100, 1), None, None, torch.tensor([1]))
    render(rank_plot(Report(one, one, "optimistic", 0)), "png")
    for width in (style.WIDE, NARROW):
        figure = rank_plot({f"method {i}": report(seed=i) for i in range(3)}, width=width)
        assert len(legend(figure)) == 7
        render(figure, "svg")


def test_comparison_shows_mean_seeds_and_interval() -> None:
    seeds = [report(seed=seed) for seed in range(3)]
    figure = comparison_plot({"CCAL": seeds, "one seed": [report(seed=9, bootstrap=0)]})
    whisker, points, mean = figure.axes[0].lines[:3]
    values = [r.x_to_y.measures.mrr for r in seeds]
    assert np.asarray(points.get_xdata()).tolist() == values
    assert mean.get_xdata() == pytest.approx([np.mean(values)])
    lows = [r.x_to_y.low.mrr for r in seeds if r.x_to_y.low]
    highs = [r.x_to_y.high.mrr for r in seeds if r.x_to_y.high]
    assert whisker.get_xdata() == pytest.approx([np.mean(lows), np.mean(highs)])
    # One seed without intervals: its mean is all there is.
    assert len(figure.axes[0].lines) == 2 * 3 + 2


def test_empty_inputs_are_refused() -> None:
    with pytest.raises(InputError, match="structures is empty"):
        correlation_plot({})
    with pytest.raises(InputError, match="report is empty"):
        rank_plot({})
    with pytest.raises(InputError, match="reports_by_method is empty"):
        comparison_plot({})
    with pytest.raises(InputError, match=r"\['DCCA'\] have none"):
        comparison_plot({"CCAL": [report()], "DCCA": []})


@pytest.mark.parametrize("name", [HOSTILE, "_$\\alpha^2$", "n" * 10_000, ""])
def test_any_name_can_be_drawn(name: str) -> None:
    figures = (
        correlation_plot({name: structure()}, width=NARROW),
        comparison_plot({name: [report(name=name)]}),
        rank_plot({name: report(name=name), "other": report()}),
    )
    for figure in figures:
        root = ElementTree.fromstring(render(figure, "svg"))
        assert not [e for e in root.iter() if e.tag.endswith("script")]
        shown = "".join(root.itertext())
        assert style.plain(name, 14).rstrip("…") in " ".join(shown.split())
    render(figures[0], "png")


def test_files_are_the_same_every_time() -> None:
    one, other = (render(training_curves(records()), "svg") for _ in range(2))
    assert one == other
    assert b"<dc:date>" not in one
    one, other = (render(rank_plot(report()), "png") for _ in range(2))
    assert one == other


def test_settings_of_the_caller_neither_matter_nor_change() -> None:
    expected = render(training_curves(records()), "svg")
    with matplotlib.rc_context({"font.size": 30, "axes.grid": False, "svg.fonttype": "path"}):
        before = dict(matplotlib.rcParams)
        assert render(training_curves(records()), "svg") == expected
        assert dict(matplotlib.rcParams) == before


def test_save_plots_writes_png_and_svg(tmp_path: Any) -> None:
    paths = save_plots(
        tmp_path / "new" / "plots",
        report=report(),
        records=records(),
        structures={"CCAL": structure()},
        reports_by_method={"CCAL": [report()]},
    )
    names = ("training", "correlation", "ranks", "comparison")
    assert [p.name for p in paths] == [f"{n}.{kind}" for n in names for kind in ("png", "svg")]
    assert sorted(p.name for p in paths[0].parent.iterdir()) == sorted(p.name for p in paths)
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in paths[::2])
    assert all(ElementTree.parse(p).getroot().tag.endswith("svg") for p in paths[1::2])


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("colour", [INK, MUTED, *SERIES])
def test_text_in_every_colour_is_readable(colour: str) -> None:
    for ink, paper in ((colour, PAPER), (DARK[colour], DARK[PAPER])):
        dark, light = sorted((luminance(ink), luminance(paper)))
        assert (light + 0.05) / (dark + 0.05) >= 4.5  # WCAG 2, level AA


def test_without_matplotlib_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(CcalError, match=r"Plotting needs the package matplotlib.*\.\[plots\]"):
        save_plots(tmp_path, records=records())
    assert list(tmp_path.iterdir()) == []


def test_matplotlib_comes_when_it_is_needed_and_pyplot_never() -> None:
    code = """if True:
        import sys
        from ccal.reports import style, training_curves
        assert not {"matplotlib", "PIL"} & set(sys.modules)
        style.render(training_curves([{"epoch": 1, "loss": 1.0}]), "png")
        assert "matplotlib.pyplot" not in sys.modules
    """
    run(code)
