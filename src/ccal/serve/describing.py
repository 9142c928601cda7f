"""Items and models for people: cards, names, parts of a model."""

from collections.abc import Callable, Sequence
from os.path import basename, splitext
from pathlib import Path
from typing import Any

from ccal.columns import short
from ccal.encoders import front_end_config, tower_config
from ccal.errors import CcalError, InputError
from ccal.features.scan import SUFFIXES
from ccal.model import DualEncoder
from ccal.retrieval import Hit, Item
from ccal.retrieval.items import COUNTERPARTS, counterparts
from ccal.serve.collection import Card

_SOUNDS = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3")
_NAMES = ("title", "name", "caption", "text")
_MEDIA = {"image": ("image", "thumbnail"), "audio": ("audio",)}


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


def card_of(item: Item | Hit, kind: str, others: Sequence[Card] = ()) -> Card:
    """An item with its title, its text, its media, and cards of its counterparts."""
    text = item.metadata.get("text")
    named = (item.metadata.get(key) for key in _NAMES)
    names = [name for name in named if isinstance(name, str) and name.strip()]
    title = names[0] if names else basename(item.file or item.id) or item.id
    media = _MEDIA.get(kind_of(item), ()) if item.file else ()
    text = text if isinstance(text, str) else None
    _, total = counterparts(item)
    # Counterparts are shown as such, not as a fact about the item.
    facts = {k: v for k, v in item.metadata.items() if k != COUNTERPARTS or not total}
    about = (kind, short(title, 200), facts, text, media)
    return Card(item.id, item.modality, *about, others, total)


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
