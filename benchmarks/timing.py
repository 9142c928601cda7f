"""Fair timing: variants take turns in one process, and medians are compared."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping

Row = dict[str, object]


def medians(variants: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """Milliseconds of each variant: they warm up, then take turns until the time is up.

    The order changes from round to round, since what ran before decides what the caches hold.
    """
    order, shuffle = list(variants.items()), random.Random(0).shuffle
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(2):
        for run in variants.values():
            run()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(times.values()))) < 5:
        shuffle(order)
        for name, run in order:
            start = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def show(title: str, rows: Iterable[Row]) -> None:
    """Print rows of equal keys as a table."""
    table = [[str(value) for value in row.values()] for row in rows]
    header = list(next(iter(rows)))
    widths = [max(map(len, column)) for column in zip(header, *table, strict=True)]
    print(f"\n{title}")
    for line in (header, *table):
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
