"""Is one method better than another, or luckier? Intervals over seeds, and paired tests.

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
    given = np.asarray(differences, dtype=np.float64)
    if given.ndim != 2 or not len(given) or not np.isfinite(given).all():
        raise InputError(
            f"differences must be a finite matrix (queries, comparisons), got shape {given.shape}."
        )
    sums = given
    if units is not None:
        numbers = np.asarray(units, dtype=np.int64)
        if numbers.shape != given.shape[:1]:
            raise InputError(f"units must have shape ({len(given)},), got {numbers.shape}.")
        sums = np.zeros((int(numbers.max()) + 1, given.shape[1]))
        np.add.at(sums, numbers, given)
    # A sum that rounding alone keeps below the observed one is as extreme.
    least = np.abs(sums.sum(0)) - 1e-9 * np.abs(sums).sum(0)
    sums = sums[np.any(sums != 0, axis=1)]
    n = len(sums)
    exact = n < 63 and 2**n <= draws
    rng = np.random.default_rng(seed)
    total, extreme = 2**n if exact else draws, np.zeros(given.shape[1])
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
