"""Index: embedded items of one or both modalities, found by queries of either."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace as replaced
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ccal.bounds import Options, Text, Whole, check
from ccal.errors import InputError
from ccal.model import DualEncoder, Items
from ccal.retrieval.backends import create_backend, open_backend
from ccal.retrieval.backends.base import Backend, Vectors
from ccal.retrieval.chances import Chances
from ccal.retrieval.embedding import (
    Progress,
    as_batch,
    embed,
    embed_items,
    fingerprint,
    unit_vectors,
    width,
)
from ccal.retrieval.filters import Where, conditions
from ccal.retrieval.items import (
    Binding,
    Hit,
    Item,
    Stats,
    StorageType,
    check_ids,
    count_of,
    make_changes,
    make_items,
    no_items,
    numbered,
    other_model,
)
from ccal.retrieval.pair_items import PairItems, new_items

if TYPE_CHECKING:
    from ccal.data import Pairs

Location = str | os.PathLike[str]
Metadata = Sequence[Mapping[str, Any]]


class Index:
    """Items with an id, a modality, metadata and perhaps a file, and their vectors.

    An index belongs to the model that made it and refuses any other. A location is a folder,
    `postgresql://user@host/database?table=name`, or `milvus://host:19530/name`. Scores are cosines;
    the best come first, equal ones in the order of their ids. A change is safe when its method
    returns. In a folder and in PostgreSQL it happens as a whole or not at all, and one process
    writes at a time; docs/retrieval.md says what Milvus promises. Any number of processes search.

    >>> import tempfile, torch
    >>> from ccal.encoders import DenseTower
    >>> model = DualEncoder(dim=4, projection="none", image=DenseTower(4, 4), text=DenseTower(4, 4))
    >>> folder = tempfile.TemporaryDirectory()
    >>> index = Index.build(folder.name, model, torch.eye(4), modality="image", ids=list("abcd"))
    >>> [hit.id for hit in index.search(image=torch.eye(4)[2], k=1)]
    ['c']
    >>> index.remove(["c"])
    >>> index.count(), index.search_like("a", within="image", k=1)[0].id in "bd"
    (3, True)
    >>> index.close(); folder.cleanup()
    """

    def __init__(self, backend: Backend, model: DualEncoder | None) -> None:
        self._backend, self._model = backend, model
        self.chances = Chances(backend, model)
        self._adding = threading.Lock()

    @classmethod
    def build(
        cls,
        location: Location,
        model: DualEncoder,
        items: Items | Pairs | PairItems,
        *,
        modality: str | None = None,
        ids: Sequence[str] | None = None,
        metadata: Metadata | None = None,
        files: Sequence[Location] | None = None,
        dtype: StorageType = "float32",
        dims: int | None = None,
        approximate_from: int = 200_000,
        codes: int | None = None,
        model_folder: Location | None = None,
        replace: bool = False,
        batch_size: int = 1024,
        progress: Progress | None = None,
    ) -> Self:
        """Make an index of items as `model.encode` takes them, or of the items of pairs.

        Args:
            items: of one modality; there may be none yet. Of `Pairs`, the distinct items of both
                modalities, each with its counterparts; `PairItems` says how they are called.
            modality: of the items (`add` takes those of the other); of `Pairs`, the only one.
            ids: of the items; without them they are numbered, as image-1, image-2, ...
            metadata: a JSON object for each item.
            files: where the items came from.
            dtype: "float16" takes half the space and keeps about three digits.
            dims: keep the leading canonical dimensions only, of models that have such.
            approximate_from: with this many vectors, search is approximate if faiss is installed.
            codes: bits of binary codes for approximate search, in a folder: less memory, no faiss.
            model_folder: where the model is saved, kept for those who search later.
            replace: build anew what is there, in one step, as with a newer model.
            progress: called with the number of items done and their total.
        """
        check("dtype", dtype, Options("float32", "float16"))
        check("approximate_from", approximate_from, Whole(at_least=1))
        check("codes", codes, Whole(at_least=8, at_most=16_384), Options(None))
        if codes is not None and codes % 8:
            raise InputError(f"codes must be a positive multiple of 8 bits, got {codes}.")
        form = (dtype, dims, _absolute(model_folder), approximate_from, codes)
        binding = Binding(fingerprint(model), model.modalities, width(model, dims), *form)
        new, raw = new_items(binding, items, modality, ids, metadata, files)
        batches = embed_items(model, dims, new, raw, batch_size, progress)
        return cls(create_backend(location, binding, batches, replace=replace), model)

    @classmethod
    def rebuild(
        cls,
        location: Location,
        model: DualEncoder,
        read: Callable[[Sequence[Item]], Items],
        *,
        model_folder: Location | None = None,
        batch_size: int = 1024,
        progress: Progress | None = None,
    ) -> Self:
        """Embed all items of an index anew, as with a newer model, in one step.

        Ids, metadata, files and the form of the vectors stay. Until the end the old index answers;
        changes that others make meanwhile are lost.

        Args:
            read: gives the raw content of items of one modality, such as images of their files.
        """
        with cls.open(location) as opened:
            old = opened.binding
            items = opened.get([id for name in old.modalities for id in opened.ids(name)])
        binding = replaced(
            old,
            fingerprint=fingerprint(model),
            modalities=model.modalities,
            dim=width(model, old.dims),
            model_folder=_absolute(model_folder),
        )
        binding.check_items(items)
        batches = embed_items(model, old.dims, items, read, batch_size, progress)
        return cls(create_backend(location, binding, batches, replace=True), model)

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

    def add(
        self,
        modality: str,
        items: Items,
        *,
        ids: Sequence[str] | None = None,
        metadata: Metadata | None = None,
        files: Sequence[Location] | None = None,
        batch_size: int = 1024,
        progress: Progress | None = None,
    ) -> list[str]:
        """Embed and add items; returns their ids."""
        model = self._needed_model("add raw items", "add_vectors")
        count, dims = count_of(items), self.binding.dims
        with self._new_items(modality, count, ids, metadata, files) as new:
            self._backend.insert(embed_items(model, dims, new, items, batch_size, progress))
        return [item.id for item in new]

    def add_pairs(
        self, pairs: Pairs | PairItems, *, batch_size: int = 1024, progress: Progress | None = None
    ) -> list[str]:
        """Embed and add the distinct items of pairs, as `build` does; returns their ids."""
        model = self._needed_model("add raw items", "add_vectors")
        found = pairs if isinstance(pairs, PairItems) else PairItems(pairs)
        self.binding.check_items(found.items)
        batches = (model, self.binding.dims, found.items, found.read, batch_size, progress)
        self._backend.insert(embed_items(*batches))
        return [item.id for item in found.items]

    def add_vectors(
        self,
        modality: str,
        vectors: Any,
        *,
        ids: Sequence[str] | None = None,
        metadata: Metadata | None = None,
        files: Sequence[Location] | None = None,
    ) -> list[str]:
        """Add items by embeddings (n, dim) that the index's model made; returns their ids."""
        rows = unit_vectors(vectors, self.binding.dim, "vectors")
        with self._new_items(modality, len(rows), ids, metadata, files) as new:
            self._backend.insert([(new, rows)])
        return [item.id for item in new]

    def remove(self, ids: Sequence[str]) -> None:
        """Remove items; if one of the ids does not exist, nothing is removed."""
        check_ids(ids)
        self._backend.remove(ids)

    def update(
        self,
        ids: Sequence[str],
        items: Items | None = None,
        *,
        metadata: Metadata | None = None,
        files: Sequence[Location] | None = None,
    ) -> None:
        """Give items of one modality new content, metadata or files; what is not given stays."""
        changes = make_changes(ids, metadata, files)
        vectors = None
        if items is not None:
            if count_of(items) != len(ids):
                raise InputError(f"items has {len(items)} entries for {len(ids)} ids.")
            model = self._needed_model("update raw items", "remove and add_vectors")
            modalities = {item.modality for item in self._backend.items(ids)}
            if len(modalities) > 1:
                raise InputError(
                    f"The items to update are of {' and '.join(sorted(modalities))}; update one "
                    "modality at a time."
                )
            for modality in modalities:
                vectors = embed(model, modality, items, self.binding.dims)
        self._backend.change(changes, vectors)

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
        found = self._search(vectors, self._within(within, modality), k, where, exact, modality)
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
        """The k nearest items of embeddings (dim,) or (n, dim), in all modalities by default.

        Say what they are embeddings of by `modality`, and the hits have chances.
        """
        rows = unit_vectors(vectors, self.binding.dim, "vectors")
        scope = self.binding.modalities if within is None else self._within(within, within)
        found = self._search(rows, scope, k, where, exact, modality)
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
        scope = self._within(within, item.modality)
        hits = self._search(vectors, scope, k + 1, where, exact, item.modality)[0]
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

    @contextmanager
    def _new_items(
        self,
        modality: str,
        count: int,
        ids: Sequence[str] | None,
        metadata: Metadata | None,
        files: Sequence[Location] | None,
    ) -> Iterator[list[Item]]:
        """Items to insert; no other thread gets the numbers of those without ids meanwhile."""
        self.binding.check_modality(modality)
        with self._adding:
            if ids is None:
                ids = numbered(modality, self._backend.next_number(), count)
            yield make_items(modality, count, ids, metadata, files)

    def _needed_model(self, purpose: str, instead: str) -> DualEncoder:
        if self._model is None:
            raise InputError(
                f"The index was opened without its model, which it takes to {purpose}. Open it "
                f"with Index.open(location, model), or use {instead}."
            )
        return self._model

    def _within(self, within: str | None, modality: str) -> tuple[str, ...]:
        """Where a query of a modality is searched: by default in the other one, if it has items."""
        if within is not None:
            self.binding.check_modality(within)
            return (within,)
        held = self._backend.counts()
        others = [name for name in self.binding.modalities if name != modality and name in held]
        return (others[0] if others else modality,)

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


def _absolute(folder: Location | None) -> str | None:
    return None if folder is None else str(Path(folder).absolute())
