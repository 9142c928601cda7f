"""Sheet music and sound: the paper's networks, trained and evaluated on pairs of a store."""

from pathlib import Path

import torch

from ccal.encoders import ChromaTower
from ccal.evaluation import Report, evaluate_embeddings
from ccal.model import DualEncoder
from ccal.music.audio import band_pitches
from ccal.training.batches import Features
from ccal.training.loop import fit
from ccal.training.methods import make_objective, picture_tower, projection_options, start_linear
from ccal.training.progress import History
from ccal.training.scoring import embed
from ccal.training.settings import Settings

_HEIGHTS = {"sheet": 40, "audio": 136}


def sheet_audio_model(settings: Settings, *, chroma: bool = False) -> DualEncoder:
    """Two VGG towers (the paper's Table 7) with the projection of the method, not yet trained.

    With `chroma` that of sound is a `ChromaTower`. With `start = "linear"` they need
    `start_linear`, which `train_sheet_audio` calls.

    >>> sheet_audio_model(Settings.preset("nottingham")).modalities
    ('sheet', 'audio')
    """
    torch.manual_seed(settings.seed)
    options = projection_options(settings)
    for name, height in _HEIGHTS.items():
        tower = picture_tower(settings)
        options[name] = tower(height, out_features=options["dim"], stride=settings.stride)
    if chroma:
        options["audio"] = ChromaTower(band_pitches(), out_features=options["dim"])
    return DualEncoder(**options)


def train_sheet_audio(
    settings: Settings,
    seen: Features,
    held: Features,
    *,
    chroma: bool = False,
    folder: Path | None = None,
    progress: bool = True,
) -> tuple[DualEncoder, History]:
    """Train on the pairs `seen`; the best epoch is the one that finds the pairs `held` best.

    An interrupted training with a `folder` goes on from its last checkpoint.
    """
    model, linear = sheet_audio_model(settings, chroma=chroma), settings.start == "linear"
    if linear:
        start_linear(model, seen, (seen, held), settings.power)
    history = fit(
        model,
        make_objective(settings),
        seen,
        held,
        settings,
        folder=folder,
        resume=folder is not None,
        validate_first=linear,
        select=settings.select,  # type: ignore[arg-type]
        progress=progress,
    )
    return model, history


def evaluate_pairs(model: DualEncoder, pairs: Features, *, bootstrap: int = 1000) -> Report:
    """How well sheet and sound of these pairs find each other, each among all others."""
    views = embed(model, pairs, batch_size=256)
    return evaluate_embeddings(*views, names=model.modalities, bootstrap=bootstrap)
