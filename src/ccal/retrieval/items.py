"""What an index holds, what it answers, and what it is bound to."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ccal.errors import InputError

__all__ = [
    "Binding",
    "Change",
    "Hit",
    "Item",
    "Stats",
    "StorageType",
    "check_files",
    "check_ids",
    "check_metadata",
    "make_items",
]

StorageType = Literal["float32", "float16"]


@dataclass(frozen=True, slots=True)
class Item:
    """What is known of an indexed thing besides its vector."""

    id: str
    modality: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    file: str | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """An item that was found, with its cosine to the query."""

    id: str
    score: float
    modality: str
    metadata: Mapping[str, Any]
    file: str | None


@dataclass(frozen=True)
class Change:
    """New content for an item that is there; what is None stays."""

    id: str
    metadata: Mapping[str, Any] | None = None
    file: str | None = None


@dataclass(frozen=True)
class Binding:
    """The model an index belongs to, and the form of its vectors.

    `dim` is the width of the vectors, `dims` the number of leading canonical dimensions they were
    cut to (None for all), `model_folder` where the model was when the index was built. `codes` are
    the bits of binary codes that choose candidates from `approximate_from` vectors on, None if
    cells do.
    """

    fingerprint: str
    modalities: tuple[str, str]
    dim: int
    dtype: StorageType = "float32"
    dims: int | None = None
    model_folder: str | None = None
    approximate_from: int = 200_000
    codes: int | None = None

    def is_space_of(self, other: Binding) -> bool:
        """Whether vectors of the one can be compared with vectors of the other."""
        mine, others = ((b.fingerprint, b.dim, b.dims) for b in (self, other))
        return mine == others

    def to_json(self) -> str:
        """As text, for any home to keep."""
        return json.dumps({**self.__dict__, "modalities": list(self.modalities)})

    @classmethod
    def from_json(cls, text: str) -> Binding:
        """Back from `to_json`."""
        values = json.loads(text)
        return cls(**{**values, "modalities": tuple(values["modalities"])})


@dataclass(frozen=True)
class Stats:
    """An index in numbers; `details` are its home's own, such as segments and bytes."""

    location: str
    home: str
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
    """Items of one modality, checked: as many of everything, ids different and not empty.

    >>> make_items("image", 1, ["a"], [{"colour": "red"}], None)
    [Item(id='a', modality='image', metadata={'colour': 'red'}, file=None)]
    """
    check_ids(ids)
    for name, values in (("ids", ids), ("metadata", metadata), ("files", files)):
        if values is not None and len(values) != count:
            raise InputError(f"{name} has {len(values)} entries for {count} items.")
    for number, entry in enumerate(metadata or ()):
        check_metadata(entry, f"metadata[{number}]")
    facts: Sequence[Mapping[str, Any]] = [{}] * count if metadata is None else metadata
    paths = [None] * count if files is None else check_files(files)
    rows = zip(ids, facts, paths, strict=True)
    return [Item(id, modality, dict(fact), path) for id, fact, path in rows]


def check_ids(ids: Sequence[str]) -> None:
    """Ids are different, non-empty strings."""
    if isinstance(ids, str):
        raise InputError(f"ids must be a list, got the one string {ids!r}.")
    seen = set()
    for number, id in enumerate(ids):
        if not isinstance(id, str) or not id:
            raise InputError(f"ids[{number}] must be a string that is not empty, got {id!r}.")
        _check_text(id, f"ids[{number}]")
        if id in seen:
            raise InputError(f"ids has {id!r} twice; every item needs an id of its own.")
        seen.add(id)


def check_metadata(entry: Any, name: str) -> None:
    """Metadata are JSON objects."""
    if not isinstance(entry, Mapping):
        raise InputError(f"{name} must be a mapping, got a {type(entry).__name__}.")
    try:
        text = json.dumps(dict(entry), allow_nan=False, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} cannot be kept as JSON: {error}.") from error
    if "\\u0000" in text:
        raise InputError(f"{name} has a NUL character, which databases cannot keep.")


def check_files(files: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Files as text."""
    paths = [os.fspath(file) for file in files]
    for number, path in enumerate(paths):
        _check_text(path, f"files[{number}]")
    return paths


def _check_text(text: str, name: str) -> None:
    """Databases cannot keep NUL, nor bytes of a file name that are not UTF-8."""
    try:
        whole = b"\0" not in text.encode()
    except UnicodeEncodeError:
        whole = False
    if not whole:
        raise InputError(f"{name} = {text!r} has characters that are no text.")
