"""Classes that no training pair showed: linear CCA twice, and how well such classes are found."""

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
from ccal.data import Pairs, Rows
from ccal.encoders import FrontEnd, LinearTower
from ccal.encoders.linear import signed_root
from ccal.errors import InputError
from ccal.evaluation import ClassReport, class_average_precision, class_means, evaluate_classes
from ccal.model import DualEncoder
from ccal.neighbours import mean_of_neighbours
from ccal.training.features import PairFeatures
from ccal.training.methods import fit_front_ends
from ccal.training.scoring import shared_view
from ccal.training.settings import Settings

__all__ = ["ZeroShot", "ZeroShotOptions", "evaluate_zero_shot", "train_zero_shot"]

# Ridges of CCA between features and classes, in units of a view's mean variance: the features need
# one, and the classes only so much that their covariance can be inverted.
_CLASS_RIDGE = (1.0, 1e-3)


@dataclass(frozen=True, kw_only=True)
class ZeroShotOptions:
    """What `train_zero_shot` chooses from, by AP@k on validation classes.

    Args:
        dims: of the common space.
        ridges: of CCA, for x and y, in units of the view's mean variance.
        powers: scores are multiplied by correlation^power.
        class_shares: the y of a training pair becomes (1 - share) y + share * mean y of its class.
        neighbours: over which the embedding of a candidate is averaged; 1 is none.
        root: square roots take the place of the features of x.
        k: of AP@k.

    `ZeroShotOptions.classic()` is linear CCA as in the books.
    """

    dims: tuple[int, ...] = (32, 64, 96)
    ridges: tuple[tuple[float, float], ...] = ((1.0, 0.1), (3.0, 1.0), (10.0, 3.0))
    powers: tuple[float, ...] = (0.0, 1.0, 2.0)
    class_shares: tuple[float, ...] = (0.0, 0.5)
    neighbours: tuple[int, ...] = (10, 20, 30, 40)
    root: bool = True
    k: int = 50

    @classmethod
    def classic(cls, **changes: Any) -> ZeroShotOptions:
        """Linear CCA with 64 dimensions and nothing but its ridge to choose."""
        plain: dict[str, Any] = {
            "dims": (64,),
            "ridges": ((0.1, 0.1), (0.3, 0.3), (1.0, 0.1), (1.0, 1.0), (3.0, 1.0), (10.0, 3.0)),
            "powers": (0.0,),
            "class_shares": (0.0,),
            "neighbours": (1,),
            "root": False,
        }
        return cls(**{**plain, **changes})


@dataclass(frozen=True)
class ZeroShot:
    """A model, and the space in which candidates of one class, seen or not, are neighbours.

    Attributes:
        model: linear towers from CCA between x and y.
        relatives: linear map of the features of x from CCA between x and the training classes,
            which is Fisher's discriminant analysis.
        neighbours: over which the embedding of a candidate is averaged.
        facts: what was chosen, and its AP@k on the validation classes.
    """

    model: DualEncoder
    relatives: LinearTower
    neighbours: int
    facts: dict[str, Any]

    @torch.no_grad()
    def candidates(self, items: Tensor | NDArray[Any] | Rows) -> Tensor:
        """Embeddings (n, k) of all x (n, features) of a collection, to be searched with a y."""
        embedded = self.model.encode(self.model.modalities[0], items)
        if self.neighbours == 1:
            return embedded
        return mean_of_neighbours(
            embedded, self.relatives(_float(items)), neighbours=self.neighbours
        )

    def evaluate(self, pairs: Pairs, *, k: int = 50) -> ClassReport:
        """As `evaluate_zero_shot`, with all x of `pairs` as the collection."""
        return evaluate_zero_shot(self.model, pairs, k=k, candidates=self.candidates)


def evaluate_zero_shot(
    model: DualEncoder,
    pairs: Pairs,
    *,
    k: int = 50,
    candidates: Callable[[Rows], Tensor] | None = None,
) -> ClassReport:
    """Classes find their x with their y, and an x finds its class; `pairs` have labels.

    x are the pictures, y the captions. Pairs of one group share their x, which is a candidate once.
    `candidates` embeds all x (n, features) together; by default the model embeds each by itself.

    >>> same = LinearTower(4, 4)
    >>> same.start(np.zeros(4), np.eye(4))
    >>> model = DualEncoder(dim=4, projection="none", image=same, text=same)
    >>> rows = np.repeat(np.eye(4), 3, axis=0)
    >>> pairs = Pairs({"image": rows, "text": rows}, label=np.repeat(range(4), 3))
    >>> evaluate_zero_shot(model, pairs, k=3).ap
    100.0
    """
    labels = _labels(pairs)
    if pairs.names != model.modalities:
        raise InputError(
            f"The model joins {' and '.join(model.modalities)}, "
            f"the pairs are of {' and '.join(pairs.names)}."
        )
    name_x, name_y = pairs.names
    shared, _, first = shared_view(pairs)
    if shared == 1:
        first = np.arange(len(pairs))
    x = pairs.column(name_x).select(first)
    items = model.encode(name_x, x) if candidates is None else candidates(x)
    queries = model.encode(name_y, pairs.column(name_y))
    return evaluate_classes(queries, labels, items, labels[torch.from_numpy(first)], k=k)


def train_zero_shot(
    pairs: Pairs,
    valid: Pairs,
    options: ZeroShotOptions | None = None,
    settings: Settings | None = None,
) -> ZeroShot:
    """The linear model that finds validation classes best; nothing is trained step by step.

    Linear CCA between x and the mean y of their groups gives the common space, linear CCA between x
    and the classes the one in which candidates are neighbours. `valid` holds classes that `pairs`
    do not. x are features; of `settings` only those of TF-IDF count.

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
    front_ends = fit_front_ends((settings or Settings()).changed(method="linear"), pairs)
    seen, held = (_Items.of(part, front_ends, options.root) for part in (pairs, valid))
    relatives = _relatives(seen, options.root)
    neighbours = {
        count: _averaged(relatives(held.given), count) for count in sorted(set(options.neighbours))
    }
    best: tuple[float, dict[str, Any], CCA] | None = None
    for share, ridge in product(options.class_shares, options.ridges):
        dims = [d for d in options.dims if d <= _largest(seen)] or [_largest(seen)]
        cca = CCA(max(dims), ridge=ridge, power=0.0).fit(seen.x, seen.mixed(share))
        x, y = (torch.from_numpy(view).float() for view in cca.transform(held.x, held.y))
        for dim, power in product(dims, options.powers):
            weights = torch.from_numpy(cca.correlations_[:dim] ** power).float()
            a, b = x[:, :dim] * weights, y[:, :dim] * weights
            for count, averaged in neighbours.items():
                ap = class_average_precision(b, held.labels, averaged(a), held.labels, k=options.k)
                if best is None or ap > best[0]:
                    chosen = {
                        "dim": dim,
                        "ridge": list(ridge),
                        "power": power,
                        "class share": share,
                        "neighbours": count,
                        "root": options.root,
                        f"validation AP@{options.k}": round(ap, 2),
                    }
                    best = ap, chosen, cca
    assert best is not None
    _, facts, cca = best
    model = _model(cca, facts, pairs.names, front_ends)
    return ZeroShot(model, relatives, facts["neighbours"], facts)


@dataclass(frozen=True)
class _Items:
    """Features of n things, one for each group: x (n, d_x), rooted or not, and the mean y (n, d_y).

    `given` are the features of x as they came.
    """

    given: Tensor
    x: NDArray[np.float32]
    y: NDArray[np.float32]
    labels: Tensor

    @classmethod
    def of(cls, pairs: Pairs, front_ends: dict[str, FrontEnd], root: bool) -> _Items:
        labels, features = _labels(pairs), PairFeatures(pairs, front_ends)
        groups = np.arange(len(pairs)) if features.groups is None else features.groups
        _, first = np.unique(groups, return_index=True)
        parts = [y for _, y in features.batches()]
        y, _ = class_means(torch.cat(parts), groups)
        x, _ = features.batch(first)
        rooted = signed_root(x) if root else x
        return cls(x, rooted.numpy(), y.numpy(), labels[torch.from_numpy(first)])

    def mixed(self, share: float) -> NDArray[np.float32]:
        """y, drawn towards the mean of its class."""
        means, classes = class_means(self.y, self.labels)
        of_class = means[torch.searchsorted(classes, self.labels)]
        return torch.from_numpy(self.y).lerp(of_class, share).numpy()


def _relatives(seen: _Items, root: bool) -> LinearTower:
    """CCA between x and the classes, as a tower."""
    classes, place = seen.labels.unique(return_inverse=True)
    if len(classes) < 2:
        raise InputError(f"Training needs pairs of at least 2 classes, got {len(classes)}.")
    indicator = torch.eye(len(classes))[place].numpy()
    dim = min(len(classes) - 1, seen.x.shape[1], len(place) - 1)
    cca = CCA(dim, ridge=_CLASS_RIDGE, power=0.0).fit(seen.x, indicator)
    return _tower(cca.x_mean_, cca.x_projection_, root)


def _averaged(features: Tensor, count: int) -> Callable[[Tensor], Tensor]:
    """Embeddings to their means over neighbours in `features`."""
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
    tower.start(mean, projection)
    return tower.eval().requires_grad_(False)


def _labels(pairs: Pairs) -> Tensor:
    if pairs.label is None:
        raise InputError("The pairs have no labels, so there are no classes to find; pass label=.")
    return torch.from_numpy(np.unique(pairs.label, return_inverse=True)[1])


def _largest(seen: _Items) -> int:
    return min(int(seen.x.shape[1]), int(seen.y.shape[1]), len(seen.labels) - 1)


def _float(items: Tensor | NDArray[Any] | Rows) -> Tensor:
    rows = items if isinstance(items, Tensor) else torch.from_numpy(np.asarray(items[:]))
    return rows.float()
