"""What a comparison says: methods by directions, means over seeds with intervals."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev

from ccal.evaluation import Direction, Report
from ccal.files import write_atomically

__all__ = ["Row", "as_table", "compare_rows", "half_interval", "write_rows"]

# Quantiles .975 of Student's t for 1, 2, ... degrees of freedom; a few seeds are far from normal.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
)


@dataclass(frozen=True)
class Row:
    """One method in one direction; `half` is half the 95% interval of the MRR, if there is one.

    `interval` says of what: "seeds" (training again) or "bootstrap" (other test queries). Seeds
    share their test queries, so their interval can be small where `queries`, half the mean
    bootstrap interval of the MRR, is large: then a difference between methods proves little.
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


def half_interval(values: Sequence[float]) -> float:
    """Half the 95% interval of a mean of two or more values, by Student's t.

    >>> round(half_interval([1.0, 2.0, 3.0]), 2)
    2.48
    """
    freedom = len(values) - 1
    t = _T[freedom - 1] if freedom <= len(_T) else 1.96 + 2.4 / freedom
    return float(t * stdev(values) / len(values) ** 0.5)


def compare_rows(reports: Mapping[str, Sequence[Report]]) -> list[Row]:
    """Two rows a method, from one report a seed."""
    return [
        _row(method, [(r.x_to_y, r.y_to_x)[way] for r in of_seeds])
        for method, of_seeds in reports.items()
        for way in (0, 1)
    ]


def _row(method: str, seeds: Sequence[Direction]) -> Row:
    scores = [seed.measures.mrr for seed in seeds]
    half: float | None = None
    interval = "none"
    bootstrap = [(s.high.mrr - s.low.mrr) / 2 for s in seeds if s.low and s.high]
    queries = fmean(bootstrap) if bootstrap else None
    if len(set(scores)) > 1:
        half, interval = half_interval(scores), "seeds"
    elif queries is not None:
        # One seed, or seeds that agree to the last digit, which is no proof of certainty.
        half, interval = queries, "bootstrap"
    means = {
        name: fmean(seed.measures.as_dict()[name] for seed in seeds)
        for name in ("r1", "r5", "r10", "mr")
    }
    return Row(method, seeds[0].name, len(seeds), fmean(scores), half, interval, queries, **means)


def as_table(rows: Sequence[Row]) -> str:
    """The rows for a terminal, with what the intervals mean."""
    marks = {"seeds": " ", "bootstrap": "*", "none": " "}
    cells = [["method", "direction", "MRR", "±queries", "R@1", "R@5", "R@10", "MR"]]
    for row in rows:
        spread = "" if row.half is None else f" ± {row.half:.1f}{marks[row.interval]}"
        numbers = (row.queries, row.r1, row.r5, row.r10, row.mr)
        values = ["-" if value is None else f"{value:.1f}" for value in numbers]
        cells.append([row.method, row.direction, f"{row.mrr:.1f}{spread}", *values])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            [*map(str.ljust, line[:2], widths[:2]), *map(str.rjust, line[2:], widths[2:])]
        ).rstrip()
        for line in cells
    ]
    seeds = max(row.seeds for row in rows)
    notes = ["R@k and MRR in %, MR is the median rank."]
    if any(row.interval == "seeds" for row in rows):
        notes.append(f"Means of {seeds} seeds; ± half the 95% interval over seeds.")
    if any(row.interval == "bootstrap" for row in rows):
        notes.append("*: one seed, or seeds that agree; the interval is that over test queries.")
    if any(row.queries is not None for row in rows):
        notes.append(
            "±queries: half the 95% bootstrap interval over test queries. Methods that differ by "
            "less than that may be equally good."
        )
    return "\n".join([*lines, *notes])


def write_rows(folder: Path, rows: Sequence[Row], about: Mapping[str, str]) -> None:
    """Write comparison.json and comparison.csv; `about` is in every row."""
    plain = [{**asdict(row), **about} for row in rows]
    write_atomically(folder / "comparison.json", (json.dumps(plain, indent=1) + "\n").encode())
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(plain[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(plain)
    write_atomically(folder / "comparison.csv", text.getvalue().encode())
