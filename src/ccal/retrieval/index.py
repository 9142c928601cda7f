"""Index: embedded items of one or both modalities, found by queries of either."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from ccal.errors import InputError
from ccal.model import DualEncoder, Items
from ccal.retrieval.embedding import embed, unit_vectors, width
from ccal.retrieval.filling import Progress, Read, chunks_of, embedded, everything_in
from ccal.retrieval.fingerprint import fingerprint
from ccal.retrieval.home import create_home, open_home
from ccal.retrieval.items import (
    Binding,
    Change,
    Item,
    StorageType,
    check_files,
    check_ids,
    check_metadata,
    make_items,
)
from ccal.retrieval.searching import Searching, check_modality

__all__ = ["Index"]

Location = str | os.PathLike[str]


class Index(Searching):
    """Items with an id, a modality, metadata and perhaps a file, and their vectors.

    An index belongs to the model that made it and refuses any other. A location is a folder,
    `postgresql://user@host/database?table=name`, or `milvus://host:19530/name`. Scores are cosines;
    the best come first, equal ones in the order of their ids. Every change is complete and safe on
    disk when its method returns, and happens as a whole or not at all. One process writes at a
    time, any number search.

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

    @classmethod
    def build(
        cls,
        location: Location,
        model: DualEncoder,
        items: Items,
        *,
        modality: str,
        ids: Sequence[str] | None = None,
        metadata: Sequence[Mapping[str, Any]] | None = None,
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
        """Make an index of items as `model.encode` takes them; none yet is fine, too.

        Args:
            modality: which of the model's two the items are of; `add` adds those of the other.
            ids: of the items; without them they are numbered, as image-1, image-2, ...
            metadata: a JSON object for each item.
            files: where the items came from.
            dtype: "float16" takes half the space and keeps about three digits.
            dims: keep the leading canonical dimensions only, of models that have such.
            approximate_from: with this many vectors, search is approximate if faiss is installed.
            codes: approximate search by binary codes of this many bits, which takes less memory and
                no faiss; in a folder only.
            model_folder: where the model is saved, kept for those who search later.
            replace: build anew what is there, in one step, as with a newer model.
            progress: called with the number of items done and their total.
        """
        if dtype not in ("float32", "float16"):
            raise InputError(f'dtype must be "float32" or "float16", got {dtype!r}.')
        if approximate_from < 1:
            raise InputError(f"approximate_from must be 1 or more, got {approximate_from}.")
        if codes is not None and (codes < 8 or codes % 8):
            raise InputError(f"codes must be a positive multiple of 8 bits, got {codes}.")
        binding = Binding(
            fingerprint(model),
            model.modalities,
            width(model, dims),
            dtype,
            dims,
            _absolute(model_folder),
            approximate_from,
            codes,
        )
        check_modality(modality, binding)
        ids = _numbered(modality, 1, len(items)) if ids is None else ids
        new = make_items(modality, len(items), ids, metadata, files)
        chunks = chunks_of(new, lambda start, stop: items[start:stop])
        batches = embedded(model, dims, chunks, len(new), batch_size, progress)
        return cls(create_home(location, binding, batches, replace=replace), model)

    @classmethod
    def rebuild(
        cls,
        location: Location,
        model: DualEncoder,
        read: Read,
        *,
        model_folder: Location | None = None,
        batch_size: int = 1024,
        progress: Progress | None = None,
    ) -> Self:
        """Embed all items of an index anew, as with a newer model, in one step.

        Ids, metadata, files and the form of the vectors stay. Until the end the old index answers;
        changes that others make meanwhile are lost.

        Args:
            read: gives what items of one modality are, such as the images of their files.
        """
        old, items = everything_in(location)
        binding = replace(
            old,
            fingerprint=fingerprint(model),
            modalities=model.modalities,
            dim=width(model, old.dims),
            model_folder=_absolute(model_folder),
        )
        for item in items:
            check_modality(item.modality, binding)
        chunks = chunks_of(items, lambda start, stop: read(items[start:stop]))
        batches = embedded(model, old.dims, chunks, len(items), batch_size, progress)
        return cls(create_home(location, binding, batches, replace=True), model)

    @classmethod
    def open(cls, location: Location, model: DualEncoder | None = None) -> Self:
        """Open an index; without its model, by vectors and ids only."""
        index = cls(open_home(location), None)
        if model is not None:
            try:
                index.bind(model)
            except BaseException:
                index.close()
                raise
        return index

    def add(
        self,
        modality: str,
        items: Items,
        *,
        ids: Sequence[str] | None = None,
        metadata: Sequence[Mapping[str, Any]] | None = None,
        files: Sequence[Location] | None = None,
        batch_size: int = 1024,
        progress: Progress | None = None,
    ) -> list[str]:
        """Embed and add items; returns their ids."""
        model = self._needed_model("add raw items", "add_vectors")
        new = self._new_items(modality, len(items), ids, metadata, files)
        chunks = chunks_of(new, lambda start, stop: items[start:stop])
        dims = self.binding.dims
        self._home.insert(embedded(model, dims, chunks, len(new), batch_size, progress))
        return [item.id for item in new]

    def add_vectors(
        self,
        modality: str,
        vectors: Any,
        *,
        ids: Sequence[str] | None = None,
        metadata: Sequence[Mapping[str, Any]] | None = None,
        files: Sequence[Location] | None = None,
    ) -> list[str]:
        """Add items by embeddings (n, dim) that the index's model made; returns their ids."""
        rows = unit_vectors(vectors, self.binding.dim, "vectors")
        new = self._new_items(modality, len(rows), ids, metadata, files)
        self._home.insert([(new, rows)])
        return [item.id for item in new]

    def remove(self, ids: Sequence[str]) -> None:
        """Take items out; an id that is not there refuses all."""
        check_ids(ids)
        self._home.remove(ids)

    def update(
        self,
        ids: Sequence[str],
        items: Items | None = None,
        *,
        metadata: Sequence[Mapping[str, Any]] | None = None,
        files: Sequence[Location] | None = None,
    ) -> None:
        """Give items of one modality new content, metadata or files; what is not given stays."""
        check_ids(ids)
        for name, given in (("items", items), ("metadata", metadata), ("files", files)):
            if given is not None and len(given) != len(ids):
                raise InputError(f"{name} has {len(given)} entries for {len(ids)} ids.")
        for number, entry in enumerate(metadata or ()):
            check_metadata(entry, f"metadata[{number}]")
        vectors = None
        if items is not None:
            model = self._needed_model("update raw items", "remove and add_vectors")
            modalities = {item.modality for item in self._home.items(ids)}
            if len(modalities) > 1:
                raise InputError(
                    f"The items to update are of {' and '.join(sorted(modalities))}; update one "
                    "modality at a time."
                )
            for modality in modalities:
                vectors = embed(model, modality, items, self.binding.dims)
        paths = [None] * len(ids) if files is None else check_files(files)
        facts = [None] * len(ids) if metadata is None else metadata
        rows = zip(ids, facts, paths, strict=True)
        self._home.change([Change(*row) for row in rows], vectors)

    def _new_items(
        self,
        modality: str,
        count: int,
        ids: Sequence[str] | None,
        metadata: Sequence[Mapping[str, Any]] | None,
        files: Sequence[Location] | None,
    ) -> list[Item]:
        check_modality(modality, self.binding)
        if ids is None:
            ids = _numbered(modality, self._home.next_number(), count)
        return make_items(modality, count, ids, metadata, files)


def _absolute(folder: Location | None) -> str | None:
    return None if folder is None else str(Path(folder).absolute())


def _numbered(modality: str, first: int, count: int) -> list[str]:
    return [f"{modality}-{number}" for number in range(first, first + count)]
