"""`Comparison`: means over seeds with intervals, AP@k, paired tests, and four ways to show them."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from torch import Tensor

from ccal.errors import InputError
from ccal.evaluation import ClassReport, Report, evaluate_classes, evaluate_embeddings
from ccal.evaluation.significance import half_interval, query_intervals
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
    three = reports(1.0, seeds=3)
    row, _ = Comparison.of({"a": three}).rows
    scores = [report.x_to_y.measures.mrr for report in three]
    assert (row.seeds, row.interval, row.half) == (3, "seeds", half_interval(scores))
    assert row.mrr_by_seed == tuple(scores)
    # Other queries, not other seeds: the interval of the scores that are means over seeds.
    by_query = torch.stack([100 / report.x_to_y.ranks.double() for report in three]).mean(0)
    low, high = query_intervals(by_query[:, None])
    assert (row.low, row.high) == (low[0], high[0])
    assert row.low < row.mrr < row.high
    assert (row.query_count, row.candidates, row.ties) == (60, 60, "optimistic")
    # One seed, two, and seeds that agree say nothing about other seeds.
    for few in (three[:1], three[:2], three[:1] * 3):
        row, _ = Comparison.of({"a": few}).rows
        assert (row.interval, row.half) == ("bootstrap", (row.high - row.low) / 2)


def test_the_spread_of_seeds_is_said_as_what_it_is() -> None:
    one, two, three = (str(Comparison.of({"a": reports(1.0, seeds=n)})) for n in (1, 2, 3))
    assert "seeds" not in one
    assert re.search(r"\] +\d+\.\d\.\.\d+\.\d  ", two)
    assert "seeds: the lowest and highest of 2 seeds, too few for an interval." in two
    assert re.search(r"\] +sd \d+\.\d  ", three)
    assert "seeds, sd: standard deviation of 3 seeds." in three
    assert all("±" not in text and "95% interval: of the MRR" in text for text in (one, two, three))


def test_differences_to_the_best_have_paired_intervals() -> None:
    methods = {"poor": reports(1.0), "good": reports(0.3), "other": reports(0.6)}
    table = Comparison.of(methods)
    for test in table.tests:
        assert test.low < test.difference < test.high
        back = test.seen_from(test.other)
        assert (back.one, back.low, back.high) == (test.other, -test.high, -test.low)
        assert back.seen_from(test.one) == test
    text = str(table).split("Difference in MRR to the best method")[1]
    lines = [line.split() for line in text.splitlines()[2:]]
    assert [line[4:6] for line in lines] == [["poor", "good"], ["other", "good"]] * 2
    poor = table.tests[0]
    assert (poor.one, poor.other) == ("poor", "good")
    assert lines[0][6:9] == [f"{poor.difference:+.1f}", f"[{poor.low:+.1f},", f"{poor.high:+.1f}]"]


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
    assert back.ap_by_seed == tuple(values)
    assert back.ap_half is None  # two seeds are too few
    tests = [test for test in table.tests if test.measure == "AP@20"]
    assert [(test.direction, test.one) for test in tests] == [("text -> image", "a")]
    assert tests[0].difference == pytest.approx(table.rows[1].ap - back.ap)  # type: ignore[operator]
    assert tests[0].p == 0.25  # three classes, and the sign of all of them
    text = str(table)
    lines = text.split("Classes that look for their items:\n")[1].splitlines()
    assert lines[0].split() == ["method", "AP@20", "95%", "interval", "seeds", "better", "than"]
    assert [line.split()[:2] for line in lines[1:3]] == [
        ["a", f"{table.rows[1].ap:.1f}"],
        ["b", f"{back.ap:.1f}"],
    ]
    assert "Difference in MRR and AP@20 to the best method" in text
    assert "over test queries and classes" in text
    precision = torch.stack([report.precision for report in classes["b"]]).mean(0)
    low, high = query_intervals(precision[:, None])
    assert (back.ap_low, back.ap_high) == (low[0], high[0])
    assert back.ap_better_than == table.rows[1].ap_better_than == ()  # three classes prove nothing


def test_a_method_that_finds_classes_better_is_named() -> None:
    good, poor = found(0.1, seeds=1)[0], found(0.1, seeds=1)[0]
    classes = {
        "poor": [replace(poor, precision=torch.full((9,), 20.0), ap=20.0, ap_alone=None)],
        "good": [replace(good, precision=torch.full((9,), 90.0), ap=90.0, ap_alone=70.0)],
    }
    table = Comparison.of({m: reports(0.3, seeds=1) for m in classes}, classes)
    assert [row.ap_better_than for row in table.rows] == [(), (), (), ("poor",)]
    assert [row.better_than for row in table.rows] == [()] * 4
    lines = str(table).split("Classes that look for their items:\n")[1].splitlines()
    assert lines[2].split() == ["good", "90.0", "[90.0,", "90.0]", "70.0", "poor"]
    assert lines[1].split()[-1] == "20.0"
    page = table.to_html()
    assert "<strong>90.0</strong>" in page
    assert "each item by itself" in page
    kept = list(csv.DictReader(table.to_csv().splitlines()))[3]
    assert (kept["ap_alone"], kept["ap_better_than"], kept["ap_low"]) == ("70.0", "poor", "90.0")
    assert json.loads(table.to_json())["rows"][3]["ap_better_than"] == ["poor"]


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
    methods = {"a|b <i>": reports(0.3), "plain": reports(1.0), "third": reports(0.6)}
    table = Comparison.of(methods, warnings=("plain: odd",), about=about)
    cells, to_best, tests = Tables(table.to_html()).tables
    assert cells[1][0] == "a|b <i>"
    assert cells[0] == [cell.strip() for cell in cells[0]]
    assert [row[0] for row in tests[1:]] == ["MRR"] * 6
    assert [row[2:4] for row in to_best[1:]] == [["plain", "a|b <i>"], ["third", "a|b <i>"]] * 2
    markdown = table.to_markdown()
    for row in (*cells, *to_best, *tests):
        words = [cell.strip().replace("|", "\\|").replace("→", "->") for cell in row]
        line = "| " + " | ".join(words) + " |"
        assert line in markdown.splitlines()
    content = json.loads(table.to_json())
    assert (content["data_sha256"], content["warnings"]) == ("a", ["plain: odd"])
    assert [row["mrr"] for row in content["rows"]] == [row.mrr for row in table.rows]
    lines = list(csv.DictReader(table.to_csv().splitlines()))
    assert [float(line["mrr"]) for line in lines] == [row.mrr for row in table.rows]
    assert lines[0]["split_sha256"] == "b"
    assert "means over seeds" in str(table)
    assert "means over seeds" in markdown
    assert lines[0]["mrr_by_seed"] == " ".join(map(str, table.rows[0].mrr_by_seed))
    assert content["tests"][0]["low"] == table.tests[0].low
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
