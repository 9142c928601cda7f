"""From two views and checked parameters to a fitted linear CCA."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from ccal.bounds import Number, Options, Rule, Whole, check, check_all
from ccal.cca.checks import ridge_pair
from ccal.cca.selection import (
    LEAST_RIDGE,
    NEGLIGIBLE,
    POWERS,
    HeldOut,
    Trial,
    held_out_units,
    hold_out,
    search_ridges,
    try_out,
)
from ccal.cca.solver import fix_signs, solve, usable_ridge
from ccal.cca.statistics import Covariances, Moments
from ccal.cca.views import ArrayView, Float64, SampleSpan, stream
from ccal.errors import InputError, SmallBatchWarning
from ccal.numbering import Integers
from ccal.positives import Positives

Progress = Callable[[str, int, int], None]
"""Called with what is counted ("samples" or "ridges"), how many are done, and of how many."""

Gather = Callable[[Sequence[Integers]], tuple[Moments, list[tuple[Tensor, Tensor]]]]
"""From sets of row numbers to the moments of all other rows, and the samples of each set."""

# Scores of a fold are n x m matrices, and the rows of one group may be many.
_MAX_SCORED = 4000

_AUTO = Options("auto")
_BOUNDS: dict[str, Rule | tuple[Rule, ...]] = {
    "n_components": (Options(None), Whole(at_least=1)),
    "power": (_AUTO, Number(at_least=0)),
    "validation_fraction": Number(above=0, below=1),
    "random_state": (Options(None), Whole(at_least=0)),
    "chunk_rows": (Options(None), Whole(at_least=1)),
}


@dataclass(frozen=True)
class Parameters:
    """Checked parameters of `CCA`; `ridge` and `power` are None while they are to be chosen."""

    n_components: int | None
    ridge: tuple[float, float] | None
    relative_ridge: bool
    power: float | None
    validation_fraction: float
    random_state: int | None
    chunk_rows: int | None

    @classmethod
    def of(cls, given: dict[str, Any]) -> Parameters:
        """Check the parameters of an estimator and name the one that is wrong."""
        check_all(_BOUNDS, given)
        ridge, power = given["ridge"], given["power"]
        if not isinstance(ridge, tuple | list):
            check("ridge", ridge, _AUTO, Number(at_least=0))
        ridge = None if _AUTO.allows(ridge) else ridge_pair(ridge)
        power = None if _AUTO.allows(power) else float(power)
        return cls(**{**given, "ridge": ridge, "power": power})

    @property
    def automatic(self) -> bool:
        """Whether ridge or power are still to be chosen."""
        return self.ridge is None or self.power is None

    def components(self, dim_x: int, dim_y: int, samples: int) -> int:
        """Number of components to compute."""
        if samples < 2:
            raise InputError(f"CCA needs at least 2 samples, got {samples} sample(s).")
        limit = min(dim_x, dim_y, samples - 1)
        if self.n_components is not None and self.n_components > limit:
            raise InputError(
                f"n_components must be at most min(d_x, d_y, samples - 1) = min({dim_x}, {dim_y}, "
                f"{samples - 1}) = {limit}, got {self.n_components}."
            )
        return int(self.n_components or limit)


@dataclass(frozen=True)
class Fitted:
    """Everything `CCA` learns; see its attributes of the same names."""

    correlations: Float64
    x_projection: Float64
    y_projection: Float64
    x_mean: Float64
    y_mean: Float64
    ridge: tuple[float, float]
    power: float
    n_samples_seen: int
    search: list[dict[str, object]]
    x_loadings: Float64 | None = None
    y_loadings: Float64 | None = None

    @classmethod
    def restore(cls, values: dict[str, Any]) -> Fitted:
        """The solution with these fields, as read from a file."""
        # JSON turns tuples into lists.
        search = [
            {name: tuple(v) if isinstance(v, list) else v for name, v in trial.items()}
            for trial in values["search"]
        ]
        fitted = cls(**{**values, "ridge": tuple(values["ridge"]), "search": search})
        k = len(fitted.correlations)
        sides = (
            (fitted.x_mean, fitted.x_projection, fitted.x_loadings),
            (fitted.y_mean, fitted.y_projection, fitted.y_loadings),
        )
        for mean, *matrices in sides:
            for matrix in matrices:
                if matrix is None:  # the loadings in a file of an earlier version
                    continue
                if matrix.shape != (len(mean), k) or not np.isfinite(matrix).all():
                    raise ValueError(f"a matrix of shape {matrix.shape} does not fit.")
        return fitted


def fit_pairs(
    x: ArrayView,
    y: ArrayView,
    parameters: Parameters,
    progress: Progress | None = None,
    *,
    groups: NDArray[Any] | None = None,
    items: tuple[NDArray[Any], NDArray[Any]] | None = None,
    valid: tuple[ArrayView, ArrayView] | None = None,
) -> tuple[Fitted, Moments | None]:
    """Fit on the rows of both views in one pass; `groups`, `items`, `valid` are those of `CCA.fit`.

    The moments are returned too, unless a view was reduced to the span of its samples.
    """
    parameters.components(x.dim, y.dim, x.rows)
    spans = tuple(SampleSpan(view) if view.dim > view.rows else None for view in (x, y))
    narrow = [span.coordinates if span else view for view, span in zip((x, y), spans, strict=True)]
    told = progress and partial(progress, "samples")
    gather = partial(stream, narrow[0], narrow[1], chunk_rows=parameters.chunk_rows, progress=told)

    def rows_of(some: Integers, fold: tuple[Tensor, Tensor]) -> list[NDArray[Any]]:
        # Coordinates of equal rows differ by rounding.
        return [
            sample.numpy() if span is None else view.read_rows(some)
            for view, span, sample in zip((x, y), spans, fold, strict=True)
        ]

    return fit_gathered(
        x.rows,
        (x.dim, y.dim),
        gather,
        parameters,
        progress,
        groups=groups,
        items=items,
        spans=spans,
        rows_of=rows_of,
        chosen_on=_validation(valid, spans) if valid and parameters.automatic else None,
    )


def _validation(
    valid: tuple[ArrayView, ArrayView], spans: tuple[SampleSpan | None, ...]
) -> tuple[Tensor, Tensor, Positives]:
    """The different items of some validation pairs, and which of them belong together."""
    rows = np.arange(0, valid[0].rows, -(-valid[0].rows // _MAX_SCORED))
    blocks = [view.read_rows(rows).astype(np.float64) for view in valid]
    for view, block in zip(valid, blocks, strict=True):
        if not np.isfinite(block).all():
            view.refuse_values()
    x, y = (
        torch.from_numpy(block if span is None else span.project(block))
        for block, span in zip(blocks, spans, strict=True)
    )
    return different((x, y), [equal_rows(block) for block in blocks], None)


def fit_gathered(
    count: int,
    dims: tuple[int, int],
    gather: Gather,
    parameters: Parameters,
    progress: Progress | None = None,
    *,
    groups: NDArray[Any] | None = None,
    items: tuple[NDArray[Any], NDArray[Any]] | None = None,
    spans: tuple[SampleSpan | None, ...] = (None, None),
    rows_of: Callable[[Integers, tuple[Tensor, Tensor]], list[NDArray[Any]]] | None = None,
    chosen_on: tuple[Tensor, Tensor, Positives] | None = None,
) -> tuple[Fitted, Moments | None]:
    """Fit on `count` rows that only `gather` reads; `rows_of` gives held-out rows to compare.

    Ridge and power are chosen on the items `chosen_on` of other pairs, else on held-out rows.
    """
    parameters.components(*dims, count)
    rows: list[Integers] = []
    if parameters.automatic and chosen_on is None:
        units = held_out_units(groups, items)
        rows = hold_out(count, parameters.validation_fraction, parameters.random_state, units)
    moments, folds = gather(rows)
    trials = list[Trial]()
    if parameters.automatic:
        parts = [Moments.of(*fold) for fold in folds]
        held = [] if chosen_on is None else [chosen_on]
        for fold, some in zip(folds, rows, strict=True):
            if items is None:
                compared = rows_of(some, fold) if rows_of else [part.numpy() for part in fold]
                numbers = [equal_rows(block) for block in compared]
            else:
                numbers = [of_view[some] for of_view in items]
            held.append(different(fold, numbers, None if groups is None else groups[some]))
        trials = _try_out(moments, held, parts, parameters, dims, progress)
        best = max(trials, key=lambda trial: trial.mrr)
        parameters = replace(parameters, ridge=best.ridge, power=best.power)
        moments = sum(parts, moments)
    fitted = fit_moments(moments, parameters, spans, trials)
    return fitted, moments if spans == (None, None) else None


def fit_moments(
    moments: Moments,
    parameters: Parameters,
    spans: tuple[SampleSpan | None, ...] = (None, None),
    trials: Sequence[Trial] = (),
) -> Fitted:
    """Fit on moments; where a view has a span, they are those of its coordinates."""
    if parameters.power is None:
        raise AssertionError("power must be chosen before the fit")
    mean_x, mean_y = (
        mean.numpy().copy() if span is None else span.mean
        for mean, span in zip((moments.mean_x, moments.mean_y), spans, strict=True)
    )
    dims = len(mean_x), len(mean_y)
    k = parameters.components(*dims, moments.count)
    cov, ridge = regularised(moments, parameters, dims)
    A, B, correlations, _ = solve(cov, k=k)
    if parameters.n_components is None:
        k = max(1, int((correlations > NEGLIGIBLE * correlations[0]).sum()))
        A, B, correlations = A[:, :k], B[:, :k], correlations[:k]
    # The span of few distinct samples may have fewer directions than were asked for.
    missing = (0, k - len(correlations))
    (A, x_loadings), (B, y_loadings) = (
        (pad(half, missing) for half in _lift(torch.cat((part, S @ part), 1), span).chunk(2, dim=1))
        for part, S, span in zip((A, B), (cov.xx, cov.yy), spans, strict=True)
    )
    A, others = fix_signs(A, torch.cat((B, x_loadings, y_loadings)))
    B, x_loadings, y_loadings = others.split((dims[1], *dims))
    correlations = pad(correlations.clamp(max=1), missing)
    if parameters.ridge == (0.0, 0.0):
        _warn_if_perfect(correlations, dims, moments.count)
    learned = correlations.numpy(), A.numpy(), B.numpy(), mean_x, mean_y
    search = [asdict(trial) for trial in trials]
    loadings = x_loadings.numpy(), y_loadings.numpy()
    return Fitted(*learned, ridge, parameters.power, moments.count, search, *loadings)


def regularised(
    moments: Moments, parameters: Parameters, dims: tuple[int, int]
) -> tuple[Covariances, tuple[float, float]]:
    """Covariances with the ridge of each view added, and that ridge; `dims` are d_x and d_y."""
    if parameters.ridge is None:
        raise AssertionError("ridge must be chosen before the fit")
    unit = _mean_variances(moments, dims) if parameters.relative_ridge else (1.0, 1.0)
    cov = moments.covariances()
    ridge_x = usable_ridge(cov.xx, parameters.ridge[0] * unit[0])
    ridge_y = usable_ridge(cov.yy, parameters.ridge[1] * unit[1])
    # The covariances are copies, so the ridge is added in place.
    cov.xx.diagonal().add_(ridge_x)
    cov.yy.diagonal().add_(ridge_y)
    return cov, (ridge_x, ridge_y)


def _warn_if_perfect(correlations: Tensor, dims: tuple[int, int], samples: int) -> None:
    """Warn if correlations are 1 because the features of n pairs span all n - 1 dimensions."""
    perfect = int((correlations > 1 - NEGLIGIBLE).sum())
    if perfect and sum(dims) >= samples:
        warnings.warn(
            f"{perfect} of {len(correlations)} canonical correlations are 1, which says nothing: "
            f"{dims[0]} and {dims[1]} features fit {samples} pairs perfectly, whatever they hold. "
            f"Classic CCA needs more than {sum(dims)} pairs. Use CCA(ridge='auto', power='auto'), "
            "CCA.for_retrieval() or another ridge above 0.",
            SmallBatchWarning,
            stacklevel=_level_of_caller(),
        )


def _level_of_caller() -> int:
    """Stack level, for a warning, of the line outside of `ccal.cca` that led to it."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("ccal.cca."):
        frame, level = frame.f_back, level + 1
    return level


def different(
    fold: tuple[Tensor, Tensor], items: Sequence[NDArray[Any]], groups: NDArray[Any] | None
) -> tuple[Tensor, Tensor, Positives]:
    """The different x and y among held-out rows, and which of them belong together."""
    some = slice(None, None, -(-len(items[0]) // _MAX_SCORED))
    group = None if groups is None else groups[some]
    positives, x_first, y_first = Positives.of_items(items[0][some], items[1][some], group)
    return fold[0][some][x_first], fold[1][some][y_first], positives


def equal_rows(block: NDArray[Any]) -> Integers:
    """A number (n,) for each row, the same for equal rows."""
    found: dict[bytes, int] = {}
    return np.array([found.setdefault(row.tobytes(), len(found)) for row in block], dtype=np.int64)


def _try_out(
    rest: Moments,
    folds: list[tuple[Tensor, Tensor, Positives]],
    parts: list[Moments],
    parameters: Parameters,
    dims: tuple[int, int],
    progress: Progress | None,
) -> list[Trial]:
    """Try ridges and powers that are to be chosen on each fold, trained on all the others."""
    scale = (1.0, 1.0) if parameters.relative_ridge else _mean_variances(sum(parts, rest), dims)
    least = parameters.ridge or (LEAST_RIDGE * scale[0], LEAST_RIDGE * scale[1])
    held = []
    for i, (x, y, positives) in enumerate(folds):
        train = sum(parts[:i] + parts[i + 1 :], rest)
        unit = _mean_variances(train, dims) if parameters.relative_ridge else (1.0, 1.0)
        k = parameters.n_components or min(*dims, train.count - 1)
        held.append(HeldOut(train, (x, y), positives, k, unit, least))
    powers = POWERS if parameters.power is None else (parameters.power,)
    if parameters.ridge is not None:
        return try_out(held, parameters.ridge, powers)
    return search_ridges(held, powers, scale, progress and partial(progress, "ridges"))


def _mean_variances(moments: Moments, dims: tuple[int, int]) -> tuple[float, float]:
    """Mean variance over the features of each view; a rotation leaves their sum unchanged."""
    total_x, total_y = moments.xx.diagonal().sum(), moments.yy.diagonal().sum()
    freedom = moments.count - 1
    return float(total_x) / freedom / dims[0], float(total_y) / freedom / dims[1]


def _lift(projection: Tensor, span: SampleSpan | None) -> Tensor:
    return projection if span is None else torch.from_numpy(span.lift(projection.numpy()))
