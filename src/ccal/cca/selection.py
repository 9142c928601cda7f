"""Choosing the ridges and the weighting of CCA by retrieval on held-out pairs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccal.cca.solver import ridge_floor
from ccal.cca.statistics import Moments
from ccal.errors import InputError
from ccal.numbering import Integers, components, numbered
from ccal.positives import Positives
from ccal.ranks import weighted_reciprocal_ranks

NEGLIGIBLE = 1e-6
"""Correlations below this share of the largest are rounding noise, not directions."""

POWERS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
"""Weighting powers tried by `power="auto"`."""

_MIN_SAMPLES = 20
_MIN_FOLD, _MAX_FOLD = 10, 2000
# A choice on fewer queries is mostly noise, so small folds are repeated.
_ENOUGH_QUERIES, _MAX_FOLDS = 600, 9
# All folds together are held in memory.
_MAX_HELD = 20_000

# Relative ridges are tried in half decades: 10^(step / 2) times the mean variance of the view.
_COARSE_STEPS = range(-8, 5, 2)
_MAX_REFINEMENTS = 16

LEAST_RIDGE = 10 ** (_COARSE_STEPS[0] / 2)
"""The smallest relative ridge tried by `ridge="auto"`."""

# Larger views are decomposed in float32, which takes 40% of the time.
_EXACT_UP_TO = 500
# Of subspace iteration.
_OVERSAMPLING, _ITERATIONS = 32, 6


@dataclass(frozen=True)
class Trial:
    """One setting and its mean reciprocal rank on the held-out pairs, averaged over directions.

    `candidates` are the numbers of y and of x among which a query looks for its counterpart, the
    mean over the folds.
    """

    ridge: tuple[float, float]
    power: float
    mrr: float
    candidates: tuple[int, int]


def held_out_units(
    groups: NDArray[Any] | None, items: tuple[NDArray[Any], NDArray[Any]] | None
) -> Integers | None:
    """Which rows must be held out together, (n,): those connected by a group or an item.

    A text that many rows have, such as the name of a class, may connect most of them. Then only
    groups count, or the items of one view; None lets every row stand for itself.

    >>> photos, captions = np.arange(60) // 2, np.arange(60)
    >>> held_out_units(None, (photos, captions)).max()
    np.int64(29)
    >>> held_out_units(None, (captions, captions % 3)) is None
    True
    """
    keys = [*(() if groups is None else (groups,)), *(items or ())]
    for some in (keys, *([key] for key in keys)):
        units = components(*some) if some else np.arange(0)
        sizes = np.bincount(units)
        if len(sizes) >= _MIN_SAMPLES and sizes.max() * 5 <= len(units):
            return units if len(sizes) < len(units) else None
    return None if groups is None else numbered(groups)[1]


def hold_out(
    rows: int, fraction: float, seed: int | None, units: Integers | None = None
) -> list[Integers]:
    """Disjoint random folds of rows to validate on, each of them sorted.

    Rows of one unit, `units` (rows,), are together in a fold or in none; None lets every row stand
    for itself. A fold has `fraction` of all units, at least 10 and at most about 2,000 rows. There
    are as many folds as it takes to ask about 600 queries, at most 9; some rows stay out of all.
    """
    numbers = None if units is None else numbered(units)[1]
    count = rows if numbers is None else int(numbers.max()) + 1
    if count < _MIN_SAMPLES:
        what = "samples" if count == rows else "groups of samples that share nothing"
        raise InputError(
            f"'auto' validates on held-out pairs and needs at least {_MIN_SAMPLES} {what}, got "
            f"{count}; pass numbers instead, such as ridge=1.0, power=1.0."
        )
    most = max(2, _MAX_FOLD * count // rows)
    size = min(max(round(fraction * count), _MIN_FOLD), most, count - 2)
    queries = size * rows // count
    fitting = max(1, _MAX_HELD // queries)
    enough = max(1, round(_ENOUGH_QUERIES / queries))
    folds = min(enough, _MAX_FOLDS, (count - 2) // size, fitting)
    drawn = np.random.default_rng(seed).choice(count, (folds, size), replace=False)
    if numbers is None or count == rows:
        return [np.sort(fold) for fold in drawn.astype(np.int64)]
    return [np.flatnonzero(np.isin(numbers, fold)) for fold in drawn]


class HeldOut:
    """Scores any ridges and powers on held-out pairs, with one small decomposition each.

    One eigendecomposition a view, Sxx = E diag(l) E', makes whitening with any ridge r a diagonal
    scaling: T = diag((lx + rx)^-1/2) (Ex' Sxy Ey) diag((ly + ry)^-1/2). Ridges are given in units
    of `unit`, and none is below `least`. `held` are the different items of the held-out pairs, and
    `positives` says which of them belong together.
    """

    def __init__(
        self,
        train: Moments,
        held: tuple[Tensor, Tensor],
        positives: Positives,
        k: int,
        unit: tuple[float, float],
        least: tuple[float, float],
    ) -> None:
        cov = train.covariances()
        dtype = torch.float64
        if max(cov.xy.shape) > _EXACT_UP_TO:
            ridges = least[0] * unit[0], least[1] * unit[1]
            dtype = _sufficient_precision(zip((cov.xx, cov.yy), ridges, strict=True))
        self._lx, Ex, self._floor_x = _spectrum(cov.xx, dtype)
        self._ly, Ey, self._floor_y = _spectrum(cov.yy, dtype)
        self._cross = Ex.mT @ cov.xy.to(dtype) @ Ey
        self._x = (held[0] - train.mean_x).to(dtype) @ Ex
        self._y = (held[1] - train.mean_y).to(dtype) @ Ey
        self._k, self._unit, self._positives = k, unit, positives
        self.candidates = positives.shape[1], positives.shape[0]

    def scores(self, ridge: tuple[float, float], powers: Sequence[float]) -> list[float]:
        """Mean reciprocal rank with each of the powers."""
        wx = _whitening_scale(self._lx, ridge[0] * self._unit[0], self._floor_x)
        wy = _whitening_scale(self._ly, ridge[1] * self._unit[1], self._floor_y)
        U, d, V = _leading_triplets(wx[:, None] * self._cross * wy, self._k)
        weights = torch.stack([d**p for p in powers])
        x, y = (self._x * wx) @ U, (self._y * wy) @ V
        return weighted_reciprocal_ranks(x, y, weights, positives=self._positives)


def try_out(
    folds: Sequence[HeldOut], ridge: tuple[float, float], powers: Sequence[float]
) -> list[Trial]:
    """One ridge with each of the powers, averaged over the folds."""
    scores = np.mean([fold.scores(ridge, powers) for fold in folds], axis=0)
    y, x = np.mean([fold.candidates for fold in folds], axis=0).round().astype(int).tolist()
    return [Trial(ridge, p, float(mrr), (y, x)) for p, mrr in zip(powers, scores, strict=True)]


def search_ridges(
    folds: Sequence[HeldOut],
    powers: Sequence[float],
    scale: tuple[float, float],
    progress: Callable[[int, int], None] | None = None,
) -> list[Trial]:
    """Ridges from 1e-4 to 1e2 times `scale`, with each of the powers.

    First the same step for both views in whole decades, then half-decade steps of one view at a
    time from the best so far, until none improves: 9 to 25 decompositions a fold. `progress` is
    told how many ridges were tried, of at most how many.
    """
    tried: dict[tuple[int, int], list[Trial]] = {}
    most = len(_COARSE_STEPS) + _MAX_REFINEMENTS

    def best(step: tuple[int, int]) -> float:
        if step not in tried:
            ridge = (10 ** (step[0] / 2) * scale[0], 10 ** (step[1] / 2) * scale[1])
            tried[step] = try_out(folds, ridge, powers)
            if progress is not None:
                progress(len(tried), most)
        return max(trial.mrr for trial in tried[step])

    # Of equal scores the larger ridge wins.
    here = max([(step, step) for step in reversed(_COARSE_STEPS)], key=best)
    limit = len(tried) + _MAX_REFINEMENTS
    while len(tried) < limit:
        i, j = here
        neighbours = [
            (a, b)
            for a, b in ((i + 1, j), (i, j + 1), (i - 1, j), (i, j - 1))
            if {a, b} <= set(range(_COARSE_STEPS[0], _COARSE_STEPS[-1] + 1))
        ]
        there = max(neighbours, key=best)
        if best(there) <= best(here):
            break
        here = there
    return [trial for trials in tried.values() for trial in trials]


def _sufficient_precision(sides: Iterable[tuple[Tensor, float]]) -> torch.dtype:
    """float32 if it finds the eigenvalues of each covariance to within the least ridge of it."""
    eps = torch.finfo(torch.float32).eps
    precise = all(eps * torch.linalg.matrix_norm(cov).item() <= ridge for cov, ridge in sides)
    return torch.float32 if precise else torch.float64


def _spectrum(cov: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, float]:
    values, vectors = torch.linalg.eigh(cov.to(dtype))
    return values.clamp(min=0), vectors, ridge_floor(len(cov), cov.trace().item())


def _whitening_scale(values: Tensor, ridge: float, floor: float) -> Tensor:
    return (values + (ridge if float(values[0]) + ridge >= floor else floor)).rsqrt()


def _leading_subspace(T: Tensor, size: int) -> Tensor:
    """An orthonormal basis of about the leading left singular vectors (Halko et al. 2011)."""
    drawn = torch.randn(T.shape[1], size, generator=torch.Generator().manual_seed(0))
    basis: Tensor = torch.linalg.qr(T @ drawn.to(T))[0]
    for _ in range(_ITERATIONS):
        basis = torch.linalg.qr(T @ (T.mT @ basis))[0]
    return basis


def _leading_triplets(T: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """U, d, V of the k largest singular values that are not rounding noise.

    Eigenvectors of the smaller of T T' and T' T take half the time of an SVD, in float32 a quarter,
    and few of many by subspace iteration a tenth. The loss of precision is far too small to change
    a rank.
    """
    if T.shape[0] > T.shape[1]:
        V, d, U = _leading_triplets(T.mT, k)
        return U, d, V
    working = T.float() if len(T) > _EXACT_UP_TO else T
    basis = None
    if len(T) > max(_EXACT_UP_TO, 3 * k):
        basis = _leading_subspace(working, k + _OVERSAMPLING)
        working = basis.mT @ working
    U = torch.linalg.eigh(working @ working.mT)[1].flip(1)[:, :k]
    U = (U if basis is None else basis @ U).to(T.dtype)
    V = T.mT @ U
    d = torch.linalg.vector_norm(V, dim=0)
    kept = d > NEGLIGIBLE * d.max()
    kept[0] = True
    U, V, d = U[:, kept], V[:, kept], d[kept].clamp(min=torch.finfo(d.dtype).tiny)
    return U, d.clamp(max=1), V / d
