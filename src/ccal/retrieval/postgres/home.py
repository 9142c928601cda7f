"""PostgresHome: an index in a PostgreSQL database, by pgvector."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Self

import numpy as np

from ccal.errors import CcalError
from ccal.retrieval.bound import Bound
from ccal.retrieval.filters import Condition, postgres_condition
from ccal.retrieval.hits import best, scored
from ccal.retrieval.home import Batches, Vectors
from ccal.retrieval.items import Binding, Change, Hit, Item
from ccal.retrieval.postgres.database import Database
from ccal.retrieval.refusals import id_taken, in_order, is_an_index, no_index

__all__ = ["PostgresHome"]

# PostgreSQL computes in float32; the best of a few more are those of float64.
_SPARE = 16


class PostgresHome(Bound):
    """The tables of a `Database` as a `Home`.

    The location is `postgresql://user:password@host/database?table=NAME`, NAME being `ccal` if it
    is left out. The first change takes the writer's lock, `close` gives it back.
    """

    kind = "postgres"

    def __init__(self, location: str) -> None:
        self._db = Database(location)
        self._table, self.location = self._db.table, self._db.location
        self._query = self._db.query

    @classmethod
    def exists(cls, location: str) -> bool:
        """Whether there is an index."""
        with closing(cls(location)) as home:
            return home._db.exists()

    @classmethod
    def open(cls, location: str) -> Self:
        """Open an index that exists."""
        home = cls(location)
        with home._closing_on_error():
            if not home._db.exists():
                raise no_index(home.location, f"there is no table {home._table}_about")
            home._db.register()
            with home._reading():
                return home

    @classmethod
    def create(cls, location: str, binding: Binding, batches: Batches, *, replace: bool) -> Self:
        """Build an index in one transaction."""
        home = cls(location)
        with home._closing_on_error():
            home._db.become_writer()
            home._query("CREATE EXTENSION IF NOT EXISTS vector")
            home._db.register()
            if home._db.exists() and not replace:
                raise is_an_index(home.location)
            home._bind(binding)
            with home._db.transaction():
                home._db.make_tables(binding)
                for items, vectors in batches:
                    home._insert(items, vectors)
            home._db.make_indexes(binding)
        return home

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
                    rows = self._query(sql, given)
                    vectors = [row[-1].to_numpy() for row in rows]
                    hits += scored(query, [row[:-1] for row in rows], vectors)
                answers.append(best(hits, k))
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
        return in_order(ids, known)

    def _insert(self, items: Sequence[Item], vectors: Vectors) -> None:
        sql = f"SELECT id FROM {self._table} WHERE id = ANY(%s) LIMIT 1"
        if taken := self._query(sql, [[item.id for item in items]]):
            raise id_taken(taken[0][0])
        self._db.copy(items, [self._stored(vector) for vector in vectors], self._type)
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
            self._bind(Binding.from_json(self._db.about("binding")))
            yield

    @contextmanager
    def _changing(self) -> Iterator[None]:
        self._db.become_writer()
        with self._reading():
            yield
