"""MilvusBackend: an index on a Milvus server."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Self, TypeVar

import numpy as np

from ccal.errors import CcalError
from ccal.retrieval.backends.base import Backend, Batches, Vectors
from ccal.retrieval.backends.milvus import rows
from ccal.retrieval.backends.milvus.location import Address
from ccal.retrieval.backends.milvus.search import Search
from ccal.retrieval.backends.milvus.server import GoneError, Server
from ccal.retrieval.backends.milvus.state import State
from ccal.retrieval.backends.milvus.writer import Writer
from ccal.retrieval.filters import Condition
from ccal.retrieval.items import Binding, Change, Hit, Item, in_order, no_index

__all__ = ["MilvusBackend"]

T = TypeVar("T")
_PATIENCE = 60.0


class MilvusBackend(Backend):
    """A collection, and an alias NAME that points to it. See `ccal.retrieval.backends.base.Home`.

    Changes count as a whole, by `State`; a build anew fills a collection of its own, to which the
    alias then moves. What Milvus cannot promise: a change is safe when Milvus' log has it, which is
    as safe as that log is; where more than 16,384 vectors are equal, which of them are found is
    Milvus' choice; float16 rounds, but saves no space; a segment that Milvus has just sealed is
    searched by an interim index of its own, by which even exact search is approximate, unless
    queryNode.segcore.interimIndex is off. The first change takes the writer's lock, `close` gives
    it back; that of a process that died on another machine is taken by `?takeover=yes`.
    """

    kind = "milvus"

    def __init__(self, location: str) -> None:
        self._server = Server(Address.parse(location))
        self.location = self._server.address.shown
        self._writer = Writer(self._server, self._state)

    @classmethod
    def exists(cls, location: str) -> bool:
        """Whether there is an index."""
        with closing(cls(location)) as backend:
            return backend._server.state() is not None

    @classmethod
    def open(cls, location: str) -> Self:
        """Open an index that exists."""
        backend = cls(location)
        with backend._closing_on_error():
            state = backend._server.state()
            if state is None:
                problem = f"there is no collection {backend._server.address.name}"
                raise no_index(backend.location, problem)
            backend._bind(state.bound)
        return backend

    @classmethod
    def create(cls, location: str, binding: Binding, batches: Batches, *, replace: bool) -> Self:
        """Build an index in a collection of its own, and let the name stand for it."""
        backend = cls(location)
        with backend._closing_on_error():
            backend._writer.build(binding, batches, replace)
            backend._bind(binding)
        return backend

    def insert(self, batches: Batches) -> int:
        """Add items, all or none."""
        count = 0
        with self._writer.changing() as writing:
            for items, vectors in batches:
                writing.insert(items, vectors)
                count += len(items)
        return count

    def remove(self, ids: Sequence[str]) -> None:
        """Take items out, all or none."""
        with self._writer.changing() as writing:
            writing.remove(ids)

    def change(self, changes: Sequence[Change], vectors: Vectors | None) -> None:
        """Give items new content, all or none."""
        with self._writer.changing() as writing:
            writing.change(changes, vectors)

    def search(
        self,
        queries: Vectors,
        modalities: Sequence[str],
        k: int,
        where: Sequence[Condition],
        exact: bool,
    ) -> list[list[Hit]]:
        """The k nearest of each query, from one state of the index."""
        return self._read(
            lambda state: Search(self._server, state, modalities, k, where, exact).run(queries)
        )

    def items(self, ids: Sequence[str]) -> list[Item]:
        """Items by id."""
        found = self._read(lambda state: rows.find(self._server, state, ids, rows.FACTS))
        return [Item(*rows.facts(row)) for row in in_order(ids, found)]

    def vectors(self, ids: Sequence[str]) -> Vectors:
        """Vectors by id, as they are stored."""
        found = self._read(lambda state: rows.find(self._server, state, ids, ["vector"]))
        return rows.as_vectors(in_order(ids, found), self.binding.dim)

    def ids(self, modality: str | None) -> list[str]:
        """All ids, in the order they came."""
        names = self.binding.modalities if modality is None else [modality]
        found = self._read(lambda state: self._all(state, names, ["id", "number"]))
        return [str(row["id"]) for row in sorted(found, key=lambda row: int(row["number"]))]

    def counts(self) -> dict[str, int]:
        """Items of each modality."""
        return {name: count for name, count in self._state().counts.items() if count}

    def next_number(self) -> int:
        """A number that no item had before."""
        return self._state().numbered + 1

    def details(self) -> dict[str, Any]:
        """Cells for approximate search, rows removed but still there, version of the server."""
        state = self._state()
        return {
            "collection": state.collection,
            "approximate": state.cells,
            "probes": state.probes,
            "removed": state.buried,
            "server": self._server.call("get_server_version"),
        }

    def check(self) -> None:
        """Read all vectors; Milvus keeps checksums of its own."""

        def read(state: State) -> tuple[State, list[dict[str, Any]]]:
            return state, self._all(state, self.binding.modalities, ["id", "vector"])

        state, found = self._read(read)
        if len(found) != sum(state.counts.values()):
            raise CcalError(f"{self.location} is damaged: {len(found)} items of {state.counts}.")
        lengths = np.linalg.norm(rows.as_vectors(found, self.binding.dim), axis=1)
        for row, length in zip(found, lengths, strict=True):
            if abs(length - 1) > 0.01:
                raise CcalError(f"{self.location}: the vector of {row['id']!r} is damaged.")

    def close(self) -> None:
        """Close the connection, which lets others write."""
        self._writer.close()
        self._server.close()

    def _state(self) -> State:
        state = self._server.state()
        if state is None:
            raise CcalError(f"{self.location} is gone: somebody removed the index.")
        self._bind(state.bound)
        return state

    def _all(
        self, state: State, modalities: Sequence[str], fields: Sequence[str]
    ) -> list[dict[str, Any]]:
        gone = rows.buried(self._server, state)
        places = rows.partitions(self.binding, modalities)
        found = self._server.query(state, state.visible(), fields, places)
        return [row for row in found if int(row["row"]) not in gone]

    def _read(self, ask: Callable[[State], T]) -> T:
        """An answer from one state, none of whose rows were deleted meanwhile."""
        end = time.monotonic() + _PATIENCE
        while True:
            before = self._state()
            try:
                answer = ask(before)
                after = self._state()
                if after.collection == before.collection and after.swept <= before.change:
                    return answer
            except GoneError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
            if time.monotonic() > end:
                raise CcalError(f"{self.location} changes faster than it can be read.")
