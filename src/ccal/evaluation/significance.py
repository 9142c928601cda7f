"""Is one method better than another, or luckier? Intervals over seeds and queries, paired tests.

Intervals over queries say what other test queries would give: queries are drawn again with
replacement (the bootstrap); for the difference of two methods both see the same draw.

The paired randomisation test asks how often the difference of two methods would be as large as it
is if, for every query, a coin decided which method got which score: the signs of the differences
are flipped at random. It assumes no distribution. Many comparisons at once find something by
chance, which Holm's correction (1979) makes up for.
"""

from collections.abc import Sequence
from statistics import stdev
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccal.bounds import Whole, check
from ccal.errors import InputError

# Quantiles .975 of Student's t for 1, 2, ... degrees of freedom; a few seeds are far from normal.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
)


def half_interval(values: Sequence[float]) -> float:
    """Half the 95% interval of a mean of two or more values, by Student's t.

    >>> round(half_interval([1.0, 2.0, 3.0]), 2)
    2.48
    """
    if len(values) < 2:
        raise InputError(f"An interval needs at least 2 values, got {len(values)}.")
    freedom = len(values) - 1
    t = _T[freedom - 1] if freedom <= len(_T) else 1.96 + 2.4 / freedom
    return float(t * stdev(values) / len(values) ** 0.5)


def randomisation_test(
    differences: ArrayLike, units: ArrayLike | None = None, *, draws: int = 10_000, seed: int = 0
) -> NDArray[np.float64]:
    """Two-sided p-values (c,) of c means of differences (n, c), by flipping signs of queries.

    Queries of one unit, such as the captions of one picture, fail together: their signs flip
    together. `units` (n,) numbers them from 0; None lets every query stand for itself. If there are
    no more than `draws` ways to flip, all are counted and the p-values are exact; else `draws` of
    them are drawn, and the p-values are (1 + as extreme) / (1 + draws).

    >>> randomisation_test([[0.3, 0.1], [0.2, -0.1], [0.4, 0.0]])
    array([0.25, 1.  ])
    """
    check("draws", draws, Whole(at_least=1))
    sums, _ = _unit_sums(differences, units, "differences")
    # A sum that rounding alone keeps below the observed one is as extreme.
    least = np.abs(sums.sum(0)) - 1e-9 * np.abs(sums).sum(0)
    sums = sums[np.any(sums != 0, axis=1)]
    n = len(sums)
    exact = n < 63 and 2**n <= draws
    rng = np.random.default_rng(seed)
    total, extreme = 2**n if exact else draws, np.zeros(sums.shape[1])
    step = max(1, 4_000_000 // max(n, 1))  # 32 MB of signs at a time
    for start in range(0, total, step):
        count = min(step, total - start)
        flips: NDArray[Any]
        if exact:
            flips = (np.arange(start, start + count)[:, None] >> np.arange(n)) & 1
        else:
            flips = rng.integers(2, size=(count, n), dtype=np.int8)
        extreme += (np.abs((1.0 - 2.0 * flips) @ sums) >= least).sum(0)
    return extreme / total if exact else (1 + extreme) / (1 + total)


def query_intervals(
    scores: ArrayLike, units: ArrayLike | None = None, *, draws: int = 1000, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lower and upper ends (c,) of the 95% bootstrap intervals of c means of scores (n, c).

    A score is that of a query, or the difference of two methods in it. Queries of one unit are
    drawn together; `units` are those of `randomisation_test`.

    >>> low, high = query_intervals(np.arange(100)[:, None] % 7)
    >>> bool(low < 3 < high)
    True
    """
    check("draws", draws, Whole(at_least=2))
    sums, counts = _unit_sums(scores, units, "scores")
    n, rng = len(sums), np.random.default_rng(seed)
    step = max(1, 2_000_000 // n)  # 16 MB of weights at a time
    means = []
    for start in range(0, draws, step):
        weights = rng.multinomial(n, np.full(n, 1 / n), size=min(step, draws - start))
        means.append((weights @ sums) / (weights @ counts)[:, None])
    low, high = np.percentile(np.concatenate(means), (2.5, 97.5), axis=0)
    return low, high


def _unit_sums(
    values: ArrayLike, units: ArrayLike | None, name: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sums (u, c) of the values (n, c) of each unit, and how many values (u,) each has."""
    given = np.asarray(values, dtype=np.float64)
    if given.ndim != 2 or not len(given) or not np.isfinite(given).all():
        raise InputError(
            f"{name} must be a finite matrix (queries, comparisons), got shape {given.shape}."
        )
    if units is None:
        return given, np.ones(len(given))
    numbers = np.asarray(units, dtype=np.int64)
    if numbers.shape != given.shape[:1]:
        raise InputError(f"units must have shape ({len(given)},), got {numbers.shape}.")
    sums = np.zeros((int(numbers.max()) + 1, given.shape[1]))
    np.add.at(sums, numbers, given)
    return sums, np.bincount(numbers, minlength=len(sums)).astype(np.float64)


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """p-values (c,) of c comparisons corrected by Holm's step-down method.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    given = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(given, kind="stable")
    raised = np.maximum.accumulate(given[order] * np.arange(len(given), 0, -1))
    corrected = np.empty_like(given)
    corrected[order] = np.minimum(raised, 1.0)
    return corrected
