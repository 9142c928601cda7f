"""`Comparison`: means over seeds with intervals, AP@k, paired tests, and four ways to show them."""

from __future__ import annotations

import csv
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from torch import Tensor

from ccal.errors import InputError
from ccal.evaluation import ClassReport, Report, evaluate_classes, evaluate_embeddings
from ccal.evaluation.significance import half_interval
from ccal.runs import Comparison

NOISE = torch.Generator().manual_seed(0)
X = torch.randn(60, 6, generator=NOISE)
LABELS = torch.arange(60) % 3


def near(noise: float) -> Tensor:
    return X + noise * torch.randn(60, 6, generator=NOISE)


def reports(noise: float, seeds: int = 2, bootstrap: int = 50) -> list[Report]:
    return [
        evaluate_embeddings(X, near(noise), bootstrap=bootstrap, names=("image", "text"))
        for _ in range(seeds)
    ]


def test_intervals_over_seeds_and_over_queries() -> None:
    one, two = reports(1.0)
    seeds, _ = Comparison.of({"a": [one, two]}).rows
    scores = [one.x_to_y.measures.mrr, two.x_to_y.measures.mrr]
    assert (seeds.seeds, seeds.interval, seeds.half) == (2, "seeds", half_interval(scores))
    halves = [(r.x_to_y.high.mrr - r.x_to_y.low.mrr) / 2 for r in (one, two)]  # type: ignore[union-attr]
    assert seeds.queries == pytest.approx(sum(halves) / 2)
    assert seeds.mrr == pytest.approx(sum(scores) / 2)
    for several in ([one], [one, one]):
        row, _ = Comparison.of({"a": several}).rows
        assert (row.interval, row.half) == ("bootstrap", halves[0])
    (bare,) = reports(0.0, seeds=1, bootstrap=0)
    assert Comparison.of({"a": [bare]}).rows[0].half is None


def test_the_clearly_better_method_is_named() -> None:
    table = Comparison.of({"poor": reports(2.0), "good": reports(0.3), "equal": reports(0.3)})
    for poor, good, equal in (table.rows[::2], table.rows[1::2]):
        assert poor.better_than == ()
        assert good.better_than == equal.better_than == ("poor",)
    test = table.tests[0]
    assert (test.one, test.other, test.measure) == ("poor", "good", "MRR")
    assert test.difference == pytest.approx(table.rows[0].mrr - table.rows[2].mrr)
    assert test.p_holm == pytest.approx(3 * test.p) or test.p_holm == pytest.approx(2 * test.p)


def test_queries_that_fail_together_prove_less() -> None:
    methods = {"a": reports(0.9, seeds=1), "b": reports(0.6, seeds=1)}
    alone = Comparison.of(methods)
    together = Comparison.of(methods, units=(np.arange(60) // 20, np.arange(60)))
    assert together.tests[0].p > alone.tests[0].p
    assert together.tests[1] == alone.tests[1]


def found(noise: float, seeds: int = 2) -> list[ClassReport]:
    classes = torch.eye(3).repeat(20, 2)
    return [
        evaluate_classes(classes + noise * near(0.1), LABELS, classes + noise * X, LABELS, k=20)
        for _ in range(seeds)
    ]


def test_classes_have_their_average_precision() -> None:
    classes = {"a": found(0.2), "b": found(1.5)}
    table = Comparison.of({"a": reports(0.3), "b": reports(0.3)}, classes)
    forth, back = table.rows[2:]
    assert forth.ap is None
    values = [report.ap for report in classes["b"]]
    assert back.ap == pytest.approx(sum(values) / 2)
    assert back.ap_half == (half_interval(values) if values[0] != values[1] else None)
    tests = [test for test in table.tests if test.measure == "AP@20"]
    assert [(test.direction, test.one) for test in tests] == [("text -> image", "a")]
    assert tests[0].difference == pytest.approx(table.rows[1].ap - back.ap)  # type: ignore[operator]
    assert tests[0].p == 0.25  # three classes, and the sign of all of them
    assert "AP@20" in str(table).splitlines()[0]


class Tables(HTMLParser):
    """The cells of all tables of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("th", "td"):
            self.tables[-1][-1].append("")

    def handle_data(self, data: str) -> None:
        if self.tables and self.tables[-1] and self.tables[-1][-1] and data.strip():
            self.tables[-1][-1][-1] += data


def test_every_form_shows_the_same_cells() -> None:
    about = {"data_sha256": "a", "split_sha256": "b"}
    methods = {"a|b <i>": reports(0.3), "plain": reports(1.0)}
    table = Comparison.of(methods, warnings=("plain: odd",), about=about)
    cells, tests = Tables(table.to_html()).tables
    assert cells[1][0] == "a|b <i>"
    assert cells[0] == [cell.strip() for cell in cells[0]]
    assert [row[0] for row in tests[1:]] == ["MRR", "MRR"]
    markdown = table.to_markdown()
    for row in (*cells, *tests):
        words = [cell.strip().replace("|", "\\|").replace("→", "->") for cell in row]
        line = "| " + " | ".join(words) + " |"
        assert line in markdown.splitlines()
    content = json.loads(table.to_json())
    assert (content["data_sha256"], content["warnings"]) == ("a", ["plain: odd"])
    assert [row["mrr"] for row in content["rows"]] == [row.mrr for row in table.rows]
    lines = list(csv.DictReader(table.to_csv().splitlines()))
    assert [float(line["mrr"]) for line in lines] == [row.mrr for row in table.rows]
    assert lines[0]["split_sha256"] == "b"
    assert "Means of 2 seeds" in str(table)
    assert "Means of 2 seeds" in markdown
    assert "other ties" not in markdown


def test_html_has_the_best_in_bold_and_text_on_the_left() -> None:
    html = Comparison.of({"close": reports(0.3), "far": reports(1.0)}).to_html()
    bold = [line for line in html.splitlines() if "<strong>" in line]
    assert [">close</th>" in line for line in bold] == [True, True]
    assert "image → text" in bold[0]
    assert "text → image" in bold[1]
    assert "-&gt;" not in html
    left = re.findall(r'<th scope="col" class="words">(.*?)</th>', html)
    assert left == [
        *("method", "direction", "better than"),
        *("measure", "direction", "method", "against"),
    ]
    assert '<td class="words">text → image</td>' in html


def test_methods_with_other_ties_are_not_tested() -> None:
    collapsed = evaluate_embeddings(X, torch.ones(60, 6), bootstrap=0, ties="pessimistic")
    methods = {"a": reports(0.3, seeds=1), "b": reports(1.0, seeds=1), "c": [collapsed]}
    table = Comparison.of(methods)
    assert [(test.one, test.other) for test in table.tests] == [("a", "b")] * 2
    assert table.rows[0].better_than == ("b",)
    assert "Methods with other ties" in str(table)


def test_other_queries_cannot_be_compared() -> None:
    short = evaluate_embeddings(X[:9], X[:9], bootstrap=0)
    with pytest.raises(InputError, match="on the same queries only"):
        Comparison.of({"a": reports(0.3, seeds=1), "b": [short]})
