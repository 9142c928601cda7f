"""Train a zero-shot model: linear CCA between x and y, and between x and the training classes.

`train_zero_shot` tries the values of `ZeroShotOptions`; validation classes choose among them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccal.cca import CCA
from ccal.data import Pairs
from ccal.encoders import FrontEnd, LinearTower
from ccal.encoders.dense import signed_root
from ccal.errors import InputError
from ccal.evaluation import class_average_precision, class_means, reachable_k
from ccal.evaluation.hubs import mean_of_neighbours
from ccal.model import DualEncoder
from ccal.training.batches import PairFeatures
from ccal.training.methods import make_front_ends
from ccal.training.scoring import labels_of
from ccal.training.settings import Settings
from ccal.training.zero_shot import ZeroShot


@dataclass(frozen=True, kw_only=True)
class ZeroShotOptions:
    """The values that `train_zero_shot` tries; AP@k on validation classes chooses among them.

    Args:
        dims: dimensions of the common space.
        ridges: of CCA, for x and y, in units of the view's mean variance.
        powers: CCA's coordinates are weighted by correlation^power.
        class_shares: the y of a training pair becomes (1 - share) y + share * mean y of its class.
        neighbours: numbers of candidates over which the embedding of one is averaged; 1 is none.
        pair_count: two neighbouring words of y are a feature of their own if the training texts
            have them so often; 0 for no such features.
        root: CCA sees square roots of the features of x.
        k: of AP@k; if no class has so many candidates, the largest class sets k.

    `ZeroShotOptions.classic()` is linear CCA as in the books.
    """

    dims: tuple[int, ...] = (32, 64, 96)
    ridges: tuple[tuple[float, float], ...] = ((1.0, 0.1), (3.0, 1.0), (10.0, 3.0))
    powers: tuple[float, ...] = (0.0, 1.0, 2.0)
    class_shares: tuple[float, ...] = (0.0, 0.5)
    neighbours: tuple[int, ...] = (10, 20, 30, 40)
    pair_count: int = 100
    root: bool = True
    k: int = 50

    @classmethod
    def classic(cls, **changes: Any) -> ZeroShotOptions:
        """Linear CCA with 64 dimensions; only the ridge is chosen."""
        plain: dict[str, Any] = {
            "dims": (64,),
            "ridges": ((0.1, 0.1), (0.3, 0.3), (1.0, 0.1), (1.0, 1.0), (3.0, 1.0), (10.0, 3.0)),
            "powers": (0.0,),
            "class_shares": (0.0,),
            "neighbours": (1,),
            "pair_count": 0,
            "root": False,
        }
        return cls(**{**plain, **changes})


# Of CCA between features and classes, in units of a view's mean variance. The classes need only
# enough for their covariance to be inverted.
_CLASS_RIDGE = (1.0, 1e-3)


def train_zero_shot(
    pairs: Pairs,
    valid: Pairs,
    options: ZeroShotOptions | None = None,
    settings: Settings | None = None,
) -> ZeroShot:
    """The linear model that finds validation classes best, in closed form.

    Linear CCA between x and the mean y of their groups gives the common space; linear CCA between x
    and the classes gives the space in which candidates are neighbours. `valid` holds classes that
    `pairs` do not. x are features or image files; only the front ends take something from
    `settings`.

    >>> rng = np.random.default_rng(0)
    >>> meaning, label = rng.normal(size=(40, 8)), np.repeat(range(40), 10)
    >>> views = {n: meaning[label] @ rng.normal(size=(8, 20)) for n in ("image", "text")}
    >>> pairs = Pairs({n: view + rng.normal(size=(400, 20)) for n, view in views.items()},
    ...               label=label)
    >>> found = train_zero_shot(pairs[:300], pairs[300:350], ZeroShotOptions(root=False, k=10))
    >>> found.evaluate(pairs[350:], k=10).ap > 90
    True
    """
    options = options or ZeroShotOptions()
    if pairs.names != valid.names:
        raise InputError(f"The training pairs are of {pairs.names}, but valid of {valid.names}.")
    linear = (settings or Settings()).changed(method="linear")
    front_ends = make_front_ends(linear, pairs, pair_count=options.pair_count)
    seen = _Items.of(pairs, PairFeatures(pairs, front_ends, fit=True), options.root)
    held = _Items.of(valid, PairFeatures(valid, front_ends), options.root)
    discriminant = _discriminant(seen, options.root)
    neighbours = {
        count: _averaged(discriminant(held.given), count)
        for count in sorted(set(options.neighbours))
    }
    k = reachable_k(held.labels, options.k)
    best: tuple[float, dict[str, Any], CCA] | None = None
    for share, ridge in product(options.class_shares, options.ridges):
        dims = [d for d in options.dims if d <= _largest(seen)] or [_largest(seen)]
        cca = CCA(max(dims), ridge=ridge, power=0.0).fit(seen.x, seen.mixed(share))
        x, y = (torch.from_numpy(view).float() for view in cca.transform(held.x, held.y))
        for dim, power in product(dims, options.powers):
            weights = torch.from_numpy(cca.correlations_[:dim] ** power).float()
            a, b = x[:, :dim] * weights, y[:, :dim] * weights
            for count, averaged in neighbours.items():
                ap = class_average_precision(b, held.labels, averaged(a), held.labels, k=k)
                if best is None or ap > best[0]:
                    chosen = {
                        "dim": dim,
                        "ridge": list(ridge),
                        "power": power,
                        "class share": share,
                        "neighbours": count,
                        "pair count": options.pair_count,
                        "root": options.root,
                        f"validation AP@{k}": round(ap, 2),
                    }
                    best = ap, chosen, cca
    assert best is not None
    _, facts, cca = best
    model = _model(cca, facts, pairs.names, front_ends)
    return ZeroShot(model, discriminant, facts["neighbours"], facts)


@dataclass(frozen=True)
class _Items:
    """One item for each of n groups: its x (n, d_x), the mean of its y (n, d_y), its label (n,).

    `given` are the features of x, `x` the same or their square roots.
    """

    given: Tensor
    x: NDArray[np.float32]
    y: NDArray[np.float32]
    labels: Tensor

    @classmethod
    def of(cls, pairs: Pairs, features: PairFeatures, root: bool) -> _Items:
        labels, _ = labels_of(pairs)
        groups = np.arange(len(pairs)) if features.groups is None else features.groups
        _, first = np.unique(groups, return_index=True)
        parts = [y for _, y in features.batches()]
        y, _ = class_means(torch.cat(parts), groups)
        x, _ = features.batch(first)
        rooted = signed_root(x) if root else x
        return cls(x, rooted.numpy(), y.numpy(), labels[torch.from_numpy(first)])

    def mixed(self, share: float) -> NDArray[np.float32]:
        """(1 - share) y + share * mean y of the class."""
        means, classes = class_means(self.y, self.labels)
        of_class = means[torch.searchsorted(classes, self.labels)]
        return torch.from_numpy(self.y).lerp(of_class, share).numpy()


def _discriminant(seen: _Items, root: bool) -> LinearTower:
    """The projection of x from CCA between x and the classes."""
    classes, number = seen.labels.unique(return_inverse=True)
    if len(classes) < 2:
        raise InputError(f"Training needs pairs of at least 2 classes, got {len(classes)}.")
    indicator = torch.eye(len(classes))[number].numpy()
    dim = min(len(classes) - 1, seen.x.shape[1], len(number) - 1)
    cca = CCA(dim, ridge=_CLASS_RIDGE, power=0.0).fit(seen.x, indicator)
    return _tower(cca.x_mean_, cca.x_projection_, root)


def _averaged(features: Tensor, count: int) -> Callable[[Tensor], Tensor]:
    """A function that averages embeddings over the neighbours in `features`."""
    if count == 1:
        return lambda embeddings: embeddings
    features = features.detach()
    return lambda embeddings: mean_of_neighbours(embeddings, features, neighbours=count)


def _model(
    cca: CCA, facts: dict[str, Any], names: tuple[str, str], front_ends: dict[str, FrontEnd]
) -> DualEncoder:
    dim = facts["dim"]
    weights = cca.correlations_[:dim] ** facts["power"]
    x = _tower(cca.x_mean_, cca.x_projection_[:, :dim] * weights, facts["root"])
    y = _tower(cca.y_mean_, cca.y_projection_[:, :dim] * weights, root=False)
    towers: dict[str, Any] = dict(zip(names, (x, y), strict=True))
    return DualEncoder(dim=dim, projection="none", front_ends=front_ends, **towers).eval()


def _tower(mean: NDArray[Any], projection: NDArray[Any], root: bool) -> LinearTower:
    tower = LinearTower(*projection.shape, root=root)
    tower.initialise(mean, projection)
    return tower.eval().requires_grad_(False)


def _largest(seen: _Items) -> int:
    return min(int(seen.x.shape[1]), int(seen.y.shape[1]), len(seen.labels) - 1)
