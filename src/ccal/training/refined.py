"""`train`: from pairs to a model, by any of the methods.

The default method, "refined", starts both towers as linear CCA and fine-tunes them. With
`tower = "auto"` it trains two candidates, linear towers and towers with a hidden layer, and keeps
what finds the validation pairs clearly better; then it chooses the weight of the hub correction,
and at last repeats the chosen training with the validation pairs included.
"""

from collections.abc import Sequence
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ccal.data import Pairs
from ccal.distributed import rank
from ccal.encoders import FrontEnd
from ccal.errors import InputError
from ccal.evaluation.calibration import calibrate
from ccal.evaluation.hubs import BANK, HubCorrection
from ccal.features.union import unions
from ccal.model import DualEncoder
from ccal.positives import Positives
from ccal.progress import Steps
from ccal.ranks import mean_reciprocal_ranks
from ccal.training.batches import PairFeatures, concatenated, relation
from ccal.training.front_ends import choose_weights, features_learned, make_front_ends
from ccal.training.loop import fit
from ccal.training.methods import (
    LinearInitialisation,
    build_model,
    choose_initialisation,
    make_objective,
)
from ccal.training.plan import expected_seconds
from ccal.training.progress import STEP_OF_STAGE, Callback
from ccal.training.scoring import class_scores, clearly_better, embed, embed_items, reciprocal_ranks
from ccal.training.settings import Settings
from ccal.training.unseen_classes import (
    ZeroShotChoice,
    ZeroShotOptions,
    check_unseen,
    choose_zero_shot,
)

# Defaults of the towers of "auto"; they were found on digits and Flickr8k.
_OF_TOWER: dict[str, dict[str, Any]] = {
    "linear": {"learning_rate": 1e-3, "temperature": 0.1, "averaging": 0.95},
    "residual": {
        "dropout_x": 0.1,
        "dropout_y": 0.1,
        "learning_rate": 1e-3,
        "temperature": 0.1,
        "averaging": 0.9,
        "batch_size": 500,
        "max_epochs": 300,
        "patience": 30,
    },
}
# On many pairs an epoch has many steps, and after so many without a better score patience ends.
_PATIENT_STEPS, _LEAST_PATIENCE = {"linear": 30, "residual": 80}, 5
_HUB_WEIGHTS = (0.0, 0.25, 0.5, 0.75)
# While epochs and towers are compared, before the weight is chosen.
_USUAL_WEIGHT, _BANK_OF_EPOCH = 0.5, 1000


@dataclass(frozen=True)
class Trained:
    """A trained model, a record of each epoch, and the choices that were made, in words.

    `features` are those of the training pairs, which the front ends need not make again.
    `validation` is how the chosen model found the validation pairs before the final training: for
    "x_to_y" and "y_to_x" the "mrr" in %, and the numbers of "queries" and "candidates".
    """

    model: DualEncoder
    history: list[dict[str, Any]]
    features: PairFeatures
    facts: dict[str, str] = field(default_factory=dict)
    validation: dict[str, dict[str, float]] = field(default_factory=dict)


def train(
    settings: Settings,
    pairs: Pairs,
    valid: Pairs,
    *,
    folder: Path | None = None,
    resume: bool = False,
    progress: bool | Steps = True,
    tensorboard: bool = False,
    callbacks: Sequence[Callback] = (),
    device: torch.device | str = "cpu",
) -> Trained:
    """Train a model by `settings.method` on `pairs`; all choices are made on `valid`.

    With a `folder`, epochs are recorded there in `metrics.jsonl` and checkpoints are kept, so that
    `resume=True` goes on after an interruption and ends where the unbroken run would have.
    `progress` shows one line for all of it on standard error, or goes on with the `Steps` of longer
    work. `callbacks` are told the record of each epoch.

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
    options: dict[str, Any] = {"folder": folder, "resume": resume, "tensorboard": tensorboard}
    options["callbacks"] = callbacks
    if not isinstance(progress, Steps):
        shown = progress and rank() == 0
        steps = Steps(expected_steps(settings, pairs, valid) if shown else {}, enabled=shown)
        with closing(steps):
            return train(settings, pairs, valid, progress=steps, device=device, **options)
    zero_shot = ZeroShotOptions.of(settings) if settings.method == "zero-shot" else None
    if zero_shot is not None:
        check_unseen(pairs, valid)
    pair_count = 0 if zero_shot is None else zero_shot.pair_count
    front_ends = make_front_ends(settings, pairs, pair_count=pair_count)
    seen = PairFeatures(pairs, front_ends, fit=True, progress=progress.of("training pairs"))
    held = PairFeatures(valid, front_ends, progress=progress.of("validation pairs"))
    if unions(front_ends):
        progress.begin("weights of features")
        choose_weights(front_ends, seen, held)
    learned = [features_learned(name, front_ends.get(name)) for name in pairs.names]
    for words in filter(None, learned):
        progress.say(words)
    options["progress"] = progress
    facts: dict[str, str] = {"features": "; ".join(filter(None, learned))} if any(learned) else {}
    initial: LinearInitialisation | ZeroShotChoice | None = None
    if zero_shot is not None:
        initial = choose_zero_shot(seen, held, zero_shot, progress=progress.counting("linear CCA"))
        facts["chosen"] = initial.words(pairs.names)
    elif settings.starts_linear:
        progress.begin("linear CCA")
        initial = choose_initialisation(
            settings, seen, held, progress=partial(_show_linear_cca, progress)
        )
        facts["linear CCA"] = initial.words(pairs.names)
    trainer = _Trainer(
        pairs.names, front_ends, initial, (seen, held), torch.device(device), options
    )
    candidates: list[_Candidate] = []
    for changed in _candidate_settings(settings, len(seen)):
        rival = max((c.best for c in candidates if c.best is not None), default=None)
        candidates += trainer.candidates(changed, seen, held, rival)
    best = candidates[0]
    for candidate in candidates[1:]:
        best = candidate if clearly_better(candidate.scores, best.scores) else best
    model = best.model
    if len(candidates) > 1:
        found = ", ".join(f"{c.name} {100 * c.scores.mean():.1f}" for c in candidates)
        measure = "AP@k" if settings.select == "classes" else "MRR"
        facts["chosen"] = f"{best.name} (validation {measure}: {found})"
    positives, firsts = relation(held)
    weight = 0.0
    found_held = embed_items(model, held, firsts)
    if _corrects_hubs(settings):
        weight = choose_hub_weight(embed(model, seen), found_held, positives)
        facts["hub correction"] = (
            f"weight {weight:g}, against items that turn up in too many answers"
            if weight
            else "none, since it does not help the validation pairs"
        )
    _correct_hubs(model, seen, weight)
    # Before the final training, after which the validation pairs would score too well.
    x, y = (model.correct(n, view) for n, view in zip(pairs.names, found_held, strict=True))
    calibrations = calibrate(model.modalities, x, y, positives.links())
    validation = _validation(x, y, positives)
    facts["validation"] = _validation_words(validation, pairs.names)
    features = seen
    if settings.train_on_all:
        seen = concatenated(seen, held)
        model = trainer.build(best.settings, seen)
        if best.epochs:
            took = [r["seconds"] for r in trainer.history if r["stage"] == best.name]
            progress.expect(STEP_OF_STAGE["all"], sum(took) / len(took) * best.epochs)
            trainer.fit(best.settings, model, seen, None, stage="all", epochs=best.epochs)
        epochs = f", {best.epochs} epochs" if best.epochs else ""
        facts["final training"] = f"on all {len(seen):,} pairs{epochs}"
        _correct_hubs(model, seen, weight)
    model.calibrations = calibrations
    return Trained(model.eval(), trainer.history, features, facts, validation)


def _show_linear_cca(steps: Steps, what: str, done: int, total: int) -> None:
    # Reading the samples is the smaller part of the work.
    share = 0.2 * done / total if what == "samples" else 0.2 + 0.8 * done / total
    steps.update(share, f"{done:,} of {total:,} {what}")


def expected_steps(settings: Settings, pairs: Pairs, valid: Pairs) -> dict[str, float]:
    """A guess of the seconds of each step of `train`, by its name and in their order."""
    stages = _candidate_settings(settings, len(pairs)) if settings.trained else []
    return expected_seconds(settings, [(_stage(own), own) for own in stages], pairs, valid)


def _stage(settings: Settings) -> str:
    """The name of training with these settings, in files and in the progress."""
    return settings.tower if settings.method == "refined" else "train"


def _candidate_settings(settings: Settings, pairs: int) -> list[Settings]:
    """The settings to train with so many pairs: one, or two for `tower = "auto"`."""
    if settings.method != "refined" or settings.tower != "auto":
        return [settings]
    return [_of_tower(settings, tower, pairs) for tower in ("linear", "residual")]


def _of_tower(settings: Settings, tower: str, pairs: int) -> Settings:
    """The settings of one tower of "auto": its own where the user left the default."""
    free = settings.to_be_chosen
    own = {name: value for name, value in _OF_TOWER[tower].items() if name in free}
    changed = settings.changed(tower=tower, **own)
    if "patience" in free:
        steps = -(-pairs // changed.batch_size)
        enough = max(_LEAST_PATIENCE, -(-_PATIENT_STEPS[tower] // steps))
        changed = changed.changed(patience=min(changed.patience, enough))
    return changed


@dataclass(frozen=True)
class _Candidate:
    """A model to choose from, with the settings and the number of epochs of its training.

    `scores` (n,) are those of `_scores`. `best` is the score that chose the epoch.
    """

    name: str
    settings: Settings
    model: DualEncoder
    scores: Tensor
    epochs: int = 0
    best: float | None = None


@dataclass(frozen=True)
class _Trainer:
    """Trains models for the same pairs; `history` has a record of each epoch of all of them."""

    names: tuple[str, str]
    front_ends: dict[str, FrontEnd]
    initial: LinearInitialisation | ZeroShotChoice | None
    choose_on: tuple[PairFeatures, PairFeatures]
    device: torch.device
    options: dict[str, Any]
    history: list[dict[str, Any]] = field(default_factory=list)

    def candidates(
        self, settings: Settings, seen: PairFeatures, held: PairFeatures, rival: float | None
    ) -> list[_Candidate]:
        """The trained model; before it the initial one, if that is linear CCA.

        `rival` is that of `fit`.
        """
        model = self.build(settings, seen)
        found: list[_Candidate] = []
        if settings.starts_linear and settings.tower != "residual":
            scores = _scores(settings, model, seen, held)
            found.append(_Candidate("linear CCA", settings, deepcopy(model), scores))
        if not settings.trained:
            return found
        stage = _stage(settings)
        if settings.select == "classes":
            choice: dict[str, Any] = {"score": lambda m: class_scores(m, held).mean().item()}
        else:
            choice = {"select": settings.select}
            if _corrects_hubs(settings):
                choice["correct"] = partial(_hubs_corrected, seen)
        choice["validate_first"] = settings.start == "linear"
        epochs, best = self.fit(settings, model, seen, held, stage=stage, rival=rival, **choice)
        scores = _scores(settings, model, seen, held)
        return [*found, _Candidate(stage, settings, model, scores, epochs, best)]

    def fit(
        self,
        settings: Settings,
        model: DualEncoder,
        seen: PairFeatures,
        held: PairFeatures | None,
        stage: str,
        **more: Any,
    ) -> tuple[int, float | None]:
        """Train a model and record its epochs; returns the number of the best, and its score."""
        self.options["progress"].begin(STEP_OF_STAGE[stage])
        objective = make_objective(settings).to(self.device)
        found = fit(model, objective, seen, held, settings, stage=stage, **self.options, **more)
        self.history.extend(found.records)
        return found.best_epoch, found.best_mrr

    def build(self, settings: Settings, pairs: PairFeatures) -> DualEncoder:
        """A model to train, or one that needs no training."""
        if isinstance(self.initial, ZeroShotChoice):
            model = self.initial.model(self.names, pairs, self.front_ends)
        else:
            start = self.initial, self.choose_on
            model = build_model(settings, self.names, pairs, self.front_ends, *start)
        return model.to(self.device)


def _scores(
    settings: Settings, model: DualEncoder, seen: PairFeatures, held: PairFeatures
) -> Tensor:
    """How well each validation unit, or each validation class, is found, from 0 to 1."""
    if settings.select == "classes":
        return class_scores(model, held)
    positives, firsts = relation(held)
    x, y = embed_items(model, held, firsts)
    x, y = _hubs_corrected(seen, model, x, y) if _corrects_hubs(settings) else (x, y)
    return reciprocal_ranks(x, y, positives)


def _corrects_hubs(settings: Settings) -> bool:
    if settings.method == "zero-shot":
        return False  # its own choice includes the weight
    chosen = settings.hub_correction
    return chosen == "yes" or (chosen == "auto" and settings.method == "refined")


def _hubs_corrected(
    seen: PairFeatures, model: DualEncoder, x: Tensor, y: Tensor
) -> tuple[Tensor, Tensor]:
    """Embeddings with a hub correction, since fine-tuning, too, removes hubs."""
    return _corrected((x, y), embed(model, seen, at_most=_BANK_OF_EPOCH), _USUAL_WEIGHT)


def _corrected(
    views: tuple[Tensor, Tensor], bank: tuple[Tensor, Tensor], weight: float
) -> tuple[Tensor, Tensor]:
    hubs = HubCorrection.of(*bank, weight=weight)
    return hubs.correct_x(views[0]), hubs.correct_y(views[1])


def _validation(x: Tensor, y: Tensor, positives: Positives) -> dict[str, dict[str, float]]:
    """Both MRR in %, and of how many candidates."""
    shares = mean_reciprocal_ranks(x, y, positives=positives, pessimistic=True)
    sizes = positives.shape, positives.shape[::-1]
    return {
        way: {"mrr": 100 * share, "queries": queries, "candidates": candidates}
        for way, share, (queries, candidates) in zip(
            ("x_to_y", "y_to_x"), shares, sizes, strict=True
        )
    }


def _validation_words(found: dict[str, dict[str, float]], names: tuple[str, str]) -> str:
    ways = zip(found.values(), (names, names[::-1]), strict=True)
    return ", ".join(
        f"{query} -> {other} MRR {way['mrr']:.1f} of {way['candidates']:,} candidates"
        for way, (query, other) in ways
    )


def _correct_hubs(model: DualEncoder, seen: PairFeatures, weight: float) -> None:
    """Give a model the hub correction of this weight, with training pairs as its bank."""
    if weight:
        model.correct_hubs(embed(model, seen, at_most=BANK), weight=weight)


def choose_hub_weight(
    seen: tuple[Tensor, Tensor], held: tuple[Tensor, Tensor], positives: Positives | None = None
) -> float:
    """The usual weight of the hub correction if it helps, unless another is clearly better.

    Few held-out items cannot tell weights apart, and hubs do less harm among few candidates.
    """
    related = positives or Positives.one_to_one(len(held[0]))
    found = {w: reciprocal_ranks(*_corrected(held, seen, w), related) for w in _HUB_WEIGHTS}
    best, usual = max(found, key=lambda weight: found[weight].mean().item()), found[_USUAL_WEIGHT]
    helps = usual.mean() > found[0.0].mean() and not clearly_better(found[best], usual)
    return _USUAL_WEIGHT if helps else best
