"""Where an index lives: what every home can do, and which one a location means."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ccal.errors import InputError
from ccal.retrieval.filters import Condition
from ccal.retrieval.items import Binding, Change, Hit, Item

__all__ = ["Batches", "Home", "Vectors", "create_home", "exists", "open_home"]

Vectors = NDArray[np.float32]
Batches = Iterable[tuple[Sequence[Item], Vectors]]


class Home(Protocol):
    """Keeps items with unit vectors (n, dim) and finds the nearest.

    Every change happens as a whole or not at all, and has happened for good when the method
    returns. Vectors, ids and filters have been checked by `Index`.
    """

    location: str
    kind: str

    @property
    def binding(self) -> Binding:
        """The model it belongs to; once that has changed, other methods refuse to go on."""
        ...

    def insert(self, batches: Batches) -> int:
        """Add items; an id that exists refuses all. Returns how many were added."""
        ...

    def remove(self, ids: Sequence[str]) -> None:
        """Take items out; an id that does not exist refuses all."""
        ...

    def change(self, changes: Sequence[Change], vectors: Vectors | None) -> None:
        """Give items new metadata, files or vectors; an id that does not exist refuses all."""
        ...

    def search(
        self,
        queries: Vectors,
        modalities: Sequence[str],
        k: int,
        where: Sequence[Condition],
        exact: bool,
    ) -> Sequence[Sequence[Hit]]:
        """The k nearest of each query by cosine, the best first, equal ones by id."""
        ...

    def items(self, ids: Sequence[str]) -> list[Item]:
        """Items by id, in this order; an id that does not exist is refused."""
        ...

    def vectors(self, ids: Sequence[str]) -> Vectors:
        """Their vectors (n, dim) as they are stored."""
        ...

    def ids(self, modality: str | None) -> list[str]:
        """All ids, in the order they came."""
        ...

    def counts(self) -> dict[str, int]:
        """How many items there are of each modality that has some."""
        ...

    def next_number(self) -> int:
        """A number that no item had before, for ids that nobody chose."""
        ...

    def details(self) -> dict[str, Any]:
        """Numbers of this kind of home."""
        ...

    def check(self) -> None:
        """Read everything; damage is repaired, or refused with its name."""
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...


def exists(location: str | os.PathLike[str]) -> bool:
    """Whether there is an index, be it a damaged one; one half built does not count."""
    home, place = _home_of(location)
    return bool(home.exists(place))


def open_home(location: str | os.PathLike[str]) -> Home:
    """The home of an index that exists."""
    home, place = _home_of(location)
    opened: Home = home.open(place)
    return opened


def create_home(
    location: str | os.PathLike[str], binding: Binding, batches: Batches, *, replace: bool
) -> Home:
    """A new home with its first items; with `replace` in place of an index that is there."""
    home, place = _home_of(location)
    if binding.codes is not None and home.kind != "embedded":
        raise InputError(f"{location} keeps no binary codes; leave codes out, or use a folder.")
    made: Home = home.create(place, binding, batches, replace=replace)
    return made


def _home_of(location: str | os.PathLike[str]) -> tuple[Any, Any]:
    """The class of home that a location means, and the location in its form."""
    scheme, has_scheme, _ = location.partition("://") if isinstance(location, str) else ("",) * 3
    if not has_scheme:
        from ccal.retrieval.embedded import EmbeddedHome

        return EmbeddedHome, Path(location)
    if scheme in ("postgresql", "postgres"):
        from ccal.retrieval.postgres import PostgresHome

        return PostgresHome, location
    if scheme in ("milvus", "http", "https"):
        from ccal.retrieval.milvus import MilvusHome

        return MilvusHome, location
    raise InputError(
        f"{scheme}:// is no home of an index; expected a folder, postgresql://... or milvus://..."
    )
