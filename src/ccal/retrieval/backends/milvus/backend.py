"""MilvusBackend: an index on a Milvus server.

A row of the collection is an item; its primary key is a hash of the id, so that writing an item
again replaces it. Milvus has no transactions: a change is a series of requests, and readers may see
a part of it. A call that failed can be repeated with the same ids, and then completes the change.
The name of the index is an alias; a rebuild fills another collection, to which the alias then moves
in one step. docs/retrieval.md lists what is promised.
"""

import re
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Any, Self, TypeVar

import numpy as np

from ccal.errors import CcalError, InputError
from ccal.retrieval.backends.base import Backend, Batches, Vectors, best_hits
from ccal.retrieval.backends.milvus.server import (
    EXACT,
    FACTS,
    LIMIT,
    STRONG,
    TIMEOUT,
    About,
    Server,
    UnavailableError,
    chunks,
    item_of,
    key_of,
    vectors_of,
    within,
)
from ccal.retrieval.exact import slack
from ccal.retrieval.filters import Conditions, meets, milvus_condition
from ccal.retrieval.items import (
    Binding,
    Change,
    Hit,
    Item,
    id_taken,
    in_order,
    is_an_index,
    no_index,
)

T = TypeVar("T")
# Milvus computes in float32; among a few more than k are the k best of float64.
_SPARE = 2
_ANSWER_BYTES = 32 << 20
_TRUSTED = 1.0
"""Seconds for which searches take the collection to be the one that the alias points to."""


class MilvusBackend(Backend):
    """A collection, and an alias NAME that points to it.

    The location is `milvus://user:password@host:port/NAME`, or the same by http, or by https for
    TLS. Options follow a question mark: `database`; `shards` of a new index; `consistency`, one of
    Milvus' levels, "Strong" by default.
    """

    kind = "milvus"
    many_writers = True

    def __init__(self, location: str) -> None:
        self._server = Server(location)
        self.location = self._server.location
        self._guard = threading.RLock()
        self._known: tuple[float, About] | None = None

    @classmethod
    def exists(cls, location: str) -> bool:
        with closing(cls(location)) as backend:
            return backend._server.about() is not None

    @classmethod
    def open(cls, location: str) -> Self:
        backend = cls(location)
        with backend.closing_on_error():
            about = backend._server.about()
            if about is None:
                raise no_index(backend.location, f"there is no collection {backend._server.name}")
            backend._bind(about.bound)
        return backend

    @classmethod
    def create(cls, location: str, binding: Binding, batches: Batches, *, replace: bool) -> Self:
        """Build an index in a collection of its own, to which the alias then moves."""
        backend = cls(location)
        server = backend._server
        with backend.closing_on_error():
            old = server.about(replace=replace)
            if old and not replace:
                raise is_an_index(backend.location)
            pattern = re.compile(re.escape(server.name) + r"_([0-9a-f]{12}|lock_\d+)")
            for other in server.call("list_collections"):
                # Builds that died left them, or the locks of an earlier version.
                if pattern.fullmatch(other) and (old is None or other != old.collection):
                    server.call("drop_collection", other)
            about = About(f"{server.name}_{secrets.token_hex(6)}", binding.to_json())
            backend._bind(binding)
            try:
                server.make_collection(about)
                for items, vectors in batches:
                    about = backend._add(about, items, vectors)
                server.make_cells(about)
                alias = "alter_alias" if old else "create_alias"
                server.call(alias, about.collection, server.name)
            except BaseException:
                with suppress(CcalError):
                    server.call("drop_collection", about.collection)
                raise
            if old:
                server.call("drop_collection", old.collection)
        return backend

    def insert(self, batches: Batches) -> None:
        """Add items, batch by batch; one that is there already, with the same content, stays."""
        count = 0
        with self._guard:
            about = self._now()
            try:
                for items, vectors in batches:
                    self._refuse_other_items(about, items, vectors)
                    about = self._add(about, items, vectors)
                    count += len(items)
            except CcalError as error:
                if not count:
                    raise
                kind = InputError if isinstance(error, InputError) else CcalError
                raise kind(
                    f"{str(error).replace('; nothing was added', '')} The first {count} of the new "
                    f"items were written to {self.location}; repeat the call with the same ids to "
                    "complete it, or remove them."
                ) from error
            self._server.make_cells(about)

    def upsert(self, items: Sequence[Item], vectors: Vectors, first: int) -> None:
        numbers = range(first, first + len(items))
        self._server.write(self._now(), items, self._rounded(vectors), numbers)

    def reserve(self, count: int) -> int:
        with self._guard:
            _, numbers = self._server.reserve(self._now(), count)
            return numbers.start

    def finish_load(self) -> None:
        with self._guard:
            self._server.make_cells(self._now())

    def recall(self, key: str) -> str | None:
        return self._server.properties().get(f"ccal.{key}")

    def note(self, key: str, text: str) -> None:
        self._server.set_properties(self._now(), {f"ccal.{key}": text})

    def remove(self, ids: Sequence[str]) -> None:
        """Remove items; if one does not exist, none is removed."""
        about = self._now()
        in_order(ids, self._server.find(about, ids, [], **STRONG))
        for some in chunks(ids, 2000):
            self._server.call("delete", about.collection, ids=[key_of(id) for id in some])

    def change(self, changes: Sequence[Change], vectors: Vectors | None) -> None:
        """Give items new content; if one does not exist, none is changed."""
        about = self._now()
        ids = [change.id for change in changes]
        fields = [*FACTS, "number", "vector"]
        rows = in_order(ids, self._server.find(about, ids, fields, **STRONG))
        items = []
        for old, change in zip(map(item_of, rows), changes, strict=True):
            metadata = old.metadata if change.metadata is None else change.metadata
            items.append(Item(old.id, old.modality, metadata, change.file or old.file))
        stored = vectors_of(rows, self.binding) if vectors is None else self._rounded(vectors)
        self._server.write(about, items, stored, [int(row["number"]) for row in rows])

    def search(
        self, queries: Vectors, modalities: Sequence[str], k: int, where: Conditions, exact: bool
    ) -> list[list[Hit]]:
        """The k nearest of each query.

        Milvus chooses candidates by float32 cosines and by conditions that may let too much pass;
        cosines in float64 and `meets` decide. More candidates are asked for while a row outside of
        them could be among the k best.
        """
        if k > LIMIT:
            raise InputError(f"k must be {LIMIT:,} at most, which is Milvus' limit, got {k}.")
        condition = " and ".join([within(modalities), *map(milvus_condition, where)])
        server = self._server

        def run(about: About) -> list[list[Hit]]:
            answers: dict[int, list[Hit]] = {}
            waiting, limit = list(range(len(queries))), min(k + _SPARE, LIMIT)
            # Behind a filter all cells: few of them may hold what it leaves.
            probes = EXACT if exact or where or not about.cells else about.probes
            while waiting:
                unsure = []
                size = limit * (4 * self.binding.dim + 256)
                for some in chunks(waiting, max(1, _ANSWER_BYTES // size)):
                    asked = queries[list(some)]
                    found = server.nearest_vectors(about, asked, limit, probes, condition)
                    for number, rows in zip(some, found, strict=True):
                        answers[number], sure = _judged(queries[number], rows, k, where, limit)
                        if not sure or (len(answers[number]) < k and probes < EXACT):
                            unsure.append(number)
                waiting = unsure
                if probes < EXACT:
                    probes = EXACT
                elif limit == LIMIT:
                    break
                else:
                    limit = min(4 * limit, LIMIT)
            return [answers[number] for number in range(len(queries))]

        return self._read(run)

    def items(self, ids: Sequence[str]) -> list[Item]:
        found = self._read(lambda about: self._server.find(about, ids, FACTS))
        return [item_of(row) for row in in_order(ids, found)]

    def vectors(self, ids: Sequence[str]) -> Vectors:
        found = self._read(lambda about: self._server.find(about, ids, ["vector"]))
        return vectors_of(in_order(ids, found), self.binding)

    def ids(self, modality: str | None) -> list[str]:
        names = self.binding.modalities if modality is None else [modality]
        found = self._read(lambda about: self._server.scan(about, names, ["id"]), latest=True)
        return [str(row["id"]) for row in found]

    def counts(self) -> dict[str, int]:
        return self._read(self._server.counts, latest=True)

    def next_number(self) -> int:
        return self._now().numbered + 1

    def details(self) -> dict[str, Any]:
        """The collection, cells for approximate search, version of the server."""
        about = self._now()
        return {
            "collection": about.collection,
            "approximate": about.cells,
            "probes": about.probes,
            "server": self._server.call("get_server_version"),
        }

    def check(self) -> None:
        """Read all vectors; Milvus keeps checksums of its own."""
        names, fields = self.binding.modalities, ["id", "vector"]
        rows = self._read(lambda about: self._server.scan(about, names, fields), latest=True)
        lengths = np.linalg.norm(vectors_of(rows, self.binding), axis=1)
        for row, length in zip(rows, lengths, strict=True):
            if abs(length - 1) > 0.01:
                raise CcalError(f"{self.location}: the vector of {row['id']!r} is damaged.")

    def close(self) -> None:
        self._server.close()

    def _now(self) -> About:
        """The index at this moment; one of another model is refused."""
        about = self._server.about()
        if about is None:
            raise CcalError(f"{self.location} is gone: somebody removed the index.")
        self._bind(about.bound)
        return about

    def _read(self, ask: Callable[[About], T], *, latest: bool = False) -> T:
        """An answer; asked again while cells are built, or after the alias has moved.

        A search looks the collection up once a second at most. That is enough: its name belongs to
        one model, a rebuild drops it as soon as the alias has moved, and a search that does not
        know of new cells looks into all of them. `latest` is for what else the state says.
        """
        end = time.monotonic() + TIMEOUT
        while True:
            known = self._known
            try:
                if latest or known is None or time.monotonic() > known[0] + _TRUSTED:
                    known = self._known = time.monotonic(), self._now()
                return ask(known[1])
            except UnavailableError:
                self._known = None
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def _add(self, about: About, items: Sequence[Item], vectors: Vectors) -> About:
        about, numbers = self._server.reserve(about, len(items))
        self._server.write(about, items, self._rounded(vectors), numbers)
        return about

    def _rounded(self, vectors: Vectors) -> Vectors:
        return vectors.astype(self.binding.dtype).astype(np.float32)

    def _refuse_other_items(self, about: About, items: Sequence[Item], vectors: Vectors) -> None:
        """Refuse ids that exist, unless an earlier, failed call wrote the very same items."""
        ids, fields = [item.id for item in items], [*FACTS, "vector"]
        found = self._server.find(about, ids, fields, **STRONG)
        for item, vector in zip(items, self._rounded(vectors), strict=True):
            row = found.get(item.id)
            same = row and item_of(row) == item and np.allclose(row["vector"], vector, atol=1e-6)
            if row and not same:
                raise id_taken(item.id)


def _judged(
    query: Any, rows: list[dict[str, Any]], k: int, where: Conditions, limit: int
) -> tuple[list[Hit], bool]:
    """Hits of one query, and whether no row outside of these could be among them."""
    fitting = [row for row in rows if meets(row["metadata"], where)]
    vectors = [row["vector"] for row in fitting]
    hits = best_hits(query, [item_of(row) for row in fitting], vectors, k)
    if len(rows) < limit:
        return hits, True
    return hits, len(hits) == k and bool(rows[-1]["near"] + slack(len(query)) < hits[-1].score)
