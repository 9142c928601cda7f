"""Train a model by any method, from pairs to something that can be saved and searched with."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ccal.data import Pairs
from ccal.distributed import rank
from ccal.encoders import FrontEnd
from ccal.errors import InputError
from ccal.evaluation.hubs import HubCorrection
from ccal.model import DualEncoder
from ccal.ranks import mean_reciprocal_rank
from ccal.training.comparison import clearly_better, reciprocal_ranks
from ccal.training.features import PairFeatures, both
from ccal.training.loop import fit
from ccal.training.methods import build_model, fit_front_ends
from ccal.training.metrics import History
from ccal.training.objectives import make_objective
from ccal.training.settings import Settings
from ccal.training.starts import LinearStart, choose_start
from ccal.training.validation import validation_precision, validation_precisions

__all__ = ["Trained", "choose_hub_weight", "embed", "train"]

# What a hidden layer wants where a linear map wants the default: found on digits and Flickr8k.
_RESIDUAL: dict[str, Any] = {
    "tower": "residual",
    "dropout_x": 0.1,
    "dropout_y": 0.1,
    "learning_rate": 1e-3,
    "temperature": 0.1,
    "averaging": 0.9,
    "batch_size": 500,
    "max_epochs": 300,
    "patience": 30,
}
_HUB_WEIGHTS = (0.0, 0.25, 0.5, 0.75)
_NEIGHBOURS, _BANK = 10, 20_000


@dataclass(frozen=True)
class Trained:
    """A trained model, a record of each epoch, and what was found out on the way, in words."""

    model: DualEncoder
    history: list[dict[str, Any]]
    facts: dict[str, str] = field(default_factory=dict)


def train(
    settings: Settings,
    pairs: Pairs,
    valid: Pairs,
    *,
    folder: Path | None = None,
    resume: bool = False,
    progress: bool = True,
    tensorboard: bool = False,
    device: torch.device | str = "cpu",
) -> Trained:
    """Train by `settings.method` on `pairs`; what is to be chosen is chosen on those of `valid`.

    With a `folder`, epochs are recorded there in `metrics.jsonl` and checkpoints are kept, so that
    `resume=True` goes on after an interruption and ends where the unbroken run would have.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> meaning = rng.normal(size=(300, 4))
    >>> views = {name: meaning @ rng.normal(size=(4, 20)) for name in ("image", "text")}
    >>> pairs = Pairs(views)
    >>> trained = train(Settings(max_epochs=2), pairs[:200], pairs[200:], progress=False)
    >>> len(trained.model.encode("text", views["text"][:3]))
    3
    """
    if pairs.names != valid.names:
        raise InputError(f"The training pairs are of {pairs.names}, but valid of {valid.names}.")
    if min(len(pairs), len(valid)) < 2:
        raise InputError(
            f"Training needs at least 2 pairs to learn from and 2 to validate on, got {len(pairs)} "
            f"and {len(valid)}; better are some hundreds."
        )
    front_ends = fit_front_ends(settings, pairs)
    seen, held = (PairFeatures(part, front_ends) for part in (pairs, valid))
    options = {"folder": folder, "resume": resume, "progress": progress, "tensorboard": tensorboard}
    facts: dict[str, str] = {}
    start = None
    if settings.method in ("refined", "linear"):
        start = choose_start(settings, seen, held, verbose=progress and rank() == 0)
        facts["linear CCA"] = _words(start, pairs.names)
    job = _Job(pairs.names, front_ends, start, torch.device(device), options)
    tries = [t for candidate in _candidates(settings) for t in job.tries(candidate, seen, held)]
    best = tries[0]
    for tried in tries[1:]:
        best = tried if clearly_better(tried.found, best.found) else best
    model, history = best.model, [record for tried in tries for record in tried.history]
    if len(tries) > 1:
        found = ", ".join(f"{tried.name} {100 * tried.found.mean():.1f}" for tried in tries)
        measure = "AP@k" if settings.select == "classes" else "MRR"
        facts["chosen"] = f"{best.name} (validation {measure}: {found})"
    weight = 0.0
    correct = settings.hub_correction
    if correct == "yes" or (correct == "auto" and settings.method == "refined"):
        weight = choose_hub_weight(embed(model, seen), embed(model, held))
        facts["hub correction"] = f"weight {weight:g}"
    if settings.train_on_all:
        seen = both(seen, held)
        again = job.repeat(best, seen)
        model, history = again.model, history + again.history
        epochs = f", {best.epochs} epochs" if best.epochs else ""
        facts["final training"] = f"on all {len(seen):,} pairs{epochs}"
    if weight:
        bank = torch.linspace(0, len(seen) - 1, min(len(seen), _BANK)).long()
        x, y = (view[bank] for view in embed(model, seen))
        model.correct_hubs((x, y), neighbours=min(_NEIGHBOURS, len(bank)), weight=weight)
    return Trained(model.eval(), history, facts)


def _candidates(settings: Settings) -> list[Settings]:
    """The settings to try: one, or for towers to be chosen two.

    The second changes only what a person has left to be chosen.
    """
    if settings.method != "refined" or settings.tower != "auto":
        return [settings]
    changes = {name: _RESIDUAL[name] for name in ("tower", *settings.to_be_chosen)}
    return [settings.changed(tower="linear"), settings.changed(**changes)]


@dataclass(frozen=True)
class _Tried:
    """A model, and how it came about: its settings, its epochs and what they recorded.

    `found` (n,) are the reciprocal ranks of the validation pairs, the mean of both directions; or
    the precision of each validation class, if classes are to be found.
    """

    name: str
    settings: Settings
    model: DualEncoder
    found: Tensor
    epochs: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class _Job:
    """Trains models for the same pairs: with validation, and once more on all pairs without."""

    names: tuple[str, str]
    front_ends: dict[str, FrontEnd]
    start: LinearStart | None
    device: torch.device
    options: dict[str, Any]

    def tries(self, settings: Settings, seen: PairFeatures, held: PairFeatures) -> list[_Tried]:
        """The model to start from if it is one already, and the best of its training."""
        model = self._build(settings, seen)
        found: list[_Tried] = []
        if settings.method in ("linear", "refined") and settings.tower != "residual":
            score = _found(settings, model, held)
            found.append(_Tried("linear CCA", settings, deepcopy(model), score))
        if settings.method == "linear":
            return found
        stage = settings.tower if settings.method == "refined" else "train"
        how = _selection(settings, held)
        history = self._fit(settings, model, seen, held, stage=stage, **how)
        score = _found(settings, model, held)
        trained = _Tried(stage, settings, model, score, history.best_epoch, list(history.records))
        return [*found, trained]

    def repeat(self, tried: _Tried, everything: PairFeatures) -> _Tried:
        """The same number of epochs on all pairs."""
        model, records = self._build(tried.settings, everything), []
        if tried.epochs:
            settings, epochs = tried.settings, tried.epochs
            history = self._fit(settings, model, everything, None, stage="all", epochs=epochs)
            records = list(history.records)
        return replace(tried, model=model, history=records)

    def _fit(
        self,
        settings: Settings,
        model: DualEncoder,
        seen: PairFeatures,
        held: PairFeatures | None,
        **more: Any,
    ) -> History:
        objective = make_objective(settings).to(self.device)
        return fit(model, objective, seen, held, settings, **self.options, **more)

    def _build(self, settings: Settings, features: PairFeatures) -> DualEncoder:
        return build_model(
            settings, self.names, features, front_ends=self.front_ends, start=self.start
        ).to(self.device)


def _selection(settings: Settings, held: PairFeatures) -> dict[str, Any]:
    """What `fit` is told of how to choose an epoch."""
    if settings.select == "classes":
        return {"score": partial(validation_precision, valid=held)}
    return {"select": settings.select}


def _found(settings: Settings, model: DualEncoder, held: PairFeatures) -> Tensor:
    """How well validation pairs, or their classes, are found, one by one, as shares."""
    if settings.select == "classes":
        return validation_precisions(model, held) / 100
    return reciprocal_ranks(*embed(model, held))


def _words(start: LinearStart, names: tuple[str, str]) -> str:
    rooted = [n for n, root in zip(names, (start.root_x, start.root_y), strict=True) if root]
    ridge_x, ridge_y = start.ridge or (0.0, 0.0)
    words = f"ridge {ridge_x:.3g} and {ridge_y:.3g}, weighted by correlation^{start.power:g}"
    return words + (f", square roots of {' and '.join(rooted)}" if rooted else "")


def embed(model: DualEncoder, features: PairFeatures) -> tuple[Tensor, Tensor]:
    """Embeddings (n, k) of both modalities, before any hub correction."""
    name_x, name_y = model.modalities
    parts = [
        (model.encode(name_x, x, corrected=False), model.encode(name_y, y, corrected=False))
        for x, y in features.batches()
    ]
    x, y = (torch.cat(view) for view in zip(*parts, strict=True))
    return x, y


def choose_hub_weight(seen: tuple[Tensor, Tensor], held: tuple[Tensor, Tensor]) -> float:
    """The weight of the hub correction that finds held-out pairs best; of equals the smallest."""
    n, dim = seen[0].shape

    def score(weight: float) -> float:
        hubs = HubCorrection(dim, bank=n, neighbours=min(_NEIGHBOURS, n), weight=weight)
        hubs.to(seen[0].device).fit(*seen)
        x, y = hubs.correct_x(held[0]), hubs.correct_y(held[1])
        return mean_reciprocal_rank(x, y) + mean_reciprocal_rank(y, x)

    return max(_HUB_WEIGHTS, key=score)
