"""Linear CCA for classes that training does not see: the method "zero-shot".

`choose_zero_shot` tries the values of `ZeroShotOptions`, and validation classes choose among them;
the `ZeroShotChoice` makes the model in closed form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
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
from ccal.evaluation import class_average_precision, class_means, evenly_spaced, reachable_k
from ccal.evaluation.hubs import BANK, HubCorrection, NeighbourMean, mean_of_neighbours
from ccal.model import DualEncoder
from ccal.training.batches import PairFeatures
from ccal.training.settings import Settings

# Of CCA between features and classes, in units of a view's mean variance. The classes need only
# enough for their covariance to be inverted.
_CLASS_RIDGE = (1.0, 1e-3)


@dataclass(frozen=True, kw_only=True)
class ZeroShotOptions:
    """The values to try; AP@k on validation classes chooses among them.

    Args:
        dims: dimensions of the common space.
        ridges: of CCA, for x and y, in units of the view's mean variance.
        powers: CCA's coordinates are weighted by correlation^power.
        class_shares: the y of a training pair becomes (1 - share) y + share * mean y of its class.
        neighbours: numbers of candidates over which the embedding of one is averaged; 1 is none.
        hub_weights: of the hub correction of single y, which is stronger for classes; 0 for none.
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
    hub_weights: tuple[float, ...] = (0.0, 0.1, 0.2)
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
            "hub_weights": (0.0,),
            "pair_count": 0,
            "root": False,
        }
        return cls(**{**plain, **changes})

    @classmethod
    def of(cls, settings: Settings) -> ZeroShotOptions:
        """The options that settings leave open: all but their dim, root_x and hub_correction."""
        options = cls(root=settings.root_x != "no")
        if settings.hub_correction == "no":
            options = replace(options, hub_weights=(0.0,))
        return options if settings.dim is None else replace(options, dims=(settings.dim,))


@dataclass(frozen=True, kw_only=True)
class ZeroShotChoice:
    """The options that found the validation classes best; `model` makes the model in closed form.

    Linear CCA between x and the mean y of their groups gives the common space; linear CCA between x
    and the classes gives the space in which candidates are neighbours.

    Attributes:
        dim, ridge, power, class_share, neighbours, hub_weight, pair_count, root: see
            `ZeroShotOptions`.
        k: of AP@k.
        ap: AP@k in % of the validation classes.
    """

    dim: int
    ridge: tuple[float, float]
    power: float
    class_share: float
    neighbours: int
    hub_weight: float
    pair_count: int
    root: bool
    k: int
    ap: float

    def model(
        self, names: tuple[str, str], pairs: PairFeatures, front_ends: dict[str, FrontEnd]
    ) -> DualEncoder:
        """The model of these training pairs."""
        items = ClassItems.of(pairs, self.root)
        cca = CCA(self.dim, ridge=self.ridge, power=0.0).fit(items.x, items.mixed(self.class_share))
        weights = cca.correlations_**self.power
        towers: dict[str, Any] = {
            names[0]: _tower(cca.x_mean_, cca.x_projection_ * weights, self.root),
            names[1]: _tower(cca.y_mean_, cca.y_projection_ * weights, root=False),
        }
        model = DualEncoder(dim=self.dim, projection="none", front_ends=front_ends, **towers)
        if self.neighbours > 1:
            model.neighbours = NeighbourMean(_discriminant(items, self.root), self.neighbours)
        if self.hub_weight:
            rows = evenly_spaced(len(items.labels), BANK)
            x, y = items.given[rows], torch.from_numpy(items.y)[rows]
            bank = model.encode(names[0], x), model.encode(names[1], y)
            model.correct_hubs(bank, weight=self.hub_weight)
        return model.eval()

    def facts(self) -> dict[str, Any]:
        """The choice as plain data."""
        return {
            "dim": self.dim,
            "ridge": list(self.ridge),
            "power": self.power,
            "class share": self.class_share,
            "neighbours": self.neighbours,
            "hub weight": self.hub_weight,
            "pair count": self.pair_count,
            "root": self.root,
            f"validation AP@{self.k}": round(self.ap, 2),
        }

    def words(self, names: tuple[str, str]) -> str:
        """The choice as a sentence."""
        x, y = names
        parts = [
            f"{self.dim} dimensions",
            f"ridge {self.ridge[0]:g} and {self.ridge[1]:g}",
            f"weighted by correlation^{self.power:g}",
        ]
        if self.class_share:
            parts.append(f"{self.class_share:.0%} of each {y} is the mean of its class")
        if self.neighbours > 1:
            parts.append(f"candidates averaged over {self.neighbours} neighbours")
        if self.hub_weight:
            parts.append(f"hub correction of weight {self.hub_weight:g}")
        if self.root:
            parts.append(f"square roots of {x}")
        return f"{', '.join(parts)}; AP@{self.k} {self.ap:.1f} of the validation classes"


def choose_zero_shot(
    seen: PairFeatures,
    held: PairFeatures,
    options: ZeroShotOptions,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ZeroShotChoice:
    """Fit linear CCA to `seen` with every option; the classes of `held` choose.

    `progress` is told how many of the fits are done.
    """
    items, others = (ClassItems.of(features, options.root) for features in (seen, held))
    discriminated = _discriminant(items, options.root)(others.given)
    queries = torch.cat([y.flatten(1) for _, y in held.batches()]).numpy()
    assert held.classes is not None
    query_labels = torch.from_numpy(held.classes)
    k = reachable_k(others.labels, options.k)
    largest = min(items.x.shape[1], items.y.shape[1], len(items.labels) - 1)
    dims = [dim for dim in options.dims if dim <= largest] or [largest]
    bank = evenly_spaced(len(items.labels), BANK).numpy()
    best: ZeroShotChoice | None = None
    fits = list(product(options.class_shares, options.ridges))
    for number, (share, ridge) in enumerate(fits, start=1):
        cca = CCA(max(dims), ridge=ridge, power=0.0).fit(items.x, items.mixed(share))
        held_out, kept = (
            cca.transform(others.x, queries),
            cca.transform(items.x[bank], items.y[bank]),
        )
        views = [torch.from_numpy(view).float() for view in (*held_out, *kept)]
        for dim, power in product(dims, options.powers):
            weights = torch.from_numpy(cca.correlations_[:dim] ** power).float()
            x, y, *kept = (view[:, :dim] * weights for view in views)
            hubs = HubCorrection.of(*kept)
            averaged = {
                count: mean_of_neighbours(x, discriminated, neighbours=count)
                for count in sorted(set(options.neighbours))
            }
            for weight in options.hub_weights:
                hubs.weight = weight
                ask = hubs.correct_classes if weight else class_means
                classes, labels = ask(y, query_labels)
                for count, found in averaged.items():
                    shown = hubs.correct_x(found) if weight else found
                    ap = class_average_precision(classes, labels, shown, others.labels, k=k)
                    if best is None or ap > best.ap:
                        best = ZeroShotChoice(
                            dim=dim,
                            ridge=ridge,
                            power=power,
                            class_share=share,
                            neighbours=count,
                            hub_weight=weight,
                            pair_count=options.pair_count,
                            root=options.root,
                            k=k,
                            ap=ap,
                        )
        progress(number, len(fits))
    assert best is not None
    return best


def check_unseen(pairs: Pairs, valid: Pairs) -> None:
    """Refuse training and validation pairs without labels, or of the same classes."""
    what_to_do = (
        "--label COLUMN --split-by label, or --layout reed; in Python, "
        'Source(label=COLUMN, split_by="label"), or Pairs(label=...) with disjoint_split'
    )
    if pairs.label is None or valid.label is None:
        raise InputError(
            "The method zero-shot learns from classes, and the pairs have no labels. Give them and "
            f"split by them: {what_to_do}."
        )
    classes = np.unique(valid.label)
    if len(shared := np.intersect1d(pairs.label, classes)):
        raise InputError(
            "The method zero-shot chooses by classes that training does not see, and "
            f"{len(shared):,} of {len(classes):,} validation classes are in the training pairs, "
            f"too, such as {str(shared[0])!r}. Split by class: {what_to_do}."
        )


@dataclass(frozen=True)
class ClassItems:
    """One item for each of n groups: its x (n, d_x), the mean of its y (n, d_y), its label (n,).

    `given` are the features of x, `x` the same or their square roots.
    """

    given: Tensor
    x: NDArray[np.float32]
    y: NDArray[np.float32]
    labels: Tensor

    @classmethod
    def of(cls, features: PairFeatures, root: bool) -> ClassItems:
        """The items of pairs with labels; `root` takes square roots of x."""
        assert features.classes is not None
        groups = np.arange(len(features)) if features.groups is None else features.groups
        _, first = np.unique(groups, return_index=True)
        y, _ = class_means(torch.cat([y.flatten(1) for _, y in features.batches()]), groups)
        x = features.batch(first)[0].flatten(1)
        rooted = signed_root(x) if root else x
        return cls(x, rooted.numpy(), y.numpy(), torch.from_numpy(features.classes[first]))

    def mixed(self, share: float) -> NDArray[np.float32]:
        """(1 - share) y + share * mean y of the class."""
        means, classes = class_means(self.y, self.labels)
        of_class = means[torch.searchsorted(classes, self.labels)]
        return torch.from_numpy(self.y).lerp(of_class, share).numpy()


def _discriminant(items: ClassItems, root: bool) -> LinearTower:
    """The projection of x from CCA between x and the classes."""
    classes, number = items.labels.unique(return_inverse=True)
    if len(classes) < 2:
        raise InputError(f"Training needs pairs of at least 2 classes, got {len(classes)}.")
    indicator = torch.eye(len(classes))[number].numpy()
    dim = min(len(classes) - 1, items.x.shape[1], len(number) - 1)
    cca = CCA(dim, ridge=_CLASS_RIDGE, power=0.0).fit(items.x, indicator)
    return _tower(cca.x_mean_, cca.x_projection_, root)


def _tower(mean: NDArray[Any], projection: NDArray[Any], root: bool) -> LinearTower:
    tower = LinearTower(*projection.shape, root=root)
    tower.initialise(mean, projection)
    return tower.eval().requires_grad_(False)
