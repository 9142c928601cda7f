"""Measures of ranks (recall, median, reciprocal, mean), and their bootstrap intervals."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ccal.errors import InputError
from ccal.evaluation.inputs import Array
from ccal.numbering import Integers

LABELS = {"r1": "R@1", "r5": "R@5", "r10": "R@10", "mr": "MR", "mrr": "MRR", "mean_rank": "mean"}
"""Short names, in the order of the fields of `Measures`."""
MEANINGS = {
    "r1": "% of queries: found first",
    "r5": "% found among the first 5",
    "r10": "% found among the first 10",
    "mr": "median rank",
    "mrr": "mean of 1 / rank, in %",
    "mean_rank": "mean rank",
}
"""What each measure is, for people."""


@dataclass(frozen=True)
class Measures:
    """Retrieval measures of one direction.

    `r1`, `r5`, `r10`: queries whose counterpart is among the first 1, 5, 10, in %. `mr`: the median
    rank; of an even number of queries the mean of the middle two. `mrr`: mean of 1 / rank, in %, as
    in the paper's tables. `mean_rank`: the mean rank.

    >>> print(Measures.of(torch.tensor([1, 2, 4, 20])))
    R@1 25.0  R@5 75.0  R@10 75.0  MR 3.0  MRR 45.0  mean 6.8
    """

    r1: float
    r5: float
    r10: float
    mr: float
    mrr: float
    mean_rank: float

    @classmethod
    def of(cls, ranks: Array) -> Measures:
        """Measures of (n,) ranks, which count from 1."""
        r = torch.as_tensor(ranks).double()
        if r.ndim != 1 or len(r) == 0 or not bool((r >= 1).all()):
            raise InputError(
                f"ranks must be a non-empty vector of numbers from 1, got shape {tuple(r.shape)}"
                + (f" and minimum {r.min().item():g}." if r.numel() else ".")
            )
        ordered = r.sort().values
        middle = (ordered[(len(r) - 1) // 2] + ordered[len(r) // 2]) / 2
        r1, r5, r10 = (100 * (r <= k).double().mean().item() for k in (1, 5, 10))
        mrr = 100 * r.reciprocal().mean().item()
        return cls(r1, r5, r10, middle.item(), mrr, r.mean().item())

    def as_dict(self) -> dict[str, float]:
        """The fields by name."""
        return asdict(self)

    def __str__(self) -> str:
        return "  ".join(f"{LABELS[name]} {value:.1f}" for name, value in self.as_dict().items())


Floats = NDArray[np.float64]


def bootstrap_intervals(
    directions: list[tuple[Integers, Integers]], *, draws: int, seed: int
) -> list[tuple[Measures, Measures]]:
    """Lower and upper ends of the 95% interval of every measure, for each direction.

    A direction is its ranks (q,) and the unit (q,) of each query, counted from 0; both directions
    have the same units. Whole units are drawn, because the captions of one image succeed or fail
    together: drawn one by one, they would make the intervals too narrow.

    >>> ranks = np.arange(100) % 7 + 1
    >>> low, high = bootstrap_intervals([(ranks, np.arange(100))], draws=500, seed=0)[0]
    >>> low.mean_rank < float(ranks.mean()) < high.mean_rank
    True
    """
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
    ends = [np.percentile(np.concatenate(r), (2.5, 97.5), axis=0) for r in results]
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
    # The median of a draw is almost surely near the middle of the sorted ranks: its position varies
    # by about sqrt(q) / 2. Only if it is not there, all ranks are searched.
    reach = int(3 * np.sqrt(q * np.bincount(unit).max())) + 2
    low, high = max(0, q // 2 - reach), min(q, q // 2 + reach)
    below = weights @ np.bincount(unit[:low], minlength=weights.shape[1])
    cumulated = below[:, None] + np.cumsum(weights[:, unit[low:high]], axis=1)
    middle = np.stack(((sizes - 1) // 2, sizes // 2), axis=1)
    if bool((middle[:, 0] < below).any() or (middle[:, 1] >= cumulated[:, -1]).any()):
        low, cumulated = 0, np.cumsum(weights[:, unit], axis=1)
    found = np.stack(
        [np.searchsorted(c, m, "right") for c, m in zip(cumulated, middle, strict=True)]
    )
    medians: Floats = ranks[low + found].mean(axis=1)
    return medians
