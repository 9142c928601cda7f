"""Items and models in words, for people who look at them."""

from __future__ import annotations

from collections.abc import Mapping
from os.path import basename, splitext
from pathlib import Path
from typing import Any

from ccal.encoders import front_end_config, tower_config
from ccal.errors import CcalError
from ccal.features.scan import SUFFIXES
from ccal.model import DualEncoder
from ccal.retrieval import Hit, Item
from ccal.serve.card import Card

__all__ = ["card_of", "describe_model", "has_words", "kind_of", "short"]

_SOUNDS = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3")
_NAMES = ("title", "name", "caption", "text")
_MEDIA = {"image": ("image", "thumbnail"), "audio": ("audio",)}


def kind_of(item: Item | Hit) -> str:
    """How an item can be shown: as an image, a sound, a text, or by its name alone.

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
    """An item with a title, its text if it has one, and what can be seen or heard of it."""
    about = item.metadata
    text = about.get("text")
    title = _named(about) or basename(item.file or item.id) or item.id
    return Card(
        item.id,
        item.modality,
        kind,
        short(title, 200),
        about,
        text if isinstance(text, str) else None,
        _MEDIA.get(kind_of(item), ()) if item.file else (),
    )


def describe_model(
    model: DualEncoder, fingerprint: str, folder: str | Path | None
) -> dict[str, Any]:
    """What a model is made of, as plain values; the name of its folder, but not the way there."""
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


def short(text: str, length: int) -> str:
    """A text cut to a length.

    >>> short("two dogs run", 8)
    'two dog…'
    """
    return text if len(text) <= length else text[: length - 1] + "…"


def has_words(name: str, words: str) -> bool:
    """Whether all words stand somewhere in a name that is casefolded.

    >>> has_words("the stack of barley", "Barley stack"), has_words("the swan", "barley")
    (True, False)
    """
    return all(word in name for word in words.casefold().split())


def _named(about: Mapping[str, Any]) -> str | None:
    """What somebody called an item."""
    for key in _NAMES:
        name = about.get(key)
        if isinstance(name, str) and name.strip():
            return name
    return None


def _type(config: Any, part: Any) -> str:
    """The registered name of a tower or front end, or that of its class."""
    try:
        return str(config(part)["type"])
    except CcalError:
        return type(part).__name__
