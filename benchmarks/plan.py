"""Hours, bytes and money for a hundred million and a billion pairs, from measured unit costs.

Unit costs are processor seconds per million rows, from benchmarks/scale.json. What cannot be run
here is simulated: workers take shards in turn, each needs its measured time, workers die at random
and their shard is begun again by another, which first has to start. Prices are assumptions, stated
in PRICES. Run with

    python -m benchmarks.plan [--workers 64] [--deaths-per-hour 0.02] [--longest 600]
"""

from __future__ import annotations

import argparse
import heapq
import json
from pathlib import Path

import numpy as np

from benchmarks.timing import Row, show

COSTS = Path("benchmarks/scale.json")
PRICES = {"processor hour": 0.048, "GB of object store, month": 0.023}
"""US dollars, of general-purpose machines on demand; put in those of your own provider."""
SHARD, LONGEST, START = 500_000, 600.0, 20.0
"""Most rows of a shard, most seconds for one, and seconds until a new worker has begun."""
DIM, METADATA = 128, 470
# Products of features grow with the square of their number: 1,280 + 384 against 128 + 128.
STAGES = (
    ("photo features", 1, 1),
    ("fit", 1, 1),
    ("fit", (1664 / 256) ** 2, 1),
    ("encode", 1, 2),
    ("postgres", 1, 2),
    ("milvus", 1, 2),
)


def simulate(
    rows: float, per_million: float, workers: int, deaths_per_hour: float, longest: float
) -> tuple[float, float]:
    """Hours until the last shard is done, and processor hours, those of lost work included."""
    rng = np.random.default_rng(0)
    shard = min(SHARD, longest / per_million * 1e6)
    seconds, left = per_million * shard / 1e6, int(np.ceil(rows / shard))
    free = [START] * workers
    used = START * workers
    while left:
        now = heapq.heappop(free)
        death = rng.exponential(3600 / deaths_per_hour) if deaths_per_hour else np.inf
        if death < seconds:
            used += death + START
            heapq.heappush(free, now + death + START)
            continue
        left -= 1
        used += seconds
        heapq.heappush(free, now + seconds)
    return max(free) / 3600, used / 3600


def main() -> None:
    parser = argparse.ArgumentParser(description="A plan from unit costs.")
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--deaths-per-hour", type=float, default=0.02)
    parser.add_argument("--longest", type=float, default=LONGEST, metavar="SECONDS")
    arguments = parser.parse_args()
    options = arguments.workers, arguments.deaths_per_hour, arguments.longest
    costs = "processor s per million"
    measured = {r["stage"]: r for r in json.loads(COSTS.read_text()) if costs in r}
    rows: list[Row] = []
    for pairs in (1e8, 1e9):
        for stage, factor, both in STAGES:
            if stage not in measured:
                continue
            cost = factor * float(measured[stage][costs])
            hours, used = simulate(both * pairs, cost, *options)
            rows.append(
                {
                    "pairs": f"{pairs:.0e}",
                    "stage": stage if factor == 1 else f"{stage}, x {factor:.0f}",
                    "rows": f"{both * pairs:.0e}",
                    costs: round(cost, 1),
                    "workers": arguments.workers,
                    "hours": round(hours, 2),
                    "processor hours": round(used, 1),
                    "dollars": round(used * PRICES["processor hour"], 2),
                }
            )
        vectors, facts = 2 * pairs * DIM * 4 / 1e9, 2 * pairs * METADATA / 1e9
        month = (vectors + facts) * PRICES["GB of object store, month"]
        print(
            f"{pairs:.0e} pairs: {vectors:,.0f} GB of vectors of both modalities, {facts:,.0f} GB "
            f"of metadata, ${month:,.0f} a month in an object store"
        )
    show("plan", rows)


if __name__ == "__main__":
    main()
