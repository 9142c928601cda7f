"""Zero-shot retrieval: find items of classes that no training pair showed.

`ZeroShot` embeds queries and candidates and saves itself; `evaluate_zero_shot` measures how well a
model finds the items of a class, and the class of an item.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ccal.bounds import Whole, check
from ccal.data import Pairs, Rows
from ccal.encoders import LinearTower, build_tower, tower_config
from ccal.evaluation import ClassReport
from ccal.evaluation.hubs import mean_of_neighbours
from ccal.files import load_part, save_part
from ccal.model import DualEncoder, Items, load
from ccal.ranks import unit_rows
from ccal.training.scoring import embed_pairs

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
        if self.neighbours == 1:
            return embedded
        return mean_of_neighbours(
            embedded, self.discriminant(features.float()), neighbours=self.neighbours
        )

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
