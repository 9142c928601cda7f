"""What goes into an index and comes out of it, and the errors that all backends share."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ccal.columns import is_text
from ccal.errors import CcalError, InputError

if TYPE_CHECKING:
    from ccal.evaluation.calibration import Match

T = TypeVar("T")
StorageType = Literal["float32", "float16"]

COUNTERPARTS = "counterparts"
"""The key of an item's metadata under which `PairItems` lists its counterparts."""
MOST_COUNTERPARTS = 5
"""An item lists this many of its counterparts at most; it counts all of them."""


class DamagedIndexError(CcalError):
    """A file that cannot be restored from others is damaged; the message names it."""


class IndexInUseError(CcalError):
    """Another process, or another `Index` of this one, is writing to the index."""


class OtherModelError(InputError):
    """The index was made by another model, so that embeddings cannot be compared."""


@dataclass(frozen=True, slots=True)
class Item:
    """An indexed thing, without its vector."""

    id: str
    modality: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    file: str | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """An item that was found, with its cosine to the query.

    `chance` is the chance that it is right, and `match` the same in a word: "strong", "fair" or
    "weak"; both are None if the model does not say. See `ccal.evaluation.calibration`.
    """

    id: str
    score: float
    modality: str
    metadata: Mapping[str, Any]
    file: str | None
    chance: float | None = None
    match: Match | None = None


def counterparts(item: Item | Hit) -> tuple[list[str], int]:
    """Ids of items that an item belongs to (five at most), and how many there were in its pairs.

    Some may have been removed since.

    >>> counterparts(Item("a.jpg", "image", {"counterparts": {"ids": ["a.jpg#1"], "count": 1}}))
    (['a.jpg#1'], 1)
    """
    match item.metadata.get(COUNTERPARTS):
        case {"ids": [*ids], "count": int(count)} if all(isinstance(id, str) for id in ids):
            return ids[:MOST_COUNTERPARTS], count
    return [], 0


@dataclass(frozen=True)
class Change:
    """New content for an item of the index; what is None stays."""

    id: str
    metadata: Mapping[str, Any] | None = None
    file: str | None = None


@dataclass(frozen=True)
class Binding:
    """The model an index belongs to, and the form of its vectors.

    Attributes:
        fingerprint: of the model.
        modalities: the model's two.
        dim: width of the vectors.
        dtype: how vectors are stored.
        dims: number of leading canonical dimensions the vectors were cut to, None for all.
        model_folder: where the model was when the index was built.
        approximate_from: number of vectors from which search is approximate.
        codes: bits of the binary codes that then choose candidates; None if cells do.
    """

    fingerprint: str
    modalities: tuple[str, str]
    dim: int
    dtype: StorageType = "float32"
    dims: int | None = None
    model_folder: str | None = None
    approximate_from: int = 200_000
    codes: int | None = None

    def check_modality(self, modality: str) -> None:
        """Refuse a modality that the model does not have."""
        if not isinstance(modality, str) or modality not in self.modalities:
            x, y = self.modalities
            raise InputError(f"The index is of {x} and {y}; it has no {modality!r}.")

    def check_items(self, items: Sequence[Item]) -> None:
        """Refuse items of a modality that the model does not have."""
        for modality in {item.modality for item in items}:
            self.check_modality(modality)

    def to_json(self) -> str:
        """The binding as JSON, which every backend can store."""
        return json.dumps({**self.__dict__, "modalities": list(self.modalities)})

    @classmethod
    def from_json(cls, text: str) -> Binding:
        """The binding that `to_json` wrote."""
        try:
            values = json.loads(text)
            return cls(**{**values, "modalities": tuple(values["modalities"])})
        except (ValueError, TypeError, KeyError) as error:
            raise DamagedIndexError(
                f"the settings of the index cannot be read ({error}): they are damaged, or of "
                "another version of ccal. Build the index again."
            ) from error


@dataclass(frozen=True)
class Stats:
    """An index in numbers; `details` are its backend's own, such as segments and bytes."""

    location: str
    backend: str
    counts: Mapping[str, int]
    dim: int
    dtype: str
    fingerprint: str
    model_folder: str | None
    details: Mapping[str, Any]


def make_items(
    modality: str,
    count: int,
    ids: Sequence[str],
    metadata: Sequence[Mapping[str, Any]] | None,
    files: Sequence[str | os.PathLike[str]] | None,
) -> list[Item]:
    """Items of one modality; wrong numbers of entries, ids and metadata are refused.

    >>> make_items("image", 1, ["a"], [{"colour": "red"}], None)
    [Item(id='a', modality='image', metadata={'colour': 'red'}, file=None)]
    """
    _check_lengths(f"{count} items", count, ids=ids, metadata=metadata, files=files)
    checked = make_changes(ids, metadata, files)
    return [Item(c.id, modality, dict(c.metadata or {}), c.file) for c in checked]


def make_changes(
    ids: Sequence[str],
    metadata: Sequence[Mapping[str, Any]] | None,
    files: Sequence[str | os.PathLike[str]] | None,
) -> list[Change]:
    """Changes of items; wrong numbers of entries, ids and metadata are refused."""
    check_ids(ids)
    _check_lengths(f"{len(ids)} ids", len(ids), metadata=metadata, files=files)
    for number, entry in enumerate(metadata or ()):
        _check_metadata(entry, f"metadata[{number}]")
    facts = [None] * len(ids) if metadata is None else metadata
    for number, file in enumerate(files or ()):
        if not isinstance(file, str | os.PathLike):
            raise InputError(f"files[{number}] must be a path, got a {type(file).__name__}.")
        _check_text(os.fspath(file), f"files[{number}]")
    paths = [None] * len(ids) if files is None else [os.fspath(file) for file in files]
    return [Change(*row) for row in zip(ids, facts, paths, strict=True)]


def count_of(items: Any) -> int:
    """The number of raw items; what has none is refused."""
    if not hasattr(items, "__len__") or isinstance(items, dict | set):
        raise InputError(f"items must be a list or an array, got a {type(items).__name__}.")
    return len(items)


def default_ids(modality: str, first: int, count: int) -> list[str]:
    """Ids that nobody chose.

    >>> default_ids("image", 1, 2)
    ['image-1', 'image-2']
    """
    return [f"{modality}-{number}" for number in range(first, first + count)]


def check_ids(ids: Sequence[str]) -> None:
    """Refuse ids that are not different, non-empty strings."""
    if isinstance(ids, str):
        raise InputError(f"ids must be a list, got the one string {ids!r}.")
    if not isinstance(ids, Sequence):
        raise InputError(f"ids must be a list, got a {type(ids).__name__}.")
    seen = set()
    for number, id in enumerate(ids):
        if not isinstance(id, str) or not id:
            raise InputError(f"ids[{number}] must be a string that is not empty, got {id!r}.")
        _check_text(id, f"ids[{number}]")
        if id in seen:
            raise InputError(f"ids has {id!r} twice; every item needs an id of its own.")
        seen.add(id)


def in_order(ids: Sequence[str], found: Mapping[str, T]) -> list[T]:
    """The value of each id; an id without one is refused.

    >>> in_order(["b", "a"], {"a": 1, "b": 2})
    [2, 1]
    """
    for id in ids:
        if id not in found:
            raise InputError(f"The index has no item {id!r}; nothing was done.")
    return [found[id] for id in ids]


def id_taken(id: str) -> InputError:
    """The error for a new item whose id exists."""
    return InputError(
        f"The index has an item {id!r} already; nothing was added. Give the new item another id, "
        "change the old one with Index.update, or put an INPUT in place of all that the index "
        "holds with `ccal index --rebuild`."
    )


def no_index(location: object, problem: str) -> InputError:
    """The error for opening a place where no index is."""
    return InputError(
        f"{location} is no index: {problem}. Make one with `ccal index` (in Python, Index.build)."
    )


def no_items(location: object, modalities: Sequence[str]) -> InputError:
    """The error for searching an index that has no items, or none of some modalities."""
    what = f"{' or '.join(modalities)} items" if modalities else "items"
    return InputError(f"{location} has no {what}; add some before you search.")


def is_an_index(location: object) -> InputError:
    """The error for building where an index is."""
    return InputError(
        f"{location} is an index already. Add to it with Index.open(...).add, or build it anew "
        "with replace=True."
    )


def in_use(location: object, writer: str) -> IndexInUseError:
    """The error for a second writer."""
    return IndexInUseError(
        f"{location} is being written to by {writer}; an index has one writer at a time. "
        "Searching works meanwhile; to write, wait until it is done."
    )


def other_model(location: object, binding: Binding, found: str) -> OtherModelError:
    """The error for a model, of the fingerprint `found`, that did not make the index."""
    where = f", saved in {binding.model_folder}" if binding.model_folder else ""
    return OtherModelError(
        f"{location} was made by another model (fingerprint {binding.fingerprint[:12]}{where}; "
        f"this one has {found[:12]}). Their embeddings cannot be compared: open it with its own "
        "model, or build it anew with this one."
    )


def _check_lengths(what: str, count: int, **given: Any) -> None:
    for name, values in given.items():
        if values is not None and not hasattr(values, "__len__"):
            raise InputError(f"{name} must be a list, got a {type(values).__name__}.")
        if values is not None and len(values) != count:
            raise InputError(f"{name} has {len(values)} entries for {what}.")


def _check_metadata(entry: Any, name: str) -> None:
    """Refuse metadata that are no JSON object."""
    if not isinstance(entry, Mapping):
        raise InputError(f"{name} must be a mapping, got a {type(entry).__name__}.")
    try:
        text = json.dumps(dict(entry), allow_nan=False, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} cannot be kept as JSON: {error}.") from error
    if "\\u0000" in text:
        raise InputError(f"{name} has a NUL character, which databases cannot keep.")
    if re.search(r"\d{19}", text):
        json.loads(text, parse_int=partial(_check_integer, name))


def _check_integer(name: str, digits: str) -> None:
    """Refuse whole numbers that databases would round, each in its own way."""
    if not -(2**63) <= int(digits) < 2**63:
        raise InputError(f"{name} has a whole number of more than 64 bits; keep it as text.")


def _check_text(text: str, name: str) -> None:
    """Refuse NUL, and bytes of a file name that are not UTF-8: databases cannot keep them."""
    if not is_text(text):
        raise InputError(f"{name} = {text!r} has characters that are no text.")
