"""A change in the making: rows are written as it goes, and count when the state says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ccal.retrieval.backends.base import Vectors
from ccal.retrieval.backends.milvus.rows import (
    FACTS,
    GRAVES,
    as_vectors,
    chunks,
    facts,
    find,
    make_row,
    partitions,
    per_request,
)
from ccal.retrieval.backends.milvus.server import Server
from ccal.retrieval.backends.milvus.state import State
from ccal.retrieval.items import Change, Item, id_taken, in_order

__all__ = ["Writing"]

_NOBODY = Item("", "")


class Writing:
    """One change, by its number; `numbers` gives row numbers that were never used."""

    def __init__(self, server: Server, state: State, change: int, numbers: Iterator[int]) -> None:
        self._server, self._before, self._numbers = server, state, numbers
        self._binding = state.bound
        self.state = replace(state, change=change)
        """What will be true."""

    def insert(self, items: Sequence[Item], vectors: Vectors) -> None:
        """Add items; one whose id exists is refused."""
        if self._before.numbered and (
            taken := find(self._server, self._before, [item.id for item in items], [])
        ):
            raise id_taken(next(iter(taken)))
        first = self.state.numbered + 1
        self._write(items, vectors, range(first, first + len(items)))
        self._count(Counter(item.modality for item in items))
        self.state = replace(self.state, numbered=self.state.numbered + len(items))

    def remove(self, ids: Sequence[str]) -> None:
        """Take items out."""
        rows = in_order(ids, find(self._server, self._before, ids, ["modality"]))
        self._bury([int(row["row"]) for row in rows])
        gone = Counter(str(row["modality"]) for row in rows)
        self._count({modality: -count for modality, count in gone.items()})

    def change(self, changes: Sequence[Change], vectors: Vectors | None) -> None:
        """Give items new content, which takes new rows."""
        ids = [change.id for change in changes]
        fields = [*FACTS, "number", "vector"]
        rows = in_order(ids, find(self._server, self._before, ids, fields))
        items = []
        for row, change in zip(rows, changes, strict=True):
            id, modality, metadata, file = facts(row)
            metadata = metadata if change.metadata is None else change.metadata
            items.append(Item(id, modality, metadata, change.file or file))
        if vectors is None:
            vectors = as_vectors(rows, self._binding.dim)
        self._write(items, vectors, [int(row["number"]) for row in rows])
        self._bury([int(row["row"]) for row in rows])

    def _write(self, items: Sequence[Item], vectors: Vectors, numbers: Sequence[int]) -> None:
        if self._binding.dtype == "float16":
            vectors = vectors.astype(np.float16).astype(np.float32)
        for modality in dict.fromkeys(item.modality for item in items):
            (partition,) = partitions(self._binding, [modality])
            chosen = [n for n, item in enumerate(items) if item.modality == modality]
            for part in chunks(chosen, per_request(self._binding.dim)):
                born = self.state.change
                rows = [
                    make_row(next(self._numbers), born, numbers[n], items[n], vectors[n])
                    for n in part
                ]
                self._server.call("insert", self.state.collection, rows, partition_name=partition)

    def _bury(self, rows: Sequence[int]) -> None:
        """Note that rows are removed; they stay for those who read an earlier state."""
        nowhere = np.zeros(self._binding.dim, np.float32)
        for part in chunks(rows, per_request(self._binding.dim)):
            born = self.state.change
            notes = [make_row(next(self._numbers), born, row, _NOBODY, nowhere) for row in part]
            self._server.call("insert", self.state.collection, notes, partition_name=GRAVES)
        self.state = replace(self.state, buried=self.state.buried + len(rows))

    def _count(self, more: dict[str, int]) -> None:
        self.state = replace(self.state, counts=self.state.counting(more))
