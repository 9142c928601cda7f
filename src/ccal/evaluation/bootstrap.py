"""Percentile intervals of retrieval measures, by resampling queries."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ccal.errors import InputError
from ccal.evaluation.measures import Measures

__all__ = ["bootstrap_intervals"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def bootstrap_intervals(
    directions: list[tuple[Integers, Integers]], *, draws: int, seed: int, level: float = 0.95
) -> list[tuple[Measures, Measures]]:
    """Lower and upper ends of the `level` interval of every measure, for each direction.

    A direction is its ranks (q,) and the unit (q,) of each query, 0 to units - 1, the same units
    in all directions. Whole units are drawn, as the captions of one image succeed or fail
    together: taken for independent they would make the intervals too narrow.

    >>> ranks = np.arange(100) % 7 + 1
    >>> low, high = bootstrap_intervals([(ranks, np.arange(100))], draws=500, seed=0)[0]
    >>> low.mean_rank < float(ranks.mean()) < high.mean_rank
    True
    """
    if draws < 2:
        raise InputError(f"bootstrap must be 0 (no intervals) or at least 2 draws, got {draws}.")
    units = 1 + max(int(unit.max()) for _, unit in directions)
    sums = [_sums(ranks, unit, units) for ranks, unit in directions]
    rng = np.random.default_rng(seed)
    results: list[list[Floats]] = [[] for _ in directions]
    step = max(1, 2_000_000 // units)  # 16 MB of weights at a time
    for start in range(0, draws, step):
        weights = _weights(rng, min(step, draws - start), units)
        for result, unit_sums, (ranks, unit) in zip(results, sums, directions, strict=True):
            totals = weights @ unit_sums
            means = totals[:, 1:] / totals[:, :1]
            medians = _medians(weights, ranks, unit, totals[:, 0])
            result.append(np.column_stack((means[:, :3], medians, means[:, 3:])))
    tail = 50 * (1 - level)
    ends = [np.percentile(np.concatenate(r), (tail, 100 - tail), axis=0) for r in results]
    return [(Measures(*low.tolist()), Measures(*high.tolist())) for low, high in ends]


def _weights(rng: np.random.Generator, draws: int, units: int) -> Floats:
    """How often each unit is drawn: (draws, units), rows add up to `units`."""
    picks = rng.integers(units, size=(draws, units))
    picks += units * np.arange(draws)[:, None]
    counts = np.bincount(picks.ravel(), minlength=draws * units)
    return counts.reshape(draws, units).astype(np.float64)


def _sums(ranks: Integers, unit: Integers, units: int) -> Floats:
    """Sums over each unit's queries: 1, hits at 1, 5, 10, reciprocals (all in %), ranks."""
    columns = [
        np.ones(len(ranks)),
        *(100.0 * (ranks <= k) for k in (1, 5, 10)),
        100.0 / ranks,
        ranks,
    ]
    return np.stack([np.bincount(unit, column, minlength=units) for column in columns], axis=1)


def _medians(weights: Floats, ranks: Integers, unit: Integers, sizes: Floats) -> Floats:
    """Median of each weighted draw, of `sizes` (draws,) queries."""
    order = np.argsort(ranks, kind="stable")
    ranks, unit = ranks[order], unit[order]
    q = len(ranks)
    # The median of a draw is almost surely near the middle of the sorted ranks: look there first.
    # Its place varies by sqrt(q) / 2 or so, and a wider look follows if ever it is not there.
    reach = int(3 * np.sqrt(q * np.bincount(unit).max())) + 2
    low, high = max(0, q // 2 - reach), min(q, q // 2 + reach)
    below = weights @ np.bincount(unit[:low], minlength=weights.shape[1])
    cumulated = below[:, None] + np.cumsum(weights[:, unit[low:high]], axis=1)
    places = np.stack(((sizes - 1) // 2, sizes // 2), axis=1)
    if bool((places[:, 0] < below).any() or (places[:, 1] >= cumulated[:, -1]).any()):
        low, cumulated = 0, np.cumsum(weights[:, unit], axis=1)
    found = np.stack(
        [np.searchsorted(c, p, "right") for c, p in zip(cumulated, places, strict=True)]
    )
    medians: Floats = ranks[low + found].mean(axis=1)
    return medians
