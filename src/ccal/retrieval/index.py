"""Index: embedded items of one or both modalities, found by queries of either."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace as replaced
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ccal.bounds import Options, Whole, check
from ccal.errors import InputError
from ccal.model import DualEncoder, Items
from ccal.retrieval.backends import create_backend
from ccal.retrieval.backends.base import Backend
from ccal.retrieval.embedding import Progress, embed, embed_items, fingerprint, unit_vectors, width
from ccal.retrieval.index_reader import IndexReader, Location
from ccal.retrieval.items import (
    Binding,
    Item,
    StorageType,
    check_ids,
    count_of,
    default_ids,
    make_changes,
    make_items,
)
from ccal.retrieval.pair_items import PairItems, new_items

if TYPE_CHECKING:
    from ccal.data import Pairs

Metadata = Sequence[Mapping[str, Any]]


class Index(IndexReader):
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
        super().__init__(backend, model)
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
                ids = default_ids(modality, self._backend.next_number(), count)
            yield make_items(modality, count, ids, metadata, files)


def _absolute(folder: Location | None) -> str | None:
    return None if folder is None else str(Path(folder).absolute())
