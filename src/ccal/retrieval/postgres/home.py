"""PostgresHome: an index in a PostgreSQL database, by pgvector."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import numpy as np

from ccal.errors import CcalError, InputError
from ccal.optional import require
from ccal.retrieval.errors import OtherModelError
from ccal.retrieval.filters import Condition, postgres_condition
from ccal.retrieval.home import Batches, Vectors
from ccal.retrieval.items import Binding, Change, Hit, Item
from ccal.retrieval.postgres.database import Database

__all__ = ["PostgresHome"]

# PostgreSQL computes in float32; the best of a few more are those of float64.
_SPARE = 16


class PostgresHome:
    """The tables of a `Database` as a `Home`.

    The location is `postgresql://user:password@host/database?table=NAME`, NAME being `ccal` if it
    is left out. The first change takes the writer's lock, `close` gives it back.
    """

    kind = "postgres"

    def __init__(self, location: str) -> None:
        self._db = Database(location)
        self._table, self.location = self._db.table, self._db.location
        self._query = self._db.query
        self._binding: Binding | None = None

    @classmethod
    def exists(cls, location: str) -> bool:
        """Whether there is an index."""
        home = cls(location)
        try:
            return home._db.exists()
        finally:
            home.close()

    @classmethod
    def open(cls, location: str) -> Self:
        """Open an index that exists."""
        home = cls(location)
        try:
            if not home._db.exists():
                raise InputError(
                    f"{home.location} is no index: there is no table {home._table}_about. Make one "
                    "with Index.build."
                )
            home._db.register()
            with home._reading():
                return home
        except BaseException:
            home.close()
            raise

    @classmethod
    def create(cls, location: str, binding: Binding, batches: Batches, *, replace: bool) -> Self:
        """Build an index in one transaction."""
        home = cls(location)
        try:
            home._db.become_writer()
            home._query("CREATE EXTENSION IF NOT EXISTS vector")
            home._db.register()
            if home._db.exists() and not replace:
                raise InputError(
                    f"{home.location} is an index already. Add to it with Index.open(...).add, or "
                    "build it anew with replace=True."
                )
            home._binding = binding
            with home._db.transaction():
                home._db.make_tables(binding)
                for items, vectors in batches:
                    home._insert(items, vectors)
            home._db.make_indexes(binding)
        except BaseException:
            home.close()
            raise
        return home

    @property
    def binding(self) -> Binding:
        """The model the index belongs to."""
        assert self._binding is not None  # set by open and create
        return self._binding

    def insert(self, batches: Batches) -> int:
        """Add items, all or none."""
        count = 0
        with self._changing():
            for items, vectors in batches:
                self._insert(items, vectors)
                count += len(items)
        self._db.make_indexes(self.binding)
        return count

    def remove(self, ids: Sequence[str]) -> None:
        """Take items out, all or none."""
        with self._changing():
            gone = Counter(item.modality for item in self._items(ids))
            self._query(f"DELETE FROM {self._table} WHERE id = ANY(%s)", [list(ids)])
            self._db.count({modality: -count for modality, count in gone.items()})

    def change(self, changes: Sequence[Change], vectors: Vectors | None) -> None:
        """Give items new content, all or none."""
        with self._changing():
            self._items([change.id for change in changes])
            for number, change in enumerate(changes):
                facts = None if change.metadata is None else json.dumps(dict(change.metadata))
                self._query(
                    f"UPDATE {self._table} SET metadata = coalesce(%s::jsonb, metadata), "
                    "file = coalesce(%s, file) WHERE id = %s",
                    [facts, change.file, change.id],
                )
                if vectors is not None:
                    sql = f"UPDATE {self._table} SET vector = %s WHERE id = %s"
                    self._query(sql, [self._stored(vectors[number]), change.id])

    def search(
        self,
        queries: Vectors,
        modalities: Sequence[str],
        k: int,
        where: Sequence[Condition],
        exact: bool,
    ) -> list[list[Hit]]:
        """The k nearest of each query, from one state of the index."""
        tests = [postgres_condition(condition) for condition in where]
        met = " AND ".join(["modality = %s", *(test for test, _ in tests)])
        values = [value for _, found in tests for value in found]
        dim = self.binding.dim
        # Exact search compares a stored float16 with the query as it is, an index as a halfvec;
        # the sum is there since no index is of it.
        exactly = f"0 + (vector::vector({dim}) <#> %s::vector({dim}))"
        by_index = f"vector <#> %s::vector({dim})::{self._type}"
        answers = []
        with self._reading():
            # Its index knows nothing of filters, and finds few or none of what a strict one leaves.
            indexed = set() if exact or where else self._db.indexed(self.binding)
            if indexed:
                self._query(f"SET LOCAL hnsw.ef_search = {min(1000, 4 * k + 64)}")
            for query in queries:
                hits: list[Hit] = []
                for modality in modalities:
                    near = by_index if modality in indexed else exactly
                    sql = (
                        f"SELECT id, modality, metadata, file, vector FROM {self._table} "
                        f'WHERE {met} ORDER BY {near}, id COLLATE "C" LIMIT %s'
                    )
                    given = [modality, *values, self._db.pgvector.Vector(query), k + _SPARE]
                    hits += _scored(query, self._query(sql, given))
                answers.append(sorted(hits, key=lambda hit: (-hit.score, hit.id))[:k])
        return answers

    def items(self, ids: Sequence[str]) -> list[Item]:
        """Items by id."""
        with self._reading():
            return self._items(ids)

    def vectors(self, ids: Sequence[str]) -> Vectors:
        """Vectors by id, as they are stored."""
        with self._reading():
            self._items(ids)
            sql = f"SELECT id, vector FROM {self._table} WHERE id = ANY(%s)"
            found = dict(self._query(sql, [list(ids)]))
        rows = [np.asarray(found[id].to_numpy(), np.float32) for id in ids]
        return np.stack(rows) if rows else np.empty((0, self.binding.dim), np.float32)

    def ids(self, modality: str | None) -> list[str]:
        """All ids, in the order they came."""
        sql = f"SELECT id FROM {self._table} WHERE modality = coalesce(%s, modality) ORDER BY row"
        with self._reading():
            return [id for (id,) in self._query(sql, [modality])]

    def counts(self) -> dict[str, int]:
        """Items of each modality."""
        with self._reading():
            counts: dict[str, int] = json.loads(self._db.about("counts"))
        return {modality: count for modality, count in counts.items() if count}

    def next_number(self) -> int:
        """A number that no item had before."""
        sql = f"SELECT last_value + is_called::int FROM {self._table}_row_seq"
        with self._reading():
            return int(self._query(sql)[0][0])

    def details(self) -> dict[str, Any]:
        """Bytes on disk, indexes for approximate search, version of the server."""
        with self._reading():
            size = self._query("SELECT pg_total_relation_size(%s)", [self._table])[0][0]
            return {
                "bytes": size,
                "approximate": len(self._db.indexed(self.binding)),
                "server": self._query("SHOW server_version")[0][0],
            }

    def check(self) -> None:
        """Read all vectors; PostgreSQL keeps checksums of its own."""
        with self._reading():
            length = "vector_norm(vector::vector)"
            sql = f"SELECT id FROM {self._table} WHERE abs({length} - 1) > 0.01 LIMIT 1"
            if found := self._query(sql):
                raise CcalError(f"{self.location}: the vector of {found[0][0]!r} is damaged.")

    def close(self) -> None:
        """Close the connection, which lets others write."""
        self._db.close()

    def _items(self, ids: Sequence[str]) -> list[Item]:
        sql = f"SELECT id, modality, metadata, file FROM {self._table} WHERE id = ANY(%s)"
        known = {row[0]: Item(*row) for row in self._query(sql, [list(ids)])}
        for id in ids:
            if id not in known:
                raise InputError(f"The index has no item {id!r}; nothing was done.")
        return [known[id] for id in ids]

    def _insert(self, items: Sequence[Item], vectors: Vectors) -> None:
        sql = f"SELECT id FROM {self._table} WHERE id = ANY(%s) LIMIT 1"
        if taken := self._query(sql, [[item.id for item in items]]):
            raise InputError(
                f"The index has an item {taken[0][0]!r} already; nothing was added. Change it with "
                "update, or choose another id."
            )
        columns = "(id, modality, metadata, file, vector)"
        command = f"COPY {self._table} {columns} FROM STDIN (FORMAT BINARY)"
        jsonb = require("psycopg.types.json", extra="postgres", purpose="PostgreSQL").Jsonb
        with self._db.connection.cursor() as cursor, cursor.copy(command) as copy:
            copy.set_types(["text", "text", "jsonb", "text", self._type])
            for item, vector in zip(items, vectors, strict=True):
                facts = jsonb(dict(item.metadata))
                row = (item.id, item.modality, facts, item.file, self._stored(vector))
                copy.write_row(row)
        self._db.count(Counter(item.modality for item in items))

    @property
    def _type(self) -> str:
        return "halfvec" if self.binding.dtype == "float16" else "vector"

    def _stored(self, vector: Any) -> Any:
        """A vector (dim,) as pgvector keeps it."""
        half = self.binding.dtype == "float16"
        return (self._db.pgvector.HalfVector if half else self._db.pgvector.Vector)(vector)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """One state of the index, which is still of the model it was opened for."""
        with self._db.transaction():
            binding = Binding.from_json(self._db.about("binding"))
            if self._binding is not None and not binding.is_space_of(self._binding):
                raise OtherModelError(
                    f"{self.location} was built anew, by another model or with other dimensions, "
                    "since it was opened; open it again."
                )
            self._binding = binding
            yield

    @contextmanager
    def _changing(self) -> Iterator[None]:
        self._db.become_writer()
        with self._reading():
            yield


def _scored(query: Any, rows: Sequence[tuple[Any, ...]]) -> list[Hit]:
    """Hits with their cosines in float64, as every home gives them."""
    if not rows:
        return []
    vectors = np.stack([row[-1].to_numpy() for row in rows]).astype(np.float64)
    cosines = (vectors * query.astype(np.float64)).sum(1).round(12).tolist()
    return [
        Hit(id, cosine, modality, metadata, file)
        for (id, modality, metadata, file, _), cosine in zip(rows, cosines, strict=True)
    ]
