"""Zero-shot retrieval without a run: a model for classes that no training pair showed.

`train_zero_shot` makes a `ZeroShot`, which searches and saves itself; `evaluate_zero_shot` measures
how well a model finds the items of a class, and the class of an item.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ccal.data import Pairs
from ccal.encoders import build_tower
from ccal.errors import InputError
from ccal.evaluation import ClassReport
from ccal.evaluation.calibration import calibrate
from ccal.evaluation.hubs import NeighbourMean
from ccal.files import load_part, save_part
from ccal.model import DualEncoder, Items, load
from ccal.ranks import unit_rows
from ccal.training.batches import PairFeatures
from ccal.training.front_ends import make_front_ends
from ccal.training.scoring import embed_pairs
from ccal.training.settings import Settings
from ccal.training.unseen_classes import ClassItems, ZeroShotOptions, check_unseen, choose_zero_shot

_CONFIG, _FORMAT = "zero-shot.json", 4
# Earlier formats: the model in a folder of its own; the discriminant beside the model.
_WITH_MODEL_FOLDER, _WITH_DISCRIMINANT = 2, 3


@dataclass(frozen=True)
class ZeroShot:
    """A model for classes, seen or not, and what was chosen for it.

    Attributes:
        model: linear towers from CCA between x and y. If more than one neighbour was chosen, its
            `neighbours` average candidates over those nearest to them after a discriminant, the
            linear map of x from CCA between x and the training classes (Fisher's analysis).
        facts: the chosen options, and their AP@k on the validation classes.
    """

    model: DualEncoder
    facts: dict[str, Any]

    @property
    def neighbours(self) -> int:
        """Number of candidates over which the embedding of a candidate is averaged."""
        return 1 if self.model.neighbours is None else self.model.neighbours.count

    def candidates(self, items: Items) -> Tensor:
        """Embeddings (n, dim) of all x of a collection; see `DualEncoder.candidates`."""
        return self.model.candidates(items)

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
        """As `evaluate_zero_shot`."""
        return evaluate_zero_shot(self.model, pairs, k=k)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write configuration (JSON) and weights (safetensors) to a folder, as `save_part` does."""
        config = {"format": _FORMAT, "model": self.model.config(), "facts": self.facts}
        save_part(folder, _CONFIG, config, self.model.state_dict())


def load_zero_shot(folder: str | os.PathLike[str]) -> ZeroShot:
    """Read a model that `ZeroShot.save` wrote, without pickle."""
    formats = (_FORMAT, _WITH_DISCRIMINANT, _WITH_MODEL_FOLDER)
    with load_part(folder, _CONFIG, kind="zero-shot model", formats=formats) as (config, weights):
        if config["format"] == _FORMAT:
            model = DualEncoder.from_config(config["model"])
            model.load_state_dict(weights)
        else:
            model = _load_earlier(Path(folder), config, weights)
    return ZeroShot(model.eval().requires_grad_(False), config["facts"])


def _load_earlier(
    folder: Path, config: Mapping[str, Any], weights: Mapping[str, Tensor]
) -> DualEncoder:
    """The model of an earlier format, with its discriminant as a part of it."""
    if config["format"] == _WITH_MODEL_FOLDER:
        model, discriminant = load(folder / config["model"]), build_tower(config["relatives"])
        discriminant.load_state_dict(weights)
    else:
        model = DualEncoder.from_config(config["model"])
        discriminant = build_tower(config["discriminant"])
        both = nn.ModuleDict({"model": model, "discriminant": discriminant})
        both.load_state_dict(weights)
    found = NeighbourMean(discriminant, config["neighbours"])
    model.neighbours = found if found.count > 1 else None
    return model


def evaluate_zero_shot(model: DualEncoder, pairs: Pairs, *, k: int = 50) -> ClassReport:
    """How well the y of a class finds its x, and an x finds its class; `pairs` have labels.

    x are the pictures, y the captions. Pairs of one group share their x, which is a candidate once.
    If no class has k candidates, the largest class sets k.

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
    return embed_pairs(model, pairs).evaluate_classes(k=k)


def train_zero_shot(
    pairs: Pairs,
    valid: Pairs,
    options: ZeroShotOptions | None = None,
    settings: Settings | None = None,
) -> ZeroShot:
    """The linear model that finds validation classes best, in closed form.

    `valid` holds classes that `pairs` do not. x are features or image files; only the front ends
    take something from `settings`.

    >>> import numpy as np
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
    check_unseen(pairs, valid)
    settings = (settings or Settings()).changed(method="zero-shot")
    front_ends = make_front_ends(settings, pairs, pair_count=options.pair_count)
    seen = PairFeatures(pairs, front_ends, fit=True)
    held = PairFeatures(valid, front_ends)
    choice = choose_zero_shot(seen, held, options)
    model = choice.model(pairs.names, seen, front_ends)
    # A hit is right if it is of the same class.
    items = ClassItems.of(held, root=False)
    x, y = model.candidates(items.given), model.encode(pairs.names[1], items.y)
    same = (items.labels[:, None] == items.labels).nonzero().mT
    model.calibrations = calibrate(pairs.names, x, y, (same[0], same[1]))
    return ZeroShot(model, choice.facts())
