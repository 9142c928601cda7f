"""Zero-shot retrieval: find items of classes that no training pair showed.

`train_zero_shot` tries the values of `ZeroShotOptions`, and validation classes choose among them.
`ZeroShot` embeds queries and candidates and saves itself; `evaluate_zero_shot` measures how well a
model finds the items of a class, and the class of an item.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ccal.bounds import Whole, check
from ccal.cca import CCA
from ccal.data import Pairs, Rows
from ccal.encoders import LinearTower, build_tower, tower_config
from ccal.encoders.dense import signed_root
from ccal.errors import InputError
from ccal.evaluation import ClassReport, class_average_precision, class_means, reachable_k
from ccal.evaluation.calibration import calibrate
from ccal.evaluation.hubs import mean_of_neighbours
from ccal.files import load_part, save_part
from ccal.model import DualEncoder, Items, load
from ccal.ranks import unit_rows
from ccal.training.batches import PairFeatures
from ccal.training.methods import make_front_ends
from ccal.training.scoring import embed_pairs, labels_of
from ccal.training.settings import Settings

_CONFIG, _FORMAT, _BATCH = "zero-shot.json", 3, 1024
_WITH_MODEL_FOLDER = 2  # the format that had the model in a folder of its own


@dataclass(frozen=True)
class ZeroShot:
    """A model, and the space in which candidates of one class, seen or not, are neighbours.

    Attributes:
        model: linear towers from CCA between x and y.
        discriminant: linear map of the features of x, from CCA between x and the training classes,
            which is Fisher's discriminant analysis.
        neighbours: number of candidates over which the embedding of a candidate is averaged: those
            nearest to it after the discriminant.
        facts: the chosen options, and their AP@k on the validation classes.
    """

    model: DualEncoder
    discriminant: LinearTower
    neighbours: int
    facts: dict[str, Any]

    @torch.no_grad()
    def candidates(self, items: Items) -> Tensor:
        """Embeddings (n, dim) of all x of a collection, to be searched with a y.

        `items` are features (n, d) or raw items such as paths of images, as `model.encode` takes
        them. Neighbours are sought among them, so embed a collection as a whole.
        """
        name = self.model.modalities[0]
        starts = range(0, max(len(items), 1), _BATCH)
        # Both maps share the features, since those of raw images take long.
        features = torch.cat([self.model.features(name, items[s : s + _BATCH]) for s in starts])
        embedded = self.model.encode(name, features.float())
        return _averaged(embedded, self.discriminant(features.float()), self.neighbours)

    def search(self, queries: Items, candidates: Tensor, *, k: int = 10) -> tuple[Tensor, Tensor]:
        """The nearest of `candidates` for each y: cosines (q, k) and rows (q, k), best first.

        `queries` are features or raw items such as sentences; `candidates` (n, dim) come from the
        method of that name. If there are fewer than k, all are returned.
        """
        embedded = unit_rows(self.model.encode(self.model.modalities[1], queries), "queries")
        cosines = embedded @ unit_rows(candidates, "candidates").mT
        found = cosines.topk(min(k, cosines.shape[1]))
        return found.values, found.indices

    def evaluate(self, pairs: Pairs, *, k: int = 50) -> ClassReport:
        """As `evaluate_zero_shot`, with all x of `pairs` as the collection."""
        return evaluate_zero_shot(self.model, pairs, k=k, candidates=self.candidates)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write configuration (JSON) and weights (safetensors) to a folder, as `save_part` does."""
        config = {
            "format": _FORMAT,
            "model": self.model.config(),
            "discriminant": tower_config(self.discriminant),
            "neighbours": self.neighbours,
            "facts": self.facts,
        }
        both = nn.ModuleDict({"model": self.model, "discriminant": self.discriminant})
        save_part(folder, _CONFIG, config, both.state_dict())


def load_zero_shot(folder: str | os.PathLike[str]) -> ZeroShot:
    """Read a model that `ZeroShot.save` wrote, without pickle."""
    formats = (_FORMAT, _WITH_MODEL_FOLDER)
    with load_part(folder, _CONFIG, kind="zero-shot model", formats=formats) as (config, weights):
        old = config["format"] == _WITH_MODEL_FOLDER
        discriminant = build_tower(config["relatives" if old else "discriminant"])
        check("neighbours", neighbours := config["neighbours"], Whole(at_least=1))
        if not isinstance(discriminant, LinearTower):
            raise ValueError("its discriminant is no linear tower")
        if old:
            model = load(Path(folder) / config["model"])
            discriminant.load_state_dict(weights)
        else:
            model = DualEncoder.from_config(config["model"]).eval()
            both = nn.ModuleDict({"model": model, "discriminant": discriminant})
            both.load_state_dict(weights)
    return ZeroShot(model, discriminant.eval().requires_grad_(False), neighbours, config["facts"])


def evaluate_zero_shot(
    model: DualEncoder,
    pairs: Pairs,
    *,
    k: int = 50,
    candidates: Callable[[Rows], Tensor] | None = None,
) -> ClassReport:
    """How well the y of a class finds its x, and an x finds its class; `pairs` have labels.

    x are the pictures, y the captions. Pairs of one group share their x, which is a candidate once.
    If no class has k candidates, the largest class sets k. `candidates` embeds all x together; by
    default the model embeds each by itself.

    >>> import numpy as np
    >>> from ccal.encoders import LinearTower
    >>> same = LinearTower(4, 4)
    >>> same.initialise(np.zeros(4), np.eye(4))
    >>> model = DualEncoder(dim=4, projection="none", image=same, text=same)
    >>> rows = np.repeat(np.eye(4), 3, axis=0)
    >>> pairs = Pairs({"image": rows, "text": rows}, label=np.repeat(range(4), 3))
    >>> evaluate_zero_shot(model, pairs, k=3).ap
    100.0
    """
    return embed_pairs(model, pairs, candidates=candidates).evaluate_classes(k=k)


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
    discriminated = discriminant(held.given)
    k = reachable_k(held.labels, options.k)
    largest = min(seen.x.shape[1], seen.y.shape[1], len(seen.labels) - 1)
    dims = [dim for dim in options.dims if dim <= largest] or [largest]
    best: tuple[float, dict[str, Any], CCA] | None = None
    for share, ridge in product(options.class_shares, options.ridges):
        cca = CCA(max(dims), ridge=ridge, power=0.0).fit(seen.x, seen.mixed(share))
        x, y = (torch.from_numpy(view).float() for view in cca.transform(held.x, held.y))
        for dim, power in product(dims, options.powers):
            weights = torch.from_numpy(cca.correlations_[:dim] ** power).float()
            a, b = x[:, :dim] * weights, y[:, :dim] * weights
            for count in sorted(set(options.neighbours)):
                candidates = _averaged(a, discriminated, count)
                ap = class_average_precision(b, held.labels, candidates, held.labels, k=k)
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
    dim = facts["dim"]
    weights = cca.correlations_[:dim] ** facts["power"]
    towers: dict[str, Any] = {
        pairs.names[0]: _tower(cca.x_mean_, cca.x_projection_[:, :dim] * weights, options.root),
        pairs.names[1]: _tower(cca.y_mean_, cca.y_projection_[:, :dim] * weights, root=False),
    }
    model = DualEncoder(dim=dim, projection="none", front_ends=front_ends, **towers).eval()
    found = ZeroShot(model, discriminant, facts["neighbours"], facts)
    # A hit is right if it is of the same class.
    x, y = (found.candidates(held.given), model.encode(pairs.names[1], held.y))
    same = (held.labels[:, None] == held.labels).nonzero().mT
    model.calibrations = calibrate(pairs.names, x, y, (same[0], same[1]))
    return found


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
        y, _ = class_means(torch.cat([y for _, y in features.batches()]), groups)
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


def _averaged(embedded: Tensor, discriminated: Tensor, count: int) -> Tensor:
    """Each embedding averaged over its `count` nearest neighbours after the discriminant."""
    if count == 1:
        return embedded
    return mean_of_neighbours(embedded, discriminated, neighbours=count)


def _tower(mean: NDArray[Any], projection: NDArray[Any], root: bool) -> LinearTower:
    tower = LinearTower(*projection.shape, root=root)
    tower.initialise(mean, projection)
    return tower.eval().requires_grad_(False)
