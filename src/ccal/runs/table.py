"""`Comparison`: methods side by side in one table that says what is more than luck."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from ccal.errors import InputError
from ccal.evaluation import ClassReport, Direction, Report, Ties
from ccal.evaluation.significance import half_interval, holm, randomisation_test
from ccal.numbering import Integers

_DRAWS, _LEVEL = 10_000, 0.05
_WORDS = {"method", "direction", "better than", "measure", "against"}
"""Columns of text, which are flush left."""


@dataclass(frozen=True)
class Row:
    """One method in one direction: means over seeds.

    Attributes:
        half: half the 95% interval of the MRR, None if there is none.
        interval: its kind: "seeds" (training again), "bootstrap" (other test queries) or "none".
        queries: half the mean bootstrap interval of the MRR. Seeds share their test queries, so the
            interval over seeds can be small where this one is large.
        ap: AP@k in % with one query a class, in the direction in which the classes are queries.
        ap_half: half its 95% interval over seeds.
        k: of AP@k.
        better_than: methods of clearly lower MRR in this direction, by the paired test.
    """

    method: str
    direction: str
    seeds: int
    mrr: float
    half: float | None
    interval: str
    queries: float | None
    r1: float
    r5: float
    r10: float
    mr: float
    ap: float | None = None
    ap_half: float | None = None
    k: int | None = None
    better_than: tuple[str, ...] = ()


@dataclass(frozen=True)
class PairedTest:
    """Whether `one` beats `other`: their difference in points, and how likely chance makes it.

    `p` is that of the paired randomisation test over test queries (over classes for AP@k), `p_holm`
    the same after Holm's correction for all pairs of methods in this direction.
    """

    measure: str
    direction: str
    one: str
    other: str
    difference: float
    p: float
    p_holm: float


@dataclass(frozen=True)
class Comparison:
    """Methods side by side; print it for a table, or render it as Markdown, HTML or JSON.

    Attributes:
        rows: two for each method, one a direction.
        tests: each pair of methods in each direction, by MRR and, with labels, by AP@k. A method
            whose embeddings have collapsed has ties counted against it, and its MRR is tested
            against others of this kind only.
        warnings: reasons to doubt single methods.
        about: hashes of data and split.
        folder: of the runs, if there are any.
    """

    rows: tuple[Row, ...]
    tests: tuple[PairedTest, ...]
    warnings: tuple[str, ...] = ()
    about: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None

    @classmethod
    def of(
        cls,
        reports: Mapping[str, Sequence[Report]],
        classes: Mapping[str, Sequence[ClassReport]] | None = None,
        *,
        units: tuple[Integers, Integers] | None = None,
        **more: Any,
    ) -> Comparison:
        """A table of one report a seed for each method, and with labels one class report, too.

        `units` are those of `Positives.units`: the queries of a unit fail together.
        """
        classes = classes or {}
        first = next(iter(reports.values()))[0]
        names = first.x_to_y.name, first.y_to_x.name
        tests: list[PairedTest] = []
        ties = {method: {seed.ties for seed in seeds} for method, seeds in reports.items()}
        for way, name in enumerate(names):
            scores = {
                method: _mean([100 / _way(seed, way).ranks.double() for seed in seeds])
                for method, seeds in reports.items()
            }
            tests += _tests("MRR", name, scores, units and units[way], ties)
        if classes:
            k = next(iter(classes.values()))[0].k
            precisions = {m: _mean([c.precision for c in seeds]) for m, seeds in classes.items()}
            tests += _tests(f"AP@{k}", names[1], precisions, None, {})
        rows = [
            _row(method, [_way(seed, way) for seed in seeds], tests, classes.get(method, ()), way)
            for method, seeds in reports.items()
            for way in (0, 1)
        ]
        return cls(tuple(rows), tuple(tests), **more)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            **self.about,
            "rows": [asdict(row) for row in self.rows],
            "tests": [asdict(test) for test in self.tests],
            "warnings": list(self.warnings),
        }

    def to_json(self) -> str:
        """Rows and tests as JSON."""
        return json.dumps(self.as_dict(), indent=1) + "\n"

    def to_csv(self) -> str:
        """The rows as CSV, each with the hashes of data and split."""
        plain = [
            {**asdict(row), "better_than": " ".join(row.better_than), **self.about}
            for row in self.rows
        ]
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(plain[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(plain)
        return text.getvalue()

    def __str__(self) -> str:
        cells = self._cells()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        sides = [str.ljust if head in _WORDS else str.rjust for head in cells[0]]
        lines = [
            "  ".join(s(c, w) for s, c, w in zip(sides, line, widths, strict=True)).rstrip()
            for line in cells
        ]
        return "\n".join([*lines, *self._notes()])

    def to_markdown(self) -> str:
        """The table and the tests in Markdown."""
        parts = []
        for cells in self._tables():
            lines = ([cell.strip().replace("|", "\\|") for cell in line] for line in cells)
            head, *rows = (f"| {' | '.join(line)} |" for line in lines)
            parts.append("\n".join([head, "| --- " * len(cells[0]) + "|", *rows]))
        return "\n\n".join([parts[0], "\n".join(self._notes()), *parts[1:]]) + "\n"

    def to_html(self) -> str:
        """The table and the tests as HTML tables, without a page around them.

        The highest MRR of each direction is bold; cells of text have the class "words".
        """
        tables = [
            [[escape(cell.strip().replace(" -> ", " → ")) for cell in line] for line in cells]
            for cells in self._tables()
        ]
        for row, line in zip(self.rows, tables[0][1:], strict=True):
            if row.mrr == max(other.mrr for other in self.rows if other.direction == row.direction):
                line[2] = f"<strong>{line[2]}</strong>"
        notes = " ".join([*self._notes(), "Bold: the highest MRR of its direction."])
        captions = notes, "Paired tests of all pairs of methods."
        parts = []
        for (head, *body), caption in zip(tables, captions, strict=False):
            kinds = [' class="words"' if name in _WORDS else "" for name in head]
            columns = [f'<th scope="col"{k}>{c}</th>' for k, c in zip(kinds, head, strict=True)]
            lines = [
                [f'<th scope="row"{kinds[0]}>{first}</th>']
                + [f"<td{k}>{c}</td>" for k, c in zip(kinds[1:], rest, strict=True)]
                for first, *rest in body
            ]
            rows = "\n".join(f"<tr>{''.join(line)}</tr>" for line in lines)
            parts.append(
                f"<table>\n<caption>{escape(caption)}</caption>\n"
                f"<thead><tr>{''.join(columns)}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>"
            )
        return "\n".join(parts)

    def _tables(self) -> list[list[list[str]]]:
        return [self._cells(), *([self._test_cells()] if self.tests else [])]

    def _cells(self) -> list[list[str]]:
        marks = {"seeds": " ", "bootstrap": "*", "none": " "}
        k = next((row.k for row in self.rows if row.k is not None), None)
        head = ["method", "direction", "MRR", "±queries", "R@1", "R@5", "R@10", "MR"]
        head += [] if k is None else [f"AP@{k}"]
        cells = [[*head, *(["better than"] if self.tests else [])]]
        for row in self.rows:
            spread = "" if row.half is None else f" ± {row.half:.1f}{marks[row.interval]}"
            numbers = (row.queries, row.r1, row.r5, row.r10, row.mr)
            line = [row.method, row.direction, f"{row.mrr:.1f}{spread}", *map(_number, numbers)]
            if k is not None:
                wide = "" if row.ap_half is None else f" ± {row.ap_half:.1f}"
                line.append(_number(row.ap) + wide)
            cells.append([*line, *([", ".join(row.better_than)] if self.tests else [])])
        return cells

    def _test_cells(self) -> list[list[str]]:
        head = ["measure", "direction", "method", "against", "difference", "p", "p (Holm)"]
        return [
            head,
            *(
                [
                    *(test.measure, test.direction, test.one, test.other),
                    *(f"{test.difference:+.2f}", f"{test.p:.4f}", f"{test.p_holm:.4f}"),
                ]
                for test in self.tests
            ),
        ]

    def _notes(self) -> list[str]:
        seeds = max(row.seeds for row in self.rows)
        notes = ["R@k and MRR in %, MR is the median rank."]
        if any(row.interval == "seeds" for row in self.rows):
            notes.append(f"Means of {seeds} seeds; ± half the 95% interval over seeds.")
        if any(row.interval == "bootstrap" for row in self.rows):
            notes.append(
                "*: one seed, or seeds that agree; the interval is that over test queries."
            )
        if any(row.queries is not None for row in self.rows):
            notes.append("±queries: half the 95% bootstrap interval over test queries.")
        if any(row.ap is not None for row in self.rows):
            notes.append("AP@k in %: share of a class among the first k items for its query.")
        if self.tests:
            notes.append(
                f"better than: methods of lower MRR by the paired randomisation test over test "
                f"queries ({_DRAWS:,} draws, scores averaged over seeds, Holm's correction, "
                f"p < {_LEVEL:g})."
            )
        methods = len(self.rows) // 2
        if sum(test.measure == "MRR" for test in self.tests) < methods * (methods - 1):
            notes.append("Methods with other ties (see the warnings) are not tested against these.")
        return notes


def _way(report: Report, way: int) -> Direction:
    return (report.x_to_y, report.y_to_x)[way]


def _mean(values: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(values)).mean(0)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _tests(
    measure: str,
    direction: str,
    scores: Mapping[str, Tensor],
    units: Integers | None,
    ties: Mapping[str, set[Ties]],
) -> list[PairedTest]:
    """Every pair of methods by their scores, one a query, if both have the same rule for ties."""
    pairs = [
        (one, other)
        for one, other in combinations(scores, 2)
        if len(ties.get(one, set()) | ties.get(other, set())) <= 1
    ]
    if not pairs:
        return []
    if len({len(values) for values in scores.values()}) > 1:
        raise InputError("Methods can be compared on the same queries only.")
    found = torch.stack([scores[one] - scores[other] for one, other in pairs], 1)
    p = randomisation_test(found, units, draws=_DRAWS)
    return [
        PairedTest(measure, direction, one, other, *map(float, numbers))
        for (one, other), *numbers in zip(pairs, found.mean(0), p, holm(p), strict=True)
    ]


def _row(
    method: str,
    seeds: Sequence[Direction],
    tests: Sequence[PairedTest],
    classes: Sequence[ClassReport],
    way: int,
) -> Row:
    scores = [seed.measures.mrr for seed in seeds]
    bootstrap = [(s.high.mrr - s.low.mrr) / 2 for s in seeds if s.low and s.high]
    queries = fmean(bootstrap) if bootstrap else None
    half, interval = None, "none"
    if len(set(scores)) > 1:
        half, interval = half_interval(scores), "seeds"
    elif queries is not None:
        # One seed, or seeds that agree to the last digit, which is no proof of certainty.
        half, interval = queries, "bootstrap"
    measures = [seed.measures for seed in seeds]
    # Classes find their x by their y: the second direction.
    aps = [seed.ap for seed in classes] if way == 1 else []
    name = seeds[0].name
    clear = [t for t in tests if (t.measure, t.direction) == ("MRR", name) and t.p_holm < _LEVEL]
    beaten = [t.other for t in clear if t.one == method and t.difference > 0]
    beaten += [t.one for t in clear if t.other == method and t.difference < 0]
    return Row(
        method=method,
        direction=name,
        seeds=len(seeds),
        mrr=fmean(scores),
        half=half,
        interval=interval,
        queries=queries,
        r1=fmean(m.r1 for m in measures),
        r5=fmean(m.r5 for m in measures),
        r10=fmean(m.r10 for m in measures),
        mr=fmean(m.mr for m in measures),
        ap=fmean(aps) if aps else None,
        ap_half=half_interval(aps) if len(set(aps)) > 1 else None,
        k=classes[0].k if aps else None,
        better_than=tuple(beaten),
    )
