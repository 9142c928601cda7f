"""Items, models and scores for people: cards, parts of a model, reasons for a match, the map."""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from os.path import basename, splitext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ccal.cca import CCALayer
from ccal.encoders import front_end_config, tower_config
from ccal.errors import CcalError, InputError
from ccal.features.scan import SUFFIXES
from ccal.model import DualEncoder
from ccal.retrieval import Hit, Item
from ccal.retrieval.backends.base import Vectors
from ccal.serve.collection import Card

POINTS = 5000
"""Most points of a map: more cannot be told apart."""

_SOUNDS = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3")
_NAMES = ("title", "name", "caption", "text")
_MEDIA = {"image": ("image", "thumbnail"), "audio": ("audio",)}
_DIMENSIONS, _WORDS = 8, 40


def kind_of(item: Item | Hit) -> str:
    """How an item is shown: as an image, a sound, a text, or by its name alone.

    >>> kind_of(Item("1", "photo", {}, "a/B.JPG")), kind_of(Item("2", "x", {"text": "a dog"}))
    ('image', 'text')
    """
    suffix = splitext(item.file)[1].lower() if item.file else ""
    if suffix in SUFFIXES:
        return "image"
    if suffix in _SOUNDS:
        return "audio"
    return "text" if isinstance(item.metadata.get("text"), str) else "array"


def card_of(item: Item | Hit, kind: str) -> Card:
    """An item with its title, its text and its media."""
    text = item.metadata.get("text")
    named = (item.metadata.get(key) for key in _NAMES)
    names = [name for name in named if isinstance(name, str) and name.strip()]
    title = names[0] if names else basename(item.file or item.id) or item.id
    media = _MEDIA.get(kind_of(item), ()) if item.file else ()
    text = text if isinstance(text, str) else None
    return Card(item.id, item.modality, kind, short(title, 200), item.metadata, text, media)


def short(text: str, length: int) -> str:
    """A text cut to a length.

    >>> short("two dogs run", 8)
    'two dog…'
    """
    return text if len(text) <= length else text[: length - 1] + "…"


def check_modality(name: str | None, modalities: Sequence[str]) -> None:
    """Refuse a name that is not one of the two modalities."""
    if name is not None and name not in modalities:
        known = " and ".join(modalities)
        raise InputError(f"The collection has {known}, no {short(name, 40)!r}.")


def has_words(name: str, words: str) -> bool:
    """Whether a casefolded name contains all words.

    >>> has_words("the stack of barley", "Barley stack"), has_words("the swan", "barley")
    (True, False)
    """
    return all(word in name for word in words.casefold().split())


def describe_model(
    model: DualEncoder, fingerprint: str, folder: str | Path | None
) -> dict[str, Any]:
    """The parts of a model as plain values; of its folder the name alone."""
    return {
        "name": None if folder is None else Path(folder).name,
        "modalities": list(model.modalities),
        "dim": model.dim,
        "projection": model.projection_type,
        "hub_correction": model.hubs is not None,
        "towers": {name: _type(tower_config, tower) for name, tower in model.towers.items()},
        "front_ends": {
            name: _type(front_end_config, part) for name, part in model.front_ends.items()
        },
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "fingerprint": fingerprint,
    }


def _type(config: Callable[[Any], dict[str, Any]], part: Any) -> str:
    """The registered name of a tower or front end, or the name of its class."""
    try:
        return str(config(part)["type"])
    except CcalError:
        return type(part).__name__


def split_words(text: str, knows: Callable[[str], bool]) -> list[dict[str, Any]]:
    """The words of a text, from character `start` to before `end`, and whether they are known.

    >>> split_words("Zwei dogs", "dogs".__eq__)[1]
    {'word': 'dogs', 'start': 5, 'end': 9, 'known': True}
    """
    words, start = [], None
    for position, char in enumerate(text + " "):
        inside = unicodedata.category(char)[0] in "LMN" or (
            # An apostrophe between letters is part of the word.
            char in "'’" and start is not None and text[position + 1 : position + 2].isalnum()
        )
        if inside and start is None:
            start = position
        elif not inside and start is not None:
            word = text[start:position]
            words.append({"word": word, "start": start, "end": position, "known": knows(word)})
            start = None
    return words


def leave_one_out(text: str) -> list[str]:
    """The text without its first word, without its second, and so on for the first 40 words."""
    words = split_words(text, lambda word: True)[:_WORDS]
    return [text[: word["start"]] + text[word["end"] :] for word in words]


def word_weights(
    words: Sequence[Mapping[str, Any]], losses: Sequence[float]
) -> list[dict[str, Any]]:
    """Words with what the score loses without them; None beyond the first 40."""
    weights = [*losses, *[None] * (len(words) - len(losses))]
    return [{**word, "weight": weight} for word, weight in zip(words, weights, strict=True)]


def contributions(model: DualEncoder, query: Vectors, found: Vectors) -> list[dict[str, Any]]:
    """How each dimension contributes to the cosines of a query (d,) with vectors (n, d).

    The products of two unit vectors, dimension by dimension, sum to their cosine. The eight largest
    are named, the others summed. The last four columns are those of the hub correction, if any.
    """
    products = found.astype(np.float64) * query.astype(np.float64)
    canonical = products.shape[1] - (4 if model.hubs is not None else 0)
    correlations: list[float | None] = [None] * canonical
    if isinstance(model.projection, CCALayer):
        measured = model.projection.correlations.tolist()
        correlations = [value if np.isfinite(value) else None for value in measured]
    explained = []
    for row in products:
        leading = np.argsort(-np.abs(row[:canonical]), kind="stable")[:_DIMENSIONS].tolist()
        named = [
            {"dimension": d + 1, "contribution": float(row[d]), "correlation": correlations[d]}
            for d in leading
        ]
        rest = float(row[:canonical].sum() - row[leading].sum())
        correction = float(row[canonical:].sum()) if model.hubs is not None else None
        about = {"dimensions": named, "rest": rest, "correction": correction, "words": None}
        explained.append(about)
    return explained


def evenly(count: int, most: int) -> list[int]:
    """At most `most` of the numbers 0 to `count` - 1, evenly spaced.

    >>> evenly(10, 3)
    [0, 4, 9]
    """
    numbers: list[int] = np.linspace(0, count - 1, min(count, most)).astype(np.int64).tolist()
    return numbers


def map_of(total: int, cards: Sequence[Card], vectors: Vectors) -> dict[str, Any]:
    """A map of `total` items, or of some of them: cards and vectors (n, d) as columns."""
    modalities = [card.modality for card in cards]
    return {
        "total": total,
        "ids": [card.id for card in cards],
        "modalities": modalities,
        "kinds": [card.kind for card in cards],
        "labels": [short(card.title, 80) for card in cards],
        **plane(vectors, modalities),
    }


def plane(vectors: Vectors, groups: Sequence[str]) -> dict[str, Any]:
    """Coordinates x and y of vectors (n, d) within -1 and 1, by principal components.

    Each group (n,) is centred by itself: modalities lie somewhat apart, and otherwise the first
    component would only separate them. `explained` are shares of the variance.

    >>> plane(np.float32([[0, 0], [2, 0], [4, 1]]), ["a"] * 3)["explained"][0] > 0.9
    True
    """
    rows = torch.from_numpy(np.asarray(vectors, np.float64))
    for name in set(groups):
        members = torch.tensor([group == name for group in groups])
        rows[members] -= rows[members].mean(0)
    _, sizes, directions = torch.linalg.svd(rows, full_matrices=False)
    directions = directions[:2]
    # The sign of a component is arbitrary; the largest entry becomes positive, so that maps repeat.
    signs = directions.gather(1, directions.abs().argmax(1, keepdim=True)).sign()
    points = torch.zeros(len(rows), 2, dtype=torch.float64)
    points[:, : len(directions)] = rows @ (directions * signs).mT
    points /= points.abs().max().clamp_min(1e-12)
    shares = sizes.square() / sizes.square().sum().clamp_min(1e-12)
    x, y = ([round(value, 4) for value in column] for column in points.T.tolist())
    return {"x": x, "y": y, "explained": shares[:2].tolist()}
