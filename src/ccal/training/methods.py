"""The models of the methods, built for given training pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from ccal.data import Pairs
from ccal.encoders import DenseTower, FrontEnd, WordCNN, WordCRNN
from ccal.errors import InputError
from ccal.features import ImageFeatures, TfidfVectoriser, WordSequences
from ccal.model import DualEncoder
from ccal.training.features import PairFeatures
from ccal.training.settings import Settings
from ccal.training.starts import LinearStart

__all__ = ["build_model", "fit_front_ends", "projection_options"]

_DIM = 128


def fit_front_ends(settings: Settings, train: Pairs) -> dict[str, FrontEnd]:
    """What turns raw items into features: a network for image files, TF-IDF or words for texts.

    A vocabulary is taken from the training texts only.
    """
    columns = {name: train.column(name) for name in train.names}
    return {
        name: ImageFeatures(settings.backbone)
        if column.files
        else _text_front_end(settings, column[:])
        for name, column in columns.items()
        if column.is_text
    }


def _text_front_end(settings: Settings, texts: list[str]) -> FrontEnd:
    options: dict[str, Any] = {
        name: getattr(settings, name) for name in ("min_count", "lemmatise", "language")
    }
    if settings.text == "tfidf" or settings.method in ("refined", "linear"):
        return TfidfVectoriser(sublinear=settings.sublinear, **options).fit(texts)
    return WordSequences(**options).fit(texts)


def build_model(
    settings: Settings,
    names: tuple[str, str],
    train: PairFeatures,
    *,
    front_ends: dict[str, FrontEnd] | None = None,
    start: LinearStart | None = None,
) -> DualEncoder:
    """A model for these training pairs, with its weights at their start.

    That of "linear" is then complete; `start` is for it and for "refined".
    """
    if len(train) < 2:
        raise InputError(f"Training needs at least 2 pairs, got {len(train)}.")
    torch.manual_seed(settings.seed)
    options: dict[str, Any] = {"front_ends": front_ends}
    if settings.method in ("refined", "linear"):
        towers = (start or LinearStart()).towers(settings, train)
        options.update(projection="none", dim=towers[0].out_features)
        options.update(zip(names, towers, strict=True))
        return DualEncoder(**options)
    options |= projection_options(settings)
    networks: list[nn.Module] = list(_dense_towers(settings, train, options["dim"]))
    for view, name in enumerate(names):
        front_end = (front_ends or {}).get(name)
        if isinstance(front_end, WordSequences):
            tower = WordCNN if settings.text == "word-cnn" else WordCRNN
            networks[view] = tower(front_end.size, options["dim"], length=front_end.length)
    options.update(zip(names, networks, strict=True))
    return DualEncoder(**options)


def projection_options(settings: Settings) -> dict[str, Any]:
    """What `DualEncoder` is told of the projection for "ccal", "dcca" and "learned"."""
    options: dict[str, Any] = {"dim": settings.dim or _DIM}
    if settings.method == "learned":
        options["projection"] = "learned"
    else:
        cca = ("ridge", "relative_ridge", "power", "momentum")
        options["cca"] = {name: getattr(settings, name) for name in cca}
    return options


def _dense_towers(
    settings: Settings, train: PairFeatures, dim: int
) -> tuple[DenseTower, DenseTower]:
    """The paper's towers, with features divided by their largest value in training."""
    largest = np.zeros(2)
    for batch in train.batches():
        largest = np.maximum(largest, [float(view.abs().max()) for view in batch])
    x, y = (
        DenseTower(width, dim, hidden=hidden, scale=float(scale) or 1.0, dropout=dropout)
        for width, hidden, scale, dropout in zip(
            train.widths,
            (settings.hidden_x, settings.hidden_y),
            largest,
            (settings.dropout_x, settings.dropout_y),
            strict=True,
        )
    )
    return x, y
