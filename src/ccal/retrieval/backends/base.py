"""Backend: keeps items with their unit vectors, and finds the nearest."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ccal.errors import InputError
from ccal.retrieval.filters import Conditions
from ccal.retrieval.items import Binding, Change, Hit, Item, OtherModelError

Vectors = NDArray[np.float32]
Batches = Iterable[tuple[Sequence[Item], Vectors]]


class Backend(ABC):
    """An open index in one kind of storage.

    A change has happened for good when its method returns; what a failed one leaves behind
    differs between backends, see docs/retrieval.md. `Index` has checked vectors, ids and filters.

    Attributes:
        kind: the name of the storage: "folder", "postgres" or "milvus".
        many_writers: whether several processes may `upsert` at a time.
        location: where the index is, without passwords.
    """

    kind: ClassVar[str]
    many_writers: ClassVar[bool] = False
    location: str
    _binding: Binding | None = None

    @classmethod
    @abstractmethod
    def exists(cls, location: str) -> bool:
        """Whether there is an index, be it a damaged one."""

    @classmethod
    @abstractmethod
    def open(cls, location: str) -> Self:
        """Open an index that exists."""

    @classmethod
    @abstractmethod
    def create(cls, location: str, binding: Binding, batches: Batches, *, replace: bool) -> Self:
        """Build an index; with `replace`, instead of one that is there, which answers till then."""

    @property
    def binding(self) -> Binding:
        """The model the index belongs to, as it was when the index was opened."""
        assert self._binding is not None  # set by `open` and `create`
        return self._binding

    @abstractmethod
    def insert(self, batches: Batches) -> None:
        """Add items; an id that exists is refused."""

    @abstractmethod
    def remove(self, ids: Sequence[str]) -> None:
        """Remove items; an id that does not exist is refused before anything is removed."""

    @abstractmethod
    def change(self, changes: Sequence[Change], vectors: Vectors | None) -> None:
        """Give items new metadata, files or vectors; an unknown id is refused at first."""

    @abstractmethod
    def search(
        self, queries: Vectors, modalities: Sequence[str], k: int, where: Conditions, exact: bool
    ) -> Sequence[Sequence[Hit]]:
        """The k nearest of each query by cosine, the best first, equal ones by id.

        All answers show one state of the index, except in Milvus.
        """

    @abstractmethod
    def items(self, ids: Sequence[str]) -> list[Item]:
        """Items by id, in this order; an id that does not exist is refused."""

    @abstractmethod
    def vectors(self, ids: Sequence[str]) -> Vectors:
        """Their vectors (n, dim) as they are stored."""

    @abstractmethod
    def ids(self, modality: str | None) -> list[str]:
        """All ids, in the order in which they were added."""

    @abstractmethod
    def counts(self) -> dict[str, int]:
        """The number of items of each modality that has some."""

    @abstractmethod
    def next_number(self) -> int:
        """A number that no item had before, for ids that nobody chose."""

    @abstractmethod
    def details(self) -> dict[str, Any]:
        """Numbers of this kind of backend."""

    def ping(self) -> None:
        """Raise `CcalError` unless the index is where it was, and of the same model."""
        self.counts()

    @abstractmethod
    def check(self) -> None:
        """Read everything; damage is repaired, or refused with its name."""

    @abstractmethod
    def close(self) -> None:
        """Close files and connections."""

    def upsert(self, items: Sequence[Item], vectors: Vectors, first: int) -> None:
        """Write a part of a load, numbered from `first` on, in place of items of the same ids.

        May be repeated, which changes nothing. `finish_load` follows the last one.
        """
        raise _no_loads(self)

    def reserve(self, count: int) -> int:
        """The first of so many numbers for the items of a load, which no others will have."""
        raise _no_loads(self)

    def finish_load(self) -> None:
        """Count what was loaded, and make the files or indexes that searches use."""
        raise _no_loads(self)

    def recall(self, key: str) -> str | None:
        """The text that `note` kept under a key; building the index anew forgets it."""
        raise _no_loads(self)

    def note(self, key: str, text: str) -> None:
        """Keep a short text with the index, such as which parts of a load are done."""
        raise _no_loads(self)

    @contextmanager
    def closing_on_error(self) -> Iterator[None]:
        """Close this backend if opening or building it fails."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _bind(self, binding: Binding) -> None:
        """Keep the binding that was read first, and refuse one of another space from then on."""
        spaces = {(b.fingerprint, b.dim, b.dims) for b in (binding, self._binding or binding)}
        if len(spaces) > 1:
            raise OtherModelError(
                f"{self.location} was built anew, by another model or with other dimensions, "
                "since it was opened; open it again."
            )
        self._binding = binding


def _no_loads(backend: Backend) -> InputError:
    return InputError(f"{backend.location} cannot be filled by shards; use Index.add.")


def best_hits(query: Any, items: Sequence[Item], vectors: Sequence[Any], k: int) -> list[Hit]:
    """The k items of the highest cosines with a query (d,), equal ones in the order of their ids.

    A server computes in float32, each in its own order; so its scores only choose candidates, and
    all backends give cosines in float64.
    """
    if not items:
        return []
    rows = np.stack([np.asarray(vector, np.float32) for vector in vectors]).astype(np.float64)
    cosines = (rows * query.astype(np.float64)).sum(1).round(12).tolist()
    pairs = sorted(zip(cosines, items, strict=True), key=lambda pair: (-pair[0], pair[1].id))
    return [Hit(i.id, cosine, i.modality, i.metadata, i.file) for cosine, i in pairs[:k]]
