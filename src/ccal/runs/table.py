"""`Comparison`: methods side by side in one table that says what is more than luck."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from statistics import stdev
from typing import Any

from ccal.columns import align
from ccal.evaluation import ClassReport, Direction, Report
from ccal.evaluation.protocol import TIES_MEAN
from ccal.numbering import Integers
from ccal.runs.paired_tests import DRAWS, LEVEL, PairedTest, paired_tests, tests_as_cells
from ccal.runs.rows import ENOUGH_SEEDS, Row, make_row, mean_over_seeds

_WORDS = {"method", "direction", "better than", "measure", "against"}
"""Columns of text, which are flush left."""


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
                method: mean_over_seeds([100 / _way(seed, way).ranks.double() for seed in seeds])
                for method, seeds in reports.items()
            }
            tests += paired_tests("MRR", name, scores, units and units[way], ties)
        if classes:
            k = next(iter(classes.values()))[0].k
            precisions = {
                m: mean_over_seeds([c.precision for c in seeds]) for m, seeds in classes.items()
            }
            tests += paired_tests(f"AP@{k}", names[1], precisions, None, {})
        rows = [
            make_row(
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
                for name in ("better_than", "ap_better_than", "mrr_by_seed", "ap_by_seed")
            }
            plain.append({**asdict(row), **lists, **self.about})
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(plain[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(plain)
        return text.getvalue()

    def __str__(self) -> str:
        parts = []
        for shown in self._tables():
            if shown.title != _ALL_TESTS:
                title = [f"{shown.title}:"] if shown.title else []
                parts.append("\n".join([*title, _aligned(shown.cells), *shown.notes]))
        return "\n\n".join(parts)

    def to_markdown(self) -> str:
        """The tables and the tests in Markdown."""
        parts = []
        for shown in self._tables():
            lines = ([cell.replace("|", "\\|") for cell in line] for line in shown.cells)
            head, *rows = (f"| {' | '.join(line)} |" for line in lines)
            table = "\n".join([head, "| --- " * len(shown.cells[0]) + "|", *rows])
            title = f"{shown.title}:" if shown.title else ""
            parts += [part for part in (title, table, "\n".join(shown.notes)) if part]
        return "\n\n".join(parts) + "\n"

    def to_html(self) -> str:
        """The tables and the tests as HTML tables, without a page around them.

        The highest MRR of each direction and the highest AP@k are bold; cells of text have the
        class "words".
        """
        parts = []
        for shown in self._tables():
            lines = [[escape(c.replace(" -> ", " → ")) for c in line] for line in shown.cells]
            for row, column in shown.best:
                lines[row][column] = f"<strong>{lines[row][column]}</strong>"
            head, *body = lines
            kinds = [' class="words"' if name in _WORDS else "" for name in head]
            columns = [f'<th scope="col"{k}>{c}</th>' for k, c in zip(kinds, head, strict=True)]
            cells = [
                [f'<th scope="row"{kinds[0]}>{first}</th>']
                + [f"<td{k}>{c}</td>" for k, c in zip(kinds[1:], rest, strict=True)]
                for first, *rest in body
            ]
            rows = "\n".join(f"<tr>{''.join(line)}</tr>" for line in cells)
            caption = [f"{shown.title}."] if shown.title else []
            caption += [*shown.notes, *(["Bold: the highest."] if shown.best else [])]
            caption_html = "\n".join(
                f"<span>{escape(n.replace(' -> ', ' → '))}</span>" for n in caption
            )
            parts.append(
                f"<table>\n<caption>{caption_html}</caption>\n"
                f"<thead><tr>{''.join(columns)}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>"
            )
        return "\n".join(parts)

    def _tables(self) -> list[_Shown]:
        """Methods; classes, with labels; and differences to the best and all tests, if any."""
        tables = [self._methods()]
        if any(row.ap is not None for row in self.rows):
            tables.append(self._classes())
        if not self.tests:
            return tables
        to_best: list[PairedTest] = []
        for measure, direction in dict.fromkeys((t.measure, t.direction) for t in self.tests):
            own = [t for t in self.tests if (t.measure, t.direction) == (measure, direction)]
            tested = {method for test in own for method in (test.one, test.other)}
            rows = [row for row in self.rows if row.direction == direction and row.method in tested]
            best = max(rows, key=lambda row: row.mrr if measure == "MRR" else row.ap or 0.0).method
            to_best += [t for t in own if t.other == best]
            to_best += [t.seen_from(t.other) for t in own if t.one == best]
        classes = next((t.measure for t in self.tests if t.measure != "MRR"), None)
        title = (
            f"Difference in MRR{f' and {classes}' if classes else ''} to the best method, with its "
            f"95% interval over test queries{' and classes' if classes else ''}"
        )
        tables.append(_Shown(title, tests_as_cells(to_best)))
        if len(to_best) < len(self.tests):
            tables.append(_Shown(_ALL_TESTS, tests_as_cells(self.tests)))
        return tables

    @property
    def _several(self) -> bool:
        return max(row.seeds for row in self.rows) > 1

    def _methods(self) -> _Shown:
        """MRR, R@k and MR of every method in both directions."""
        several = self._several
        head = ["method", "direction", "MRR", "95% interval", *(["seeds"] if several else [])]
        head += ["R@1", "R@5", "R@10", "MR"]
        cells = [[*head, *(["better than"] if self.tests else [])]]
        best = []
        for number, row in enumerate(self.rows, start=1):
            line = [row.method, row.direction, f"{row.mrr:.1f}", f"[{row.low:.1f}, {row.high:.1f}]"]
            line += [_spread(row.mrr_by_seed)] if several else []
            line += [f"{value:.1f}" for value in (row.r1, row.r5, row.r10, row.mr)]
            cells.append([*line, *([", ".join(row.better_than)] if self.tests else [])])
            if row.mrr == max(o.mrr for o in self.rows if o.direction == row.direction):
                best.append((number, 2))
        return _Shown("", cells, self._notes(), best)

    def _classes(self) -> _Shown:
        """AP@k of every method, with one query a class."""
        several, tested = self._several, any(t.measure != "MRR" for t in self.tests)
        rows = [row for row in self.rows if row.ap is not None]
        alone = any(row.ap_alone is not None for row in rows)
        head = ["method", f"AP@{rows[0].k}", "95% interval", *(["seeds"] if several else [])]
        head += [*(["each item by itself"] if alone else []), *(["better than"] if tested else [])]
        cells, best = [head], []
        for number, row in enumerate(rows, start=1):
            line = [row.method, f"{row.ap:.1f}", f"[{row.ap_low:.1f}, {row.ap_high:.1f}]"]
            line += [_spread(row.ap_by_seed)] if several else []
            line += [f"{row.ap if row.ap_alone is None else row.ap_alone:.1f}"] if alone else []
            cells.append([*line, *([", ".join(row.ap_better_than)] if tested else [])])
            if row.ap == max(other.ap or 0.0 for other in rows):
                best.append((number, 1))
        notes = [
            "AP@k in %: share of a class among the first k items for its query, which is the mean "
            f"of its {rows[0].direction.split(' -> ')[0]} embeddings.",
            "95% interval: over other test classes (bootstrap).",
        ]
        if alone:
            notes.append("each item by itself: AP@k without averaging items over their neighbours.")
        if tested:
            notes.append(
                f"better than: methods whose AP@k is lower by more than chance (p < {LEVEL:g}; "
                "paired randomisation test over classes, Holm's correction)."
            )
        return _Shown("Classes that look for their items", cells, notes, best)

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
            if any(1 < count < ENOUGH_SEEDS for count in seeds):
                notes.append("seeds: the lowest and highest of 2 seeds, too few for an interval.")
            if seeds[-1] >= ENOUGH_SEEDS:
                notes.append(f"seeds, sd: standard deviation of {seeds[-1]} seeds.")
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


@dataclass(frozen=True)
class _Shown:
    """A table with its header, below a title and above notes; `best` are cells (line, column)."""

    title: str
    cells: list[list[str]]
    notes: Sequence[str] = ()
    best: Sequence[tuple[int, int]] = ()


_ALL_TESTS = "Paired tests of all pairs of methods"


def _aligned(cells: list[list[str]]) -> str:
    words = [number for number, head in enumerate(cells[0]) if head in _WORDS]
    return "\n".join(align(cells, left=words))


def _spread(values: Sequence[float]) -> str:
    """The spread over seeds: of two seeds both values, as their deviation would mean little.

    >>> _spread([66.5, 69.5]), _spread([1.0, 2.0, 3.0]), _spread([1.0])
    ('66.5..69.5', 'sd 1.0', '')
    """
    if len(values) < 2:
        return ""
    if len(values) < ENOUGH_SEEDS:
        return f"{min(values):.1f}..{max(values):.1f}"
    return f"sd {stdev(values):.1f}"


def _way(report: Report, way: int) -> Direction:
    return (report.x_to_y, report.y_to_x)[way]
