"""`Comparison`: methods side by side in one table that says what is more than luck."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Tensor

from ccal.columns import align
from ccal.evaluation import ClassReport, Direction, Report, Ties
from ccal.evaluation.protocol import TIES_MEAN
from ccal.evaluation.significance import half_interval, query_intervals
from ccal.numbering import Integers
from ccal.runs.paired_tests import DRAWS, LEVEL, PairedTest, paired_tests, tests_as_cells

_ENOUGH_SEEDS = 3  # for a standard deviation, or an interval by Student's t
_WORDS = {"method", "direction", "better than", "measure", "against"}
"""Columns of text, which are flush left."""


@dataclass(frozen=True)
class Row:
    """One method in one direction: means over seeds.

    Attributes:
        half: half the 95% interval of the MRR.
        interval: its kind: "seeds" (training again), if there are three or more that differ, else
            "bootstrap" (other test queries).
        queries: half the 95% interval over queries. Seeds share their test queries, so the interval
            over seeds can be small where this one is large.
        ap: AP@k in % with one query a class, in the direction in which the classes are queries.
        ap_half: half its 95% interval over seeds, of three or more.
        k: of AP@k.
        better_than: methods of clearly lower MRR in this direction, by the paired test.
        low: lower end of the 95% bootstrap interval of the MRR over queries, whose scores are means
            over seeds.
        high: its upper end.
        mrr_by_seed: the MRR of each seed.
        ap_by_seed: the AP@k of each seed.
        ties: how equal scores count.
        query_count: number of queries.
        candidates: number of candidates of each query.
    """

    method: str
    direction: str
    seeds: int
    mrr: float
    half: float
    interval: str
    queries: float
    r1: float
    r5: float
    r10: float
    mr: float
    ap: float | None
    ap_half: float | None
    k: int | None
    better_than: tuple[str, ...]
    low: float
    high: float
    mrr_by_seed: tuple[float, ...]
    ap_by_seed: tuple[float, ...]
    ties: Ties
    query_count: int
    candidates: int


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
            tests += paired_tests("MRR", name, scores, units and units[way], ties)
        if classes:
            k = next(iter(classes.values()))[0].k
            precisions = {m: _mean([c.precision for c in seeds]) for m, seeds in classes.items()}
            tests += paired_tests(f"AP@{k}", names[1], precisions, None, {})
        rows = [
            _row(
                method,
                [_way(seed, way) for seed in seeds],
                tests,
                classes.get(method, ()) if way else (),
                units and units[way],
                "pessimistic" if "pessimistic" in ties[method] else "optimistic",
            )
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
        plain = []
        for row in self.rows:
            lists = {
                name: " ".join(map(str, getattr(row, name)))
                for name in ("better_than", "mrr_by_seed", "ap_by_seed")
            }
            plain.append({**asdict(row), **lists, **self.about})
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(plain[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(plain)
        return text.getvalue()

    def __str__(self) -> str:
        table, *others = (_aligned(cells) for cells in self._tables()[:2])
        notes = "\n".join(self._notes())
        return "\n\n".join([f"{table}\n{notes}", *(f"{_DIFFERENCES}:\n{text}" for text in others)])

    def to_markdown(self) -> str:
        """The table and the tests in Markdown."""
        parts = []
        for cells in self._tables():
            lines = ([cell.replace("|", "\\|") for cell in line] for line in cells)
            head, *rows = (f"| {' | '.join(line)} |" for line in lines)
            parts.append("\n".join([head, "| --- " * len(cells[0]) + "|", *rows]))
        titles = [f"{_DIFFERENCES}:", f"{_ALL_TESTS}:"]
        parts[1:] = [f"{t}\n\n{part}" for t, part in zip(titles, parts[1:], strict=False)]
        return "\n\n".join([parts[0], "\n".join(self._notes()), *parts[1:]]) + "\n"

    def to_html(self) -> str:
        """The table and the tests as HTML tables, without a page around them.

        The highest MRR of each direction is bold; cells of text have the class "words".
        """
        tables = [
            [[escape(cell.replace(" -> ", " → ")) for cell in line] for line in cells]
            for cells in self._tables()
        ]
        for row, line in zip(self.rows, tables[0][1:], strict=True):
            if row.mrr == max(other.mrr for other in self.rows if other.direction == row.direction):
                line[2] = f"<strong>{line[2]}</strong>"
        notes = [*self._notes(), "Bold: the highest MRR of its direction."]
        captions = notes, [f"{_DIFFERENCES}."], [f"{_ALL_TESTS}."]
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
            said = "\n".join(f"<span>{escape(n.replace(' -> ', ' → '))}</span>" for n in caption)
            parts.append(
                f"<table>\n<caption>{said}</caption>\n"
                f"<thead><tr>{''.join(columns)}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>"
            )
        return "\n".join(parts)

    def _tables(self) -> list[list[list[str]]]:
        """The methods; if any were tested, their differences to the best, and all tests."""
        if not self.tests:
            return [self._cells()]
        mrr = [test for test in self.tests if test.measure == "MRR"]
        to_best: list[PairedTest] = []
        for name in dict.fromkeys(test.direction for test in mrr):
            own = [test for test in mrr if test.direction == name]
            tested = {method for test in own for method in (test.one, test.other)}
            rows = [row for row in self.rows if row.direction == name and row.method in tested]
            best = max(rows, key=lambda row: row.mrr).method
            to_best += [t for t in own if t.other == best]
            to_best += [t.seen_from(t.other) for t in own if t.one == best]
        shown = [to_best] if len(to_best) == len(self.tests) else [to_best, self.tests]
        return [self._cells(), *map(tests_as_cells, shown)]

    def _cells(self) -> list[list[str]]:
        k = next((row.k for row in self.rows if row.k is not None), None)
        several = max(row.seeds for row in self.rows) > 1
        head = ["method", "direction", "MRR", "95% interval", *(["seeds"] if several else [])]
        head += ["R@1", "R@5", "R@10", "MR"]
        if k is not None:
            head += [f"AP@{k}", *(["its seeds"] if several else [])]
        cells = [[*head, *(["better than"] if self.tests else [])]]
        for row in self.rows:
            line = [row.method, row.direction, f"{row.mrr:.1f}", f"[{row.low:.1f}, {row.high:.1f}]"]
            line += [_spread(row.mrr_by_seed)] if several else []
            line += [f"{value:.1f}" for value in (row.r1, row.r5, row.r10, row.mr)]
            if k is not None:
                line += ["-" if row.ap is None else f"{row.ap:.1f}"]
                line += [_spread(row.ap_by_seed)] if several else []
            cells.append([*line, *([", ".join(row.better_than)] if self.tests else [])])
        return cells

    def _notes(self) -> list[str]:
        counts = {r.direction: (r.query_count, r.candidates) for r in self.rows}
        lines = [f"{n}: {q:,} queries, {c:,} candidates." for n, (q, c) in counts.items()]
        notes = [
            " ".join(lines),
            "MRR: mean of 1 / rank, in %. R@k: % of queries found among the first k. "
            "MR: median rank.",
            "95% interval: of the MRR, over other test queries (bootstrap).",
        ]
        seeds = sorted({row.seeds for row in self.rows})
        if seeds[-1] > 1:
            notes[-1] += " All figures are means over seeds."
            if any(1 < count < _ENOUGH_SEEDS for count in seeds):
                notes.append("seeds: the lowest and highest of 2 seeds, too few for an interval.")
            if seeds[-1] >= _ENOUGH_SEEDS:
                notes.append(f"seeds, sd: standard deviation of {seeds[-1]} seeds.")
        if any(row.ap is not None for row in self.rows):
            notes.append("AP@k in %: share of a class among the first k items for its query.")
        if self.tests:
            notes.append(
                f"better than: methods whose MRR is lower by more than chance (p < {LEVEL:g})."
            )
            notes.append(
                f"p: paired randomisation test over queries, {DRAWS:,} draws; Holm's correction is "
                "for many tests."
            )
        rules = {row.ties for row in self.rows}
        if len(rules) == 1:
            notes.append(TIES_MEAN[rules.pop()])
        else:
            notes.append("Methods with other ties (see the warnings) are not tested against these.")
        return notes


_DIFFERENCES = "Difference in MRR to the best method, with its 95% interval over test queries"
_ALL_TESTS = "Paired tests of all pairs of methods"


def _aligned(cells: list[list[str]]) -> str:
    words = [number for number, head in enumerate(cells[0]) if head in _WORDS]
    return "\n".join(align(cells, left=words))


def _spread(values: Sequence[float]) -> str:
    """How far seeds are apart; of two seeds both, since a deviation would pretend to more.

    >>> _spread([66.5, 69.5]), _spread([1.0, 2.0, 3.0]), _spread([1.0])
    ('66.5..69.5', 'sd 1.0', '')
    """
    if len(values) < 2:
        return ""
    if len(values) < _ENOUGH_SEEDS:
        return f"{min(values):.1f}..{max(values):.1f}"
    return f"sd {stdev(values):.1f}"


def _way(report: Report, way: int) -> Direction:
    return (report.x_to_y, report.y_to_x)[way]


def _mean(values: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(values)).mean(0)


def _row(
    method: str,
    seeds: Sequence[Direction],
    tests: Sequence[PairedTest],
    classes: Sequence[ClassReport],
    units: Integers | None,
    ties: Ties,
) -> Row:
    scores = [seed.measures.mrr for seed in seeds]
    by_query = _mean([100 / seed.ranks.double() for seed in seeds])
    low, high = (float(end) for (end,) in query_intervals(by_query[:, None], units))
    queries = (high - low) / 2
    # Seeds that agree to the last digit are no proof of certainty.
    over_seeds = len(scores) >= _ENOUGH_SEEDS and len(set(scores)) > 1
    measures = [seed.measures for seed in seeds]
    aps = [seed.ap for seed in classes]
    name = seeds[0].name
    clear = [t for t in tests if (t.measure, t.direction) == ("MRR", name) and t.p_holm < LEVEL]
    turned = [t.seen_from(method) for t in clear if method in (t.one, t.other)]
    return Row(
        method=method,
        direction=name,
        seeds=len(seeds),
        mrr=fmean(scores),
        half=half_interval(scores) if over_seeds else queries,
        interval="seeds" if over_seeds else "bootstrap",
        queries=queries,
        r1=fmean(m.r1 for m in measures),
        r5=fmean(m.r5 for m in measures),
        r10=fmean(m.r10 for m in measures),
        mr=fmean(m.mr for m in measures),
        ap=fmean(aps) if aps else None,
        ap_half=half_interval(aps) if len(aps) >= _ENOUGH_SEEDS else None,
        k=classes[0].k if aps else None,
        better_than=tuple(t.other for t in turned if t.difference > 0),
        low=low,
        high=high,
        mrr_by_seed=tuple(scores),
        ap_by_seed=tuple(aps),
        ties=ties,
        query_count=len(seeds[0].ranks),
        candidates=seeds[0].candidates,
    )
