"""From two views and settings to a fitted linear CCA."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from ccal.cca.linear.canonical import NEGLIGIBLE, canonical
from ccal.cca.linear.parameters import Settings
from ccal.cca.linear.selection import POWERS, HeldOut, Trial, hold_out, search_ridges, try_out
from ccal.cca.linear.span import SampleSpan
from ccal.cca.linear.streaming import stream
from ccal.cca.linear.views import Float64, View
from ccal.cca.projections import fix_signs
from ccal.cca.statistics import Moments

__all__ = ["Solution", "fit_pairs", "solve"]


@dataclass(frozen=True)
class Solution:
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

    @property
    def x_map(self) -> Float64:
        """A with its columns weighted: centred samples times this are scores."""
        return self.x_projection * self.correlations**self.power

    @property
    def y_map(self) -> Float64:
        """B with its columns weighted."""
        return self.y_projection * self.correlations**self.power

    @classmethod
    def restore(cls, values: dict[str, Any]) -> Solution:
        """The solution with these fields, as read from a file."""
        # JSON has no tuples.
        search = [{**trial, "ridge": tuple(trial["ridge"])} for trial in values["search"]]
        solution = cls(**{**values, "ridge": tuple(values["ridge"]), "search": search})
        k = len(solution.correlations)
        for mean, projection in (
            (solution.x_mean, solution.x_projection),
            (solution.y_mean, solution.y_projection),
        ):
            if projection.shape != (len(mean), k) or not np.isfinite(projection).all():
                raise ValueError(f"projections of shape {projection.shape} do not fit.")
        return solution


def fit_pairs(x: View, y: View, settings: Settings) -> tuple[Solution, Moments | None]:
    """Fit on the rows of both views in one pass.

    The moments are returned too, unless a view was reduced to the span of its samples.
    """
    settings.components(x.dim, y.dim, x.rows)
    rows: list[NDArray[np.int64]] = []
    if settings.automatic:
        rows = hold_out(x.rows, settings.validation_fraction, settings.random_state)
    spans = tuple(SampleSpan(v) if v.dim > v.rows else None for v in (x, y))
    narrow_x, narrow_y = (
        view if span is None else span.coordinates for view, span in zip((x, y), spans, strict=True)
    )
    moments, folds = stream(
        narrow_x, narrow_y, rows, chunk_rows=settings.chunk_rows, verbose=settings.verbose
    )
    trials = list[Trial]()
    if settings.automatic:
        parts = [Moments.of(*fold) for fold in folds]
        trials = _try_out(moments, folds, parts, settings, (x.dim, y.dim))
        best = max(trials, key=lambda trial: trial.mrr)
        settings = settings.chosen(best.ridge, best.power)
        moments = sum(parts, moments)
    solution = solve(moments, settings, spans, trials)
    return solution, moments if spans == (None, None) else None


def solve(
    moments: Moments,
    settings: Settings,
    spans: tuple[SampleSpan | None, ...] = (None, None),
    trials: list[Trial] | None = None,
) -> Solution:
    """Solution of moments, which are those of the coordinates where a view has a span."""
    if settings.ridge is None or settings.power is None:
        raise AssertionError("settings must be chosen before they are used")
    span_x, span_y = spans
    dims = _dims(moments, spans)
    k = settings.components(*dims, moments.count)
    cov = moments.covariances()
    unit = _mean_variances(moments, dims) if settings.relative_ridge else (1.0, 1.0)
    ridge = (settings.ridge[0] * unit[0], settings.ridge[1] * unit[1])
    A, B, correlations, ridge = canonical(cov, ridge, k)
    if settings.n_components is None:
        k = max(1, int((correlations > NEGLIGIBLE * correlations[0]).sum()))
        A, B, correlations = A[:, :k], B[:, :k], correlations[:k]
    # The span of few distinct samples may have fewer directions than were asked for.
    missing = (0, k - len(correlations))
    A, B = (pad(_lift(part, span), missing) for part, span in zip((A, B), spans, strict=True))
    A, B, correlations = *fix_signs(A, B), pad(correlations, missing)
    return Solution(
        correlations.numpy(),
        A.numpy(),
        B.numpy(),
        moments.mean_x.numpy().copy() if span_x is None else span_x.mean,
        moments.mean_y.numpy().copy() if span_y is None else span_y.mean,
        ridge,
        settings.power,
        moments.count,
        [trial.as_dict() for trial in trials or []],
    )


def _try_out(
    rest: Moments,
    folds: list[tuple[Tensor, Tensor]],
    parts: list[Moments],
    settings: Settings,
    dims: tuple[int, int],
) -> list[Trial]:
    """Trials of whatever is left to choose, on each fold after training on all the others."""
    held = []
    for i, fold in enumerate(folds):
        train = sum(parts[:i] + parts[i + 1 :], rest)
        unit = _mean_variances(train, dims) if settings.relative_ridge else (1.0, 1.0)
        k = settings.n_components or min(*dims, train.count - 1)
        held.append(HeldOut(train, fold, k, unit))
    powers = POWERS if settings.power is None else (settings.power,)
    if settings.ridge is not None:
        return try_out(held, settings.ridge, powers)
    scale = (1.0, 1.0) if settings.relative_ridge else _mean_variances(sum(parts, rest), dims)
    report = _Report() if settings.verbose else None
    trials = search_ridges(held, powers, scale, report)
    if report is not None:
        report.end()
    return trials


class _Report:
    """How the search for a ridge goes, on one line of stderr."""

    def __init__(self) -> None:
        self._started, self._shown = time.monotonic(), 0.0

    def __call__(self, tried: int, most: int, best: float) -> None:
        now = time.monotonic()
        seconds = now - self._started
        self._line = (
            f"CCA: {tried} ridges tried of at most {most}, best MRR {best:.3f}, "
            f"at most {seconds / tried * (most - tried):.0f} s left"
        )
        if sys.stderr.isatty() and now - self._shown > 0.2:
            self._shown = now
            print(f"\r{self._line} ", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """The last line."""
        took = f"took {time.monotonic() - self._started:.0f} s"
        line = self._line.rsplit(",", 1)[0] + f", {took}"
        start = "\r\x1b[K" if sys.stderr.isatty() else ""
        print(f"{start}{line}", file=sys.stderr, flush=True)


def _dims(moments: Moments, spans: tuple[SampleSpan | None, ...]) -> tuple[int, int]:
    span_x, span_y = spans
    return (
        len(moments.mean_x) if span_x is None else span_x.view.dim,
        len(moments.mean_y) if span_y is None else span_y.view.dim,
    )


def _mean_variances(moments: Moments, dims: tuple[int, int]) -> tuple[float, float]:
    """Mean variance over the features of each view; a rotation leaves their sum unchanged."""
    freedom = moments.count - 1
    return (
        float(moments.xx.diagonal().sum()) / freedom / dims[0],
        float(moments.yy.diagonal().sum()) / freedom / dims[1],
    )


def _lift(projection: Tensor, span: SampleSpan | None) -> Tensor:
    return projection if span is None else torch.from_numpy(span.lift(projection.numpy()))
