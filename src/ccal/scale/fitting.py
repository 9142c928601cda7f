"""Exact linear CCA of a dataset of shards, by map-reduce: moments of each shard, added up."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ccal.bounds import Whole, check
from ccal.cca.fitting import Fitted, Parameters, different, equal_rows, fit_moments
from ccal.cca.linear import CCA
from ccal.cca.statistics import Moments
from ccal.cca.views import Float64, chunk_size, open_pair, stream
from ccal.encoders.dense import LinearTower
from ccal.errors import InputError
from ccal.evaluation.calibration import calibrate
from ccal.model import DualEncoder
from ccal.numbering import Integers
from ccal.scale.engines import Engine, Work
from ccal.scale.formats import Batch
from ccal.scale.shards import Dataset, numbers_of
from ccal.scale.tasks import ShardTask

Progress = Callable[[str, int, int], None]
Part = tuple[Moments | None, Float64]
"""The moments of a shard without its held-out rows, and these (h, d_x + d_y)."""


@dataclass(frozen=True)
class LinearFit:
    """A model of linear CCA, and the estimator that it was made from."""

    model: DualEncoder
    cca: CCA


@dataclass(frozen=True)
class _Task(ShardTask):
    """The rows of a shard that are held out, (h,) ascending."""

    held: Integers


def fit_linear(
    dataset: Dataset,
    x: str,
    y: str,
    engine: Engine[Any],
    *,
    names: tuple[str, str] | None = None,
    dim: int = 128,
    ridge: float | tuple[float, float] | Literal["auto"] = "auto",
    power: float | Literal["auto"] = "auto",
    seed: int = 0,
    progress: Progress | None = None,
) -> LinearFit:
    """Fit linear CCA on the columns `x` and `y` of a dataset, whose rows are pairs.

    Every row is read once. The result is that of `CCA.fit` on one machine but for the order of
    additions, about 1e-13 of each number. The driver and each worker hold d x d statistics and one
    batch of rows, however many rows there are.

    Args:
        names: of the modalities; those of the columns by default.
        dim: dimensions of the common space, at most.
        ridge, power: those of `CCA`; "auto" chooses on held-out rows, which `seed` draws.
        progress: called as `progress("rows", done, total)` and `progress("ridges", tried, most)`.
    """
    dataset.check_columns((x, y))
    check("dim", dim, Whole(at_least=1))
    gathered = _Gathering(dataset, (x, y), engine, progress)
    most = max(1, min(dim, *gathered.dims, dataset.rows - 1))
    cca = CCA(most, ridge=ridge, power=power, random_state=seed)
    cca.fit_gathered(dataset.rows, gathered.dims, gathered, progress=progress)
    model = _model(cca, gathered, names or (x, y))
    return LinearFit(model, cca)


class _Gathering:
    """Reads a dataset by an engine; keeps what it found, for the scale and the calibration."""

    def __init__(
        self,
        dataset: Dataset,
        columns: tuple[str, str],
        engine: Engine[Any],
        progress: Progress | None,
    ) -> None:
        self._dataset, self._columns, self._engine = dataset, columns, engine
        self._progress = progress
        first = dataset.shards[0]
        batch = next(iter(first.batches(columns, 1)), None)
        if batch is None:
            raise InputError(f"{dataset.location}: the shard {first.name} has no rows.")
        widths = [numbers_of(batch, name, first).shape[1] for name in columns]
        self.dims = widths[0], widths[1]
        self.rest: Moments
        self.folds: list[tuple[Tensor, Tensor]] = []

    def __call__(self, sets: Sequence[Integers]) -> tuple[Moments, list[tuple[Tensor, Tensor]]]:
        held = np.sort(np.concatenate([np.empty(0, np.int64), *sets]))
        starts, total = self._dataset.starts, self._dataset.rows
        ends = [*np.searchsorted(held, starts), len(held)]
        tasks = [
            _Task(shard, held[ends[n] : ends[n + 1]] - starts[n])
            for n, shard in enumerate(self._dataset.shards)
        ]
        samples = np.empty((len(held), sum(self.dims)))
        done, rest = 0, None

        def count(more: int) -> None:
            nonlocal done
            done += more
            if self._progress is not None:
                self._progress("rows", done, total)

        start = partial(_begin, self._columns, self.dims)
        for number, (moments, rows) in self._engine.map(start, tasks, count):
            samples[ends[number] : ends[number + 1]] = rows
            if moments is not None:
                rest = moments if rest is None else rest + moments
        if rest is None:
            raise InputError(f"{self._dataset.location} has no rows to learn from.")
        folds = [torch.from_numpy(samples[np.searchsorted(held, rows)]) for rows in sets]
        d = self.dims[0]
        self.rest, self.folds = rest, [(fold[:, :d], fold[:, d:]) for fold in folds]
        return rest, self.folds


def _begin(columns: tuple[str, str], dims: tuple[int, int]) -> Work[_Task, Part]:
    """What a worker does with each shard."""
    return partial(_moments_of, columns, dims)


def _moments_of(
    columns: tuple[str, str], dims: tuple[int, int], task: _Task
) -> Generator[int, None, Part]:
    samples = np.empty((len(task.held), sum(dims)))
    total: Moments | None = None

    def add(batch: Batch, start: int) -> None:
        nonlocal total
        x, y = (numbers_of(batch, name, task.shard) for name in columns)
        first, last = np.searchsorted(task.held, (start, start + len(x)))
        inside = task.held[first:last] - start
        views = open_pair(x, y, *dims)
        samples[first:last] = np.hstack([view.read_rows(inside) for view in views])
        if len(inside) < len(x):
            more, _ = stream(*views, [inside])
            total = more if total is None else total + more

    for rows, _ in task.read(columns, chunk_size(sum(dims)), add):
        yield rows
    return total, samples


def _model(cca: CCA, gathered: _Gathering, names: tuple[str, str]) -> DualEncoder:
    """The projections as two towers, with what held-out pairs say of scores."""
    moments = gathered.rest + sum(
        (Moments.of(*fold) for fold in gathered.folds[1:]),
        Moments.of(*gathered.folds[0]) if gathered.folds else _nothing(gathered.dims),
    )
    weights = cca.correlations_**cca.power_
    towers: dict[str, Any] = {}
    for name, mean, projection, products in (
        (names[0], cca.x_mean_, cca.x_projection_, moments.xx.numpy()),
        (names[1], cca.y_mean_, cca.y_projection_, moments.yy.numpy()),
    ):
        weighted = projection * weights
        # A mean variance of 1 over the scores changes no cosine and suits float32.
        variance = np.einsum("dk,de,ek->", weighted, products, weighted, optimize=True)
        scale = float(np.sqrt(variance / moments.count / weighted.shape[1])) or 1.0
        spread = float(np.sqrt(products.trace() / moments.count / len(products))) or 1.0
        towers[name] = LinearTower(*weighted.shape)
        towers[name].initialise(mean, weighted / scale, spread)
    model = DualEncoder(dim=len(weights), projection="none", **towers).eval()
    if gathered.folds:
        model.calibrations = _calibrations(cca, gathered, names)
    return model


def _calibrations(cca: CCA, gathered: _Gathering, names: tuple[str, str]) -> dict[str, Any]:
    """How to read scores, from held-out pairs and CCA of all others with the chosen settings."""
    parameters = replace(
        Parameters.of(cca.get_params()), ridge=cca.ridge_, power=cca.power_, relative_ridge=False
    )
    fitted: Fitted = fit_moments(gathered.rest, parameters)
    x, y = (torch.cat(parts) for parts in zip(*gathered.folds, strict=True))
    x, y, positives = different((x, y), [equal_rows(view.numpy()) for view in (x, y)], None)
    weights = fitted.correlations**fitted.power
    scores = [
        (view - torch.from_numpy(mean)) @ torch.from_numpy(projection * weights)
        for view, mean, projection in (
            (x, fitted.x_mean, fitted.x_projection),
            (y, fitted.y_mean, fitted.y_projection),
        )
    ]
    return calibrate(names, scores[0], scores[1], (positives.x_rows, positives.y_rows))


def _nothing(dims: tuple[int, int]) -> Moments:
    return Moments.of(*(torch.empty(0, dim) for dim in dims))
