"""Sheet music and sound: the paper's networks, trained and measured on pairs of a store."""

from __future__ import annotations

from pathlib import Path

import torch

from ccal.encoders import VGG
from ccal.evaluation import Report, evaluate_embeddings
from ccal.model import DualEncoder
from ccal.training.batches import Features
from ccal.training.loop import fit
from ccal.training.methods import make_objective, projection_options
from ccal.training.progress import History
from ccal.training.settings import Settings
from ccal.training.validation import embed

__all__ = ["SHEET_AUDIO", "evaluate_pairs", "sheet_audio_model", "train_sheet_audio"]

SHEET_AUDIO = ("sheet", "audio")
_HEIGHTS = {"sheet": 40, "audio": 136}


def sheet_audio_model(settings: Settings, *, stride: int = 1) -> DualEncoder:
    """Two VGG towers (the paper's Table 7) that meet as the method says, weights at their start.

    `stride=2` makes the towers about four times as fast; the paper has 1.

    >>> sheet_audio_model(Settings.preset("nottingham")).modalities
    ('sheet', 'audio')
    """
    torch.manual_seed(settings.seed)
    options = projection_options(settings)
    for name in SHEET_AUDIO:
        options[name] = VGG(_HEIGHTS[name], out_features=options["dim"], stride=stride)
    return DualEncoder(**options)


def train_sheet_audio(
    settings: Settings,
    seen: Features,
    held: Features | None,
    *,
    stride: int = 1,
    epochs: int | None = None,
    folder: Path | None = None,
    resume: bool = False,
    progress: bool = True,
) -> tuple[DualEncoder, History]:
    """Train on the pairs `seen`; the best epoch is that which finds the pairs `held` best.

    With `epochs`, and no pairs held out, the last of so many epochs counts.
    """
    model = sheet_audio_model(settings, stride=stride)
    select = "both" if settings.select == "classes" else settings.select
    history = fit(
        model,
        make_objective(settings),
        seen,
        held,
        settings,
        folder=folder,
        resume=resume,
        select=select,
        epochs=epochs,
        progress=progress,
    )
    return model, history


def evaluate_pairs(model: DualEncoder, pairs: Features, *, bootstrap: int = 1000) -> Report:
    """How well sheet and sound of these pairs find each other, each among all others."""
    return evaluate_embeddings(
        *embed(model, pairs, batch_size=256), names=model.modalities, bootstrap=bootstrap
    )
