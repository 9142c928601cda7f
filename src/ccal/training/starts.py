"""Towers that start as the two sides of linear CCA."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccal.cca import CCA
from ccal.encoders import LinearTower
from ccal.encoders.linear import signed_root
from ccal.training.comparison import clearly_better, reciprocal_ranks
from ccal.training.features import PairFeatures
from ccal.training.settings import Settings

__all__ = ["LinearStart", "choose_start"]

# As many as `CCA` wants before it chooses a ridge by itself.
_ENOUGH_TO_CHOOSE = 20


@dataclass(frozen=True)
class LinearStart:
    """Linear CCA as settled for some data.

    `root_x`, `root_y`: whether square roots take the place of a view's features. `ridge` (absolute,
    a pair) and `power`: None if they are still to be chosen.
    """

    root_x: bool = False
    root_y: bool = False
    ridge: tuple[float, float] | None = None
    power: float | None = None

    def cca(self, settings: Settings, pairs: PairFeatures, *, verbose: bool = False) -> CCA:
        """Linear CCA of these pairs; what is not settled is chosen on held-out ones of them."""
        dim = _dimension(settings, pairs)
        if self.ridge is None or self.power is None:
            seed = settings.seed
            cca = CCA(dim, ridge="auto", power="auto", random_state=seed, verbose=verbose)
        else:
            cca = CCA(dim, ridge=self.ridge, relative_ridge=False, power=self.power)
        return cca.fit(*self.views(pairs))

    def towers(self, settings: Settings, pairs: PairFeatures) -> tuple[LinearTower, LinearTower]:
        """The two sides of linear CCA of these pairs.

        Each is scaled to a mean variance of 1, which changes no cosine and gives a learning rate
        the same meaning on all data.
        """
        cca = self.cca(settings, pairs)
        X, Y = self.views(pairs)
        weights = cca.correlations_**cca.power_
        sides = (
            (X, cca.x_mean_, cca.x_projection_, self.root_x, settings.dropout_x),
            (Y, cca.y_mean_, cca.y_projection_, self.root_y, settings.dropout_y),
        )
        towers = []
        for view, mean, projection, root, dropout in sides:
            scores = (view - mean) @ (projection * weights)
            hidden = settings.residual if settings.tower == "residual" else 0
            tower = LinearTower(
                view.shape[1], len(weights), hidden=hidden, root=root, dropout=dropout
            )
            spread = float(np.sqrt(view.var(axis=0, dtype=np.float64).mean()))
            tower.start(mean, projection * weights / (float(scores.std()) or 1.0), spread or 1.0)
            towers.append(tower)
        return towers[0], towers[1]

    def views(self, pairs: PairFeatures) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """All features of both views, as CCA is to see them."""
        x, y = pairs.arrays()
        return _rooted(x, self.root_x), _rooted(y, self.root_y)


def choose_start(
    settings: Settings, seen: PairFeatures, held: PairFeatures, *, verbose: bool = False
) -> LinearStart:
    """Settle roots, ridges and weighting.

    Roots are as the settings say. "auto" (of "refined") takes them of a view whose features are
    given and never negative, such as activations and counts, unless CCA then finds the pairs `held`
    worse by more than their standard error. Ridges and weighting are chosen on held-out pairs of
    `seen`.
    """
    wanted = (settings.root_x, settings.root_y)
    start = LinearStart(root_x=wanted[0] == "yes", root_y=wanted[1] == "yes")
    if settings.method == "refined":
        for view, want in enumerate(wanted):
            if want == "auto" and seen.never_negative(view):
                rooted = replace(start, root_y=True) if view else replace(start, root_x=True)
                without, with_root = (_found(settings, s, seen, held) for s in (start, rooted))
                if not clearly_better(without, with_root):
                    start = rooted
    if len(seen) < _ENOUGH_TO_CHOOSE:
        return replace(start, ridge=(1.0, 1.0), power=1.0)
    cca = start.cca(settings, seen, verbose=verbose)
    return replace(start, ridge=cca.ridge_, power=cca.power_)


def _found(settings: Settings, start: LinearStart, *data: PairFeatures) -> Tensor:
    """Reciprocal ranks of held-out pairs by CCA with its default ridge."""
    seen, held = (start.views(features) for features in data)
    cca = CCA(_dimension(settings, data[0])).fit(*seen)
    x, y = (torch.from_numpy(view) for view in cca.transform(*held))
    return reciprocal_ranks(x, y)


def _dimension(settings: Settings, pairs: PairFeatures) -> int:
    """The dimension asked for, as far as there are features and pairs for it."""
    default = 128 if settings.method == "linear" else 256
    return min(settings.dim or default, *pairs.widths, len(pairs) - 1)


def _rooted(view: NDArray[np.float32], root: bool) -> NDArray[np.float32]:
    return signed_root(torch.from_numpy(view)).numpy() if root else view
