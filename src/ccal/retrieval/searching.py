"""What one can ask an index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from ccal.errors import InputError
from ccal.model import DualEncoder
from ccal.retrieval.embedding import as_batch, embed, unit_vectors
from ccal.retrieval.errors import OtherModelError
from ccal.retrieval.filters import Where, conditions
from ccal.retrieval.fingerprint import fingerprint
from ccal.retrieval.home import Home, Vectors
from ccal.retrieval.items import Binding, Hit, Item, Stats, check_ids

__all__ = ["Searching", "check_modality"]


class Searching:
    """The half of `Index` that changes nothing."""

    def __init__(self, home: Home, model: DualEncoder | None) -> None:
        self._home, self._model = home, model

    def bind(self, model: DualEncoder) -> None:
        """Let this model embed from now on; it must be the one that made the index."""
        found, binding = fingerprint(model), self.binding
        if found != binding.fingerprint:
            where = f", saved in {binding.model_folder}" if binding.model_folder else ""
            raise OtherModelError(
                f"{self._home.location} was made by another model (fingerprint "
                f"{binding.fingerprint[:12]}{where}; this one has {found[:12]}). Their embeddings "
                "cannot be compared: open it with its own model, or build it anew with this one."
            )
        self._model = model

    @property
    def binding(self) -> Binding:
        """The model the index belongs to, and the form of its vectors."""
        return self._home.binding

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
        list or an array of at least two dimensions) gives a sequence of such sequences. Hits are
        those of this moment, whenever they are looked at.

        Args:
            within: the modality to search in; the other one if the index has it, else its own.
            where: conditions on metadata, see `ccal.retrieval.filters.conditions`.
            exact: no approximation, however large the index is.
        """
        if len(query) != 1:
            x, y = self.binding.modalities
            given = f"got {', '.join(query)}" if query else "got none"
            raise InputError(f"search takes one query, as {x}=... or {y}=...; {given}.")
        ((modality, data),) = query.items()
        check_modality(modality, self.binding)
        model = self._needed_model("search by raw queries", "search_vectors or search_like")
        batch, several = as_batch(data)
        vectors = embed(model, modality, batch, self.binding.dims)
        found = self._search(vectors, self._within(within, modality), k, where, exact)
        return found if several else found[0]

    def search_vectors(
        self,
        vectors: Any,
        *,
        k: int = 10,
        within: str | None = None,
        where: Where | None = None,
        exact: bool = False,
    ) -> Any:
        """The k nearest items of embeddings (dim,) or (n, dim), in all modalities by default."""
        rows = unit_vectors(vectors, self.binding.dim, "vectors")
        scope = self.binding.modalities if within is None else self._within(within, within)
        found = self._search(rows, scope, k, where, exact)
        shape = getattr(vectors, "shape", None)
        several = len(shape) > 1 if shape is not None else isinstance(vectors[0], Sequence)
        return found if several else found[0]

    def search_like(
        self,
        id: str,
        *,
        k: int = 10,
        within: str | None = None,
        where: Where | None = None,
        exact: bool = False,
    ) -> list[Hit]:
        """The k nearest items of an item in the index, which itself is left out."""
        (item,) = self._home.items([id])
        vectors = unit_vectors(self._home.vectors([id]), self.binding.dim, "vectors")
        scope = self._within(within, item.modality)
        hits = self._search(vectors, scope, k + 1, where, exact)[0]
        return [hit for hit in hits if hit.id != id][:k]

    def get(self, ids: Sequence[str]) -> list[Item]:
        """Items by their ids."""
        check_ids(ids)
        return self._home.items(ids)

    def vectors(self, ids: Sequence[str]) -> Vectors:
        """Vectors (n, dim) of items, as they are stored."""
        check_ids(ids)
        return self._home.vectors(ids)

    def ids(self, modality: str | None = None) -> list[str]:
        """All ids, in the order they came."""
        return self._home.ids(modality)

    def count(self, modality: str | None = None) -> int:
        """How many items there are."""
        counts = self._home.counts()
        return sum(counts.values()) if modality is None else counts.get(modality, 0)

    def stats(self) -> Stats:
        """The index in numbers."""
        home, binding = self._home, self.binding
        return Stats(
            home.location,
            home.kind,
            home.counts(),
            binding.dim,
            binding.dtype,
            binding.fingerprint,
            binding.model_folder,
            home.details(),
        )

    def check(self) -> None:
        """Read everything: what can be repaired is, other damage is refused with its name."""
        self._home.check()

    def close(self) -> None:
        """Let go of files and connections, and of the right to write."""
        self._home.close()

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
        """Where a query of a modality is searched: by default in the other one, if it is there."""
        if within is not None:
            check_modality(within, self.binding)
            return (within,)
        held = self._home.counts()
        others = [name for name in self.binding.modalities if name != modality and name in held]
        return (others[0] if others else modality,)

    def _search(
        self, vectors: Vectors, scope: Sequence[str], k: int, where: Where | None, exact: bool
    ) -> Sequence[Sequence[Hit]]:
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise InputError(f"k must be a whole number from 1, got {k!r}.")
        asked = conditions(where) if where else []
        found = self._home.search(vectors, scope, k, asked, exact)
        if not any(found):
            held = self._home.counts()
            if not any(name in held for name in scope):
                what = " or ".join(scope) + " items" if held else "items"
                raise InputError(
                    f"{self._home.location} has no {what}; add some before you search."
                )
        return found


def check_modality(modality: str, binding: Binding) -> None:
    """Refuse a modality that the model does not have."""
    if modality not in binding.modalities:
        x, y = binding.modalities
        raise InputError(f"The index is of {x} and {y}; it has no {modality!r}.")
