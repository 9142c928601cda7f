"""Front ends of the raw items of some pairs, and the weights of the parts of a `FeatureUnion`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ccal.cca import CCA, Moments
from ccal.data import Pairs
from ccal.encoders import FrontEnd
from ccal.features import (
    FeatureUnion,
    ImageFeatures,
    SentenceEmbeddings,
    TfidfVectoriser,
    WordSequences,
)
from ccal.features.sentences import MINILM, has_minilm
from ccal.features.union import unions
from ccal.training.batches import PairFeatures, relation
from ccal.training.scoring import clearly_better, reciprocal_ranks
from ccal.training.settings import Settings

_LITE = tuple(f"efficientnet-lite{number}" for number in range(3))
_FEW_IMAGES = 5000
"""Most different images that "auto" shows to three networks: some five minutes of two cores."""
WEIGHING_PAIRS = 2000
"""Most training pairs that the weights of a union are chosen with, evenly spaced."""
_FEWEST_PAIRS = 20
# Views with more features a pair than this are decomposed in the span of the pairs.
_WIDE = 2
_LARGEST_STEP = 2  # weights are 2^-2 to 2^2
_DIM = 256


def text_features(settings: Settings) -> str:
    """The features of texts that the settings mean, such as "tfidf+sentences".

    >>> text_features(Settings(method="zero-shot"))
    'tfidf'
    """
    if settings.method == "zero-shot":
        return "tfidf"
    if settings.text == "auto":
        return "tfidf+sentences" if sentences_available(settings) else "tfidf"
    if settings.starts_linear and settings.text.startswith("word"):
        return "tfidf"
    return settings.text


def sentences_available(settings: Settings) -> bool:
    """Whether text = "auto" has a sentence network: that of the settings, or that of the extra."""
    return settings.sentence_model != MINILM or has_minilm()


def image_networks(settings: Settings, images: Sequence[str]) -> tuple[str, ...]:
    """The networks that the settings mean if these image files are the training pairs'.

    >>> image_networks(Settings(), ["a.jpg", "b.jpg"])
    ('efficientnet-lite0', 'efficientnet-lite1', 'efficientnet-lite2')
    """
    if settings.backbone != "auto":
        return tuple(settings.backbone.split("+"))
    few = len(set(images)) <= _FEW_IMAGES
    return _LITE if few and settings.method != "zero-shot" else _LITE[:1]


def make_front_ends(
    settings: Settings, train: Pairs, *, pair_count: int = 0
) -> dict[str, FrontEnd]:
    """Front ends of raw items: networks for image files; TF-IDF, sentences or words for texts.

    Those of texts have no vocabulary yet; `PairFeatures(train, front_ends, fit=True)` gives them
    that of the training texts. With `pair_count`, TF-IDF also has pairs of words.
    """
    words: dict[str, Any] = {
        name: getattr(settings, name) for name in ("min_count", "lemmatise", "language")
    }
    front_ends: dict[str, FrontEnd] = {}
    for name in train.names:
        column = train.column(name)
        if not column.is_text:
            continue
        parts: list[FrontEnd] = []
        if column.files:
            parts += [ImageFeatures(network) for network in image_networks(settings, column[:])]
        else:
            for kind in text_features(settings).split("+"):
                if kind == "tfidf":
                    options = {**words, "sublinear": settings.sublinear, "pair_count": pair_count}
                    parts.append(TfidfVectoriser(**options))
                elif kind == "sentences":
                    parts.append(SentenceEmbeddings(settings.sentence_model))
                else:
                    parts.append(WordSequences(**words))
        front_ends[name] = parts[0] if len(parts) == 1 else FeatureUnion(parts)
    return front_ends


def choose_weights(
    front_ends: Mapping[str, FrontEnd], seen: PairFeatures, held: PairFeatures
) -> None:
    """Give each part of a union the weight with which linear CCA finds the pairs `held` best.

    The first part keeps weight 1; that of another is doubled or halved as long as that helps by
    more than the standard error. Rows of `seen` and `held` follow the weights of their unions.
    """
    if min(len(seen), len(held)) < _FEWEST_PAIRS:
        return
    rows = np.linspace(0, len(seen) - 1, min(len(seen), WEIGHING_PAIRS)).astype(np.int64)
    positives, firsts = relation(held)
    dim = min(_DIM, *seen.widths, len(rows) - 1)
    usual, moments = seen.scales, None
    if max(seen.widths) <= _WIDE * len(rows):
        # Other weights multiply the rows and columns of the covariances.
        moments = Moments.of(*(view.flatten(1) for view in seen.batch(rows)))

    def scores() -> Tensor:
        cca = CCA.for_retrieval(dim)
        if moments is None:
            cca.fit(*(view.flatten(1).numpy() for view in seen.batch(rows)))
        else:
            scales = (torch.from_numpy(a / b) for a, b in zip(seen.scales, usual, strict=True))
            scaled = moments.scaled(*scales)
            cca.fit_gathered(len(rows), seen.widths, lambda _: (scaled, []))
        views = (view.flatten(1).numpy() for view in held.batch(slice(None)))
        x, y = (torch.from_numpy(view) for view in cca.transform(*views))
        return reciprocal_ranks(x[firsts[0]], y[firsts[1]], positives)

    best = None
    for union in unions(front_ends).values():
        for part in range(1, len(union.parts)):
            best = scores() if best is None else best
            step = 0
            for direction in (1, -1):
                while abs(step + direction) <= _LARGEST_STEP:
                    union.weights[part] = 2.0 ** (step + direction)
                    found = scores()
                    if not clearly_better(found, best):
                        break
                    step, best = step + direction, found
                if step:
                    break
            union.weights[part] = 2.0**step


def features_learned(name: str, front_end: FrontEnd | None) -> str | None:
    """The features that training chose for a modality, in words; None if nothing was chosen."""
    if isinstance(front_end, TfidfVectoriser):
        return f"{name}: {len(front_end.vocabulary):,} words of the training texts are features"
    if not isinstance(front_end, FeatureUnion):
        return None
    parts = []
    for weight, part in zip(front_end.weights, front_end.parts, strict=True):
        if isinstance(part, TfidfVectoriser):
            what = f"{len(part.vocabulary):,} words of the training texts"
        elif isinstance(part, SentenceEmbeddings):
            what = f"{part.width:,} features of sentences"
        else:
            what = f"those of {getattr(part, 'name', type(part).__name__)}"
        parts.append(f"{what} (weight {weight:g})")
    return f"{name}: {' and '.join(parts)} are features"
