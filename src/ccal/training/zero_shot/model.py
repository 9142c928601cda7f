"""A zero-shot model: embeds queries and candidates, and lives in a folder."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ccal.data import Pairs
from ccal.encoders import LinearTower, build_tower, front_end_config, tower_config
from ccal.errors import CcalError, InputError
from ccal.evaluation import ClassReport
from ccal.evaluation.hubs import mean_of_neighbours
from ccal.files import intact, named_by_hash, write_atomically
from ccal.model import DualEncoder, Items, load
from ccal.optional import require
from ccal.ranks import unit_rows
from ccal.training.zero_shot.scoring import evaluate_zero_shot

__all__ = ["ZeroShot", "load_zero_shot"]

_CONFIG, _FORMAT, _BATCH = "zero-shot.json", 2, 1024


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
    def candidates(self, items: Items) -> Tensor:
        """Embeddings (n, k) of all x of a collection, to be searched with a y.

        `items` are features (n, d) or raw items such as paths of images, as `model.encode` takes
        them. Neighbours are sought among them, so embed a collection as a whole.
        """
        name = self.model.modalities[0]
        starts = range(0, max(len(items), 1), _BATCH)
        # Once for both maps: raw images go through a network.
        features = torch.cat([self.model.features(name, items[s : s + _BATCH]) for s in starts])
        embedded = self.model.encode(name, features.float())
        if self.neighbours == 1:
            return embedded
        return mean_of_neighbours(
            embedded, self.relatives(features.float()), neighbours=self.neighbours
        )

    def search(self, queries: Items, candidates: Tensor, *, k: int = 10) -> tuple[Tensor, Tensor]:
        """The nearest of `candidates` for each y: cosines (q, k) and rows (q, k), best first.

        `queries` are features or raw items such as sentences; `candidates` (n, dim) come from
        `candidates`. Fewer than k of them lower k.
        """
        embedded = unit_rows(self.model.encode(self.model.modalities[1], queries), "queries")
        cosines = embedded @ unit_rows(candidates, "candidates").mT
        found = cosines.topk(min(k, cosines.shape[1]))
        return found.values, found.indices

    def evaluate(self, pairs: Pairs, *, k: int = 50) -> ClassReport:
        """As `evaluate_zero_shot`, with all x of `pairs` as the collection."""
        return evaluate_zero_shot(self.model, pairs, k=k, candidates=self.candidates)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write configuration (JSON) and weights (safetensors) to a folder.

        The configuration names what belongs to it and is replaced last, in one step: whatever
        happens meanwhile, the folder holds the old model or the new one.
        """
        safetensors = require("safetensors.torch", extra="save", purpose="Saving a model")
        target = Path(folder)
        if target.exists() and not (target.is_dir() and _ours(target)):
            raise InputError(f"{str(target)!r} exists and is no saved model; nothing was written.")
        relatives, weights = (
            safetensors.save({n: t.contiguous() for n, t in part.state_dict().items()})
            for part in (self.relatives, self.model)
        )
        words = {n: front_end_config(f) for n, f in self.model.front_ends.items()}
        digest = hashlib.sha256(weights + json.dumps(words).encode()).hexdigest()[:16]
        model, map_of_relatives = f"model-{digest}", named_by_hash("relatives", relatives)
        config = {
            "format": _FORMAT,
            "model": model,
            "relatives": tower_config(self.relatives),
            "weights": map_of_relatives,
            "neighbours": self.neighbours,
            "facts": self.facts,
        }
        target.mkdir(parents=True, exist_ok=True)
        self.model.save(target / model)
        write_atomically(target / map_of_relatives, relatives)
        write_atomically(target / _CONFIG, (json.dumps(config, indent=1) + "\n").encode())
        for stale in target.iterdir():
            if stale.name not in (_CONFIG, model, map_of_relatives):
                shutil.rmtree(stale) if stale.is_dir() else stale.unlink()


def load_zero_shot(folder: str | os.PathLike[str]) -> ZeroShot:
    """Read a model that `ZeroShot.save` wrote, without pickle."""
    safetensors = require("safetensors.torch", extra="save", purpose="Loading a model")
    source = Path(folder)
    if not (source / _CONFIG).is_file():
        raise InputError(f"{str(source)!r} holds no zero-shot model: {_CONFIG} is missing.")
    try:
        config = json.loads((source / _CONFIG).read_text())
        if config["format"] != _FORMAT:
            raise InputError(
                f"{str(source)!r} has format {config['format']!r}; this version reads {_FORMAT}."
            )
        relatives = build_tower(config["relatives"])
        relatives.load_state_dict(safetensors.load_file(intact(source / config["weights"])))
        model, neighbours = load(source / config["model"]), config["neighbours"]
        if not isinstance(relatives, LinearTower) or type(neighbours) is not int or neighbours < 1:
            raise InputError(f"{source / _CONFIG}: relatives or neighbours are not what they were.")
        return ZeroShot(model, relatives.eval().requires_grad_(False), neighbours, config["facts"])
    except (CcalError, ImportError, OSError):
        # A missing package, or a file that may not be read, is no damage, and says so itself.
        raise
    # safetensors has an exception of its own, derived from nothing narrower.
    except Exception as error:
        raise InputError(f"The zero-shot model in {str(source)!r} is damaged: {error}") from error


def _ours(folder: Path) -> bool:
    """Whether a folder is empty or holds nothing but such a model, perhaps half-written."""
    starts = ("model-", "relatives-", ".")
    return all(f.name == _CONFIG or f.name.startswith(starts) for f in folder.iterdir())
