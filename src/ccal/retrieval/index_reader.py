"""IndexReader: an index that is searched and read; `Index` in index.py changes it, too."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import Any, Self

import numpy as np

from ccal.bounds import Text, Whole, check
from ccal.errors import InputError
from ccal.evaluation.calibration import HEAD, Calibration
from ccal.model import DualEncoder
from ccal.retrieval.answers import Hits, Judge
from ccal.retrieval.backends import open_backend
from ccal.retrieval.backends.base import Backend, Vectors
from ccal.retrieval.embedding import as_batch, embed, fingerprint, unit_vectors
from ccal.retrieval.filters import Conditions, Where, conditions
from ccal.retrieval.items import Binding, Hit, Item, Stats, check_ids, no_items, other_model

Location = str | os.PathLike[str]
_COUNT_SECONDS = 1.0
BOTH = "both"
"""A value of `within`: search both modalities, and rank each by itself."""


class IndexReader:
    """The half of `Index` that changes nothing."""

    def __init__(self, backend: Backend, model: DualEncoder | None) -> None:
        self._backend, self._model = backend, model
        self.chances = Chances(backend, model)

    @classmethod
    def open(cls, location: Location, model: DualEncoder | None = None) -> Self:
        """Open an index; without its model it is searched by vectors and ids only."""
        index = cls(open_backend(location), None)
        if model is not None:
            with index._backend.closing_on_error():
                index.bind(model)
        return index

    def bind(self, model: DualEncoder) -> None:
        """Use this model to embed from now on; it must be the one that made the index."""
        found, binding = fingerprint(model), self.binding
        if found != binding.fingerprint:
            raise other_model(self._backend.location, binding, found)
        self._model, self.chances = model, Chances(self._backend, model)

    @property
    def binding(self) -> Binding:
        """The model the index belongs to, and the form of its vectors."""
        return self._backend.binding

    def search(
        self,
        *,
        k: int = 10,
        within: str | None = None,
        where: Where | None = None,
        exact: bool = False,
        **query: Any,
    ) -> Any:
        """The k nearest items of a query, given by the name of its modality.

        One query, as in `search(text="a small yellow bird")`, gives a sequence of hits; a batch (a
        list or an array of at least two dimensions) gives a sequence of such sequences. Hits show
        the index as it was during the search, whenever they are looked at.

        Args:
            within: the modality to search in; the other one if the index has it, else its own.
                "both" ranks each by itself and takes hits in turns, the other one's first: cosines
                within a modality are larger, and would leave the other one few places.
            where: conditions on metadata, see `ccal.retrieval.filters.conditions`.
            exact: no approximation, however large the index is.
        """
        if len(query) != 1:
            x, y = self.binding.modalities
            given = f"got {', '.join(query)}" if query else "got none"
            raise InputError(f"search takes one query, as {x}=... or {y}=...; {given}.")
        ((modality, data),) = query.items()
        self.binding.check_modality(modality)
        model = self._needed_model("search by raw queries", "search_vectors or search_like")
        batch, several = as_batch(data)
        vectors = embed(model, modality, batch, self.binding.dims)
        found = self._ranked(vectors, within, k, where, exact, modality)
        return found if several else found[0]

    def search_vectors(
        self,
        vectors: Any,
        *,
        k: int = 10,
        within: str | None = None,
        where: Where | None = None,
        exact: bool = False,
        modality: str | None = None,
    ) -> Any:
        """The k nearest items of embeddings (dim,) or (n, dim), by cosine in all modalities.

        `within` is that of `search`, but for None.

        Say what they are embeddings of by `modality`, and the hits have chances.
        """
        rows = unit_vectors(vectors, self.binding.dim, "vectors")
        if within is None:
            found = self._search(rows, self.binding.modalities, k, where, exact, modality)
        else:
            found = self._ranked(rows, within, k, where, exact, modality)
        return found if np.ndim(vectors) > 1 else found[0]

    def search_like(
        self,
        id: str,
        *,
        k: int = 10,
        within: str | None = None,
        where: Where | None = None,
        exact: bool = False,
    ) -> list[Hit]:
        """The k nearest items of an item in the index, without that item itself."""
        check("k", k, Whole(at_least=1))
        check("id", id, Text())
        (item,) = self._backend.items([id])
        vectors = unit_vectors(self._backend.vectors([id]), self.binding.dim, "vectors")
        hits = self._ranked(vectors, within, k + 1, where, exact, item.modality)[0]
        return [hit for hit in hits if hit.id != id][:k]

    def get(self, ids: Sequence[str]) -> list[Item]:
        """Items by their ids."""
        check_ids(ids)
        return self._backend.items(ids)

    def vectors(self, ids: Sequence[str]) -> Vectors:
        """Vectors (n, dim) of items, as they are stored."""
        check_ids(ids)
        return self._backend.vectors(ids)

    def ids(self, modality: str | None = None) -> list[str]:
        """All ids, in the order in which they were added."""
        if modality is not None:
            self.binding.check_modality(modality)
        return self._backend.ids(modality)

    def count(self, modality: str | None = None) -> int:
        """The number of items."""
        if modality is not None:
            self.binding.check_modality(modality)
        counts = self._backend.counts()
        return sum(counts.values()) if modality is None else counts.get(modality, 0)

    def stats(self) -> Stats:
        """The index in numbers."""
        backend, bound = self._backend, self.binding
        form = (bound.dim, bound.dtype, bound.fingerprint, bound.model_folder)
        return Stats(backend.location, backend.kind, backend.counts(), *form, backend.details())

    def ping(self) -> None:
        """Raise `CcalError` unless the index is where it was opened, answers, and has its model."""
        self._backend.ping()

    def check(self) -> None:
        """Read everything; damage is repaired, or refused with its name."""
        self._backend.check()

    def close(self) -> None:
        """Close files and connections, which lets others write."""
        self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _needed_model(self, purpose: str, instead: str) -> DualEncoder:
        if self._model is None:
            raise InputError(
                f"The index was opened without its model, which it takes to {purpose}. Open it "
                f"with Index.open(location, model), or use {instead}."
            )
        return self._model

    def _within(self, within: str | None, modality: str) -> tuple[str, ...]:
        """The modalities that a query searches: by default the other one, if it has items."""
        if within is not None:
            self.binding.check_modality(within)
            return (within,)
        held = self._backend.counts()
        others = [name for name in self.binding.modalities if name != modality and name in held]
        return (others[0] if others else modality,)

    def _ranked(
        self,
        vectors: Vectors,
        within: str | None,
        k: int,
        where: Where | None,
        exact: bool,
        modality: str | None,
    ) -> Sequence[Sequence[Hit]]:
        """Hits of one modality, or those of both in turns."""
        names = self.binding.modalities
        if not isinstance(within, str) or within != BOTH or BOTH in names:
            scope = self._within(within, names[0] if modality is None else modality)
            return self._search(vectors, scope, k, where, exact, modality)
        held = self._backend.counts()
        order = reversed(names) if modality == names[0] else names
        scopes: list[Sequence[str]] = [(name,) for name in order if name in held] or [names]
        found = (self._search(vectors, scope, k, where, exact, modality) for scope in scopes)
        return [
            [hit for turn in zip_longest(*lists) for hit in turn if hit is not None][:k]
            for lists in zip(*found, strict=True)
        ]

    def _search(
        self,
        vectors: Vectors,
        scope: Sequence[str],
        k: int,
        where: Where | None,
        exact: bool,
        modality: str | None,
    ) -> Sequence[Sequence[Hit]]:
        check("k", k, Whole(at_least=1))
        found = self.chances.search(
            vectors, scope, k, conditions({} if where is None else where), exact, modality
        )
        if not any(found):
            held = self._backend.counts()
            if not any(name in held for name in scope):
                raise no_items(self._backend.location, scope if held else ())
        return found


class Chances:
    """The calibrations of the model of an index, and the number of items to apply them to.

    The number may be a second old, since some servers take a while to count.
    """

    def __init__(self, backend: Backend, model: DualEncoder | None) -> None:
        self._backend = backend
        self._calibrations = {} if model is None else model.calibrations
        self._counted: tuple[float, Mapping[str, int]] = (0.0, {})

    def calibration(self, modality: str | None, scope: Sequence[str]) -> Calibration | None:
        """The calibration for queries of a modality that search the items of a scope.

        None within one modality, for vectors cut to leading dimensions, for models of earlier
        versions and for an index that was opened without its model.
        """
        if modality is None:
            return None
        self._backend.binding.check_modality(modality)
        if modality in scope or self._backend.binding.dims is not None:
            return None
        return self._calibrations.get(modality)

    def candidates(self, scope: Sequence[str]) -> int:
        """The number of items of a scope."""
        now = time.monotonic()
        if now > self._counted[0]:
            self._counted = (now + _COUNT_SECONDS, self._backend.counts())
        return sum(self._counted[1].get(name, 0) for name in scope)

    def search(
        self,
        queries: Vectors,
        scope: Sequence[str],
        k: int,
        where: Conditions,
        exact: bool,
        modality: str | None,
    ) -> Sequence[Sequence[Hit]]:
        """The k nearest of each query of a modality, as the backend finds them, with chances."""
        calibration = self.calibration(modality, scope)
        if calibration is None:
            return self._backend.search(queries, scope, k, where, exact)
        answers = self._backend.search(queries, scope, max(k, HEAD), where, exact)
        judge = partial(calibration.judged, candidates=self.candidates(scope))
        return [_judged(hits, judge, k) for hits in answers]


def _judged(hits: Sequence[Hit], judge: Judge, k: int) -> Sequence[Hit]:
    """The first k hits of a query, with chances by the scores of all of them."""
    if isinstance(hits, Hits):
        return hits.judged(judge, k)
    marks = judge([hit.score for hit in hits])
    return [replace(hit, chance=c, match=m) for hit, (c, m) in zip(hits[:k], marks, strict=False)]
