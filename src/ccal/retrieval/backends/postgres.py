"""PostgresBackend: an index in a PostgreSQL database, by pgvector."""

import json
import os
import select
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any, Self

import numpy as np

from ccal.errors import CcalError
from ccal.optional import require
from ccal.retrieval.backends.base import Backend, Batches, Vectors, best_hits
from ccal.retrieval.backends.postgres_location import parse_location
from ccal.retrieval.filters import Conditions, postgres_condition
from ccal.retrieval.items import (
    Binding,
    Change,
    Hit,
    Item,
    id_taken,
    in_order,
    in_use,
    is_an_index,
    no_index,
)

# PostgreSQL computes in float32; among this many more than k are the k best of float64.
_SPARE = 16
# pgvector indexes no longer vectors.
_HNSW_DIMENSIONS = 2000


class PostgresBackend(Backend):
    """Two tables: NAME has the items, NAME_about the binding and the number of items.

    The location is `postgresql://user:password@host/database?table=NAME`, NAME being `ccal` by
    default. A change is one transaction. The first one takes the writer's lock, an advisory lock of
    the writer's connection; `close` gives it back.

    Threads may share one backend: each operation has a connection to itself, of those that are idle
    or a new one. A connection that the server has closed, as when it restarts, is replaced, and
    those of the parent of a forked process are left alone.
    """

    kind = "postgres"

    def __init__(self, location: str) -> None:
        uri, self._table, self.location = parse_location(location)
        psycopg, self._pgvector = _required("psycopg"), _required("pgvector")
        self._error: type[Exception] = psycopg.Error
        # A prepared statement is planned for any modality, and so without the index of one.
        options = {"autocommit": True, "prepare_threshold": None, "connect_timeout": 10}
        self._connect = partial(psycopg.connect, uri, **options)
        self._idle: list[Any] = []
        self._writer: Any = None
        self._guard, self._own = threading.RLock(), threading.local()
        self._process = os.getpid()
        with self._connection():
            pass

    @classmethod
    def exists(cls, location: str) -> bool:
        with closing(cls(location)) as backend:
            return backend._has_tables()

    @classmethod
    def open(cls, location: str) -> Self:
        backend = cls(location)
        with backend.closing_on_error():
            if not backend._has_tables():
                raise no_index(backend.location, f"there is no table {backend._table}_about")
            with backend._reading():
                return backend

    @classmethod
    def create(cls, location: str, binding: Binding, batches: Batches, *, replace: bool) -> Self:
        """Build an index in one transaction."""
        backend = cls(location)
        with backend.closing_on_error(), backend._as_writer() as connection:
            backend._query("CREATE EXTENSION IF NOT EXISTS vector")
            backend._register_types(connection)
            if backend._has_tables() and not replace:
                raise is_an_index(backend.location)
            backend._bind(binding)
            with backend._transaction():
                backend._make_tables(binding)
                backend._insert(batches)
            backend._make_indexes()
        return backend

    def insert(self, batches: Batches) -> None:
        """Add items, all or none."""
        with self._as_writer():
            with self._reading():
                self._insert(batches)
            self._make_indexes()

    def remove(self, ids: Sequence[str]) -> None:
        """Remove items, all or none."""
        with self._as_writer(), self._reading():
            gone = Counter(item.modality for item in self._items(ids))
            self._query(f"DELETE FROM {self._table} WHERE id = ANY(%s)", [list(ids)])
            self._count({modality: -count for modality, count in gone.items()})

    def change(self, changes: Sequence[Change], vectors: Vectors | None) -> None:
        """Give items new content, all or none."""
        with self._as_writer(), self._reading():
            self._items([change.id for change in changes])
            for number, change in enumerate(changes):
                facts = None if change.metadata is None else json.dumps(dict(change.metadata))
                columns = "metadata = coalesce(%s::jsonb, metadata), file = coalesce(%s, file)"
                sql = f"UPDATE {self._table} SET {columns} WHERE id = %s"
                self._query(sql, [facts, change.file, change.id])
                if vectors is not None:
                    sql = f"UPDATE {self._table} SET vector = %s WHERE id = %s"
                    self._query(sql, [self._stored(vectors[number]), change.id])

    def search(
        self, queries: Vectors, modalities: Sequence[str], k: int, where: Conditions, exact: bool
    ) -> list[list[Hit]]:
        tests = [postgres_condition(condition) for condition in where]
        met = " AND ".join(["modality = %s", *(test for test, _ in tests)])
        values = [value for _, found in tests for value in found]
        dim = self.binding.dim
        # Exact search compares a stored float16 with the query as it is, an index as a halfvec.
        # PostgreSQL has no index of the sum with 0, and so uses none for it.
        exactly = f"0 + (vector::vector({dim}) <#> %s::vector({dim}))"
        by_index = f"vector <#> %s::vector({dim})::{self._type}"
        answers = []
        with self._reading():
            # pgvector's index ignores filters, and would leave few or none behind a strict one.
            indexed = set() if exact or where else self._indexed()
            if indexed:
                # 104 found .965 of the ten nearest, 200 found .99, of either modality.
                self._query(f"SET LOCAL hnsw.ef_search = {min(1000, 12 * k + 80)}")
            for query in queries:
                rows: list[tuple[Any, ...]] = []
                for modality in modalities:
                    near = by_index if modality in indexed else exactly
                    sql = (
                        f"SELECT id, modality, metadata, file, vector FROM {self._table} "
                        f'WHERE {met} ORDER BY {near}, id COLLATE "C" LIMIT %s'
                    )
                    given = [modality, *values, self._pgvector.Vector(query), k + _SPARE]
                    rows += self._query(sql, given)
                items = [Item(*row[:-1]) for row in rows]
                answers.append(best_hits(query, items, [row[-1].to_numpy() for row in rows], k))
        return answers

    def items(self, ids: Sequence[str]) -> list[Item]:
        with self._reading():
            return self._items(ids)

    def vectors(self, ids: Sequence[str]) -> Vectors:
        sql = f"SELECT id, vector FROM {self._table} WHERE id = ANY(%s)"
        with self._reading():
            found: dict[str, Any] = dict(self._query(sql, [list(ids)]))
        rows = [vector.to_numpy() for vector in in_order(ids, found)]
        return np.array(rows, np.float32).reshape(-1, self.binding.dim)

    def ids(self, modality: str | None) -> list[str]:
        sql = f"SELECT id FROM {self._table} WHERE modality = coalesce(%s, modality) ORDER BY row"
        with self._reading():
            return [id for (id,) in self._query(sql, [modality])]

    def counts(self) -> dict[str, int]:
        with self._reading():
            counts: dict[str, int] = json.loads(self._about("counts"))
        return {modality: count for modality, count in counts.items() if count}

    def next_number(self) -> int:
        sql = f"SELECT last_value + is_called::int FROM {self._table}_row_seq"
        with self._reading():
            return int(self._query(sql)[0][0])

    def details(self) -> dict[str, Any]:
        """Bytes on disk, indexes for approximate search, version of the server."""
        with self._reading():
            size = self._query("SELECT pg_total_relation_size(%s)", [self._table])[0][0]
            return {
                "bytes": size,
                "approximate": len(self._indexed()),
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
        """Close all connections, which lets others write."""
        with self._guard:
            self._leave_parents_alone()
            for connection in filter(None, (*self._idle, self._writer)):
                with suppress(self._error):
                    connection.close()
            self._idle, self._writer = [], None

    def _items(self, ids: Sequence[str]) -> list[Item]:
        sql = f"SELECT id, modality, metadata, file FROM {self._table} WHERE id = ANY(%s)"
        return in_order(ids, {row[0]: Item(*row) for row in self._query(sql, [list(ids)])})

    def _insert(self, batches: Batches) -> None:
        sql = f"SELECT id FROM {self._table} WHERE id = ANY(%s) LIMIT 1"
        for items, vectors in batches:
            if taken := self._query(sql, [[item.id for item in items]]):
                raise id_taken(taken[0][0])
            self._copy(self._table, items, vectors)
            self._count(Counter(item.modality for item in items))

    def _copy(self, table: str, items: Sequence[Item], vectors: Vectors) -> None:
        columns = "(id, modality, metadata, file, vector)"
        command = f"COPY {table} {columns} FROM STDIN (FORMAT BINARY)"
        jsonb = _required("psycopg.types.json").Jsonb
        with self._own.connection.cursor() as cursor, cursor.copy(command) as copy:
            copy.set_types(["text", "text", "jsonb", "text", self._type])
            for item, vector in zip(items, vectors, strict=True):
                facts = jsonb(dict(item.metadata))
                copy.write_row((item.id, item.modality, facts, item.file, self._stored(vector)))

    def _count(self, more: Mapping[str, int]) -> None:
        """Add to the number of items of each modality, as PostgreSQL counts slowly."""
        counts: dict[str, int] = json.loads(self._about("counts"))
        for modality, count in more.items():
            counts[modality] = counts.get(modality, 0) + count
        sql = f"UPDATE {self._table}_about SET value = %s WHERE key = 'counts'"
        self._query(sql, [json.dumps(counts)])

    @property
    def _type(self) -> str:
        return "halfvec" if self.binding.dtype == "float16" else "vector"

    def _stored(self, vector: Any) -> Any:
        """A vector (dim,) as pgvector keeps it."""
        half = self.binding.dtype == "float16"
        return (self._pgvector.HalfVector if half else self._pgvector.Vector)(vector)

    def _register_types(self, connection: Any) -> None:
        """Teach a connection the types of pgvector, if the database has them."""
        if connection.execute("SELECT to_regtype('vector')").fetchone()[0] is not None:
            _required("pgvector.psycopg").register_vector(connection)

    def _has_tables(self) -> bool:
        return self._query("SELECT to_regclass(%s)", [f"{self._table}_about"])[0][0] is not None

    def _make_tables(self, binding: Binding) -> None:
        """New tables, in place of old ones if there are."""
        name = self._table
        self._query(f"DROP TABLE IF EXISTS {name}, {name}_about")
        self._query(
            f"CREATE TABLE {name} (row bigserial PRIMARY KEY, "
            'id text COLLATE "C" NOT NULL UNIQUE, modality text NOT NULL, '
            f"metadata jsonb NOT NULL, file text, vector {self._type}({binding.dim}) NOT NULL)"
        )
        self._query(f"CREATE TABLE {name}_about (key text PRIMARY KEY, value text NOT NULL)")
        sql = f"INSERT INTO {name}_about VALUES ('binding', %s), ('counts', '{{}}')"
        self._query(sql, [binding.to_json()])

    def _indexed(self) -> set[str]:
        """Modalities that have an index for approximate search."""
        sql = "SELECT indexname FROM pg_indexes WHERE tablename = %s"
        names = {name for (name,) in self._query(sql, [self._table])}
        modalities = enumerate(self.binding.modalities)
        return {name for number, name in modalities if f"{self._table}_hnsw{number}" in names}

    def _make_indexes(self) -> None:
        """Index the modalities that have become large; PostgreSQL keeps the index up to date."""
        if self.binding.dim > _HNSW_DIMENSIONS:
            return
        counts, indexed = json.loads(self._about("counts")), self._indexed()
        for number, modality in enumerate(self.binding.modalities):
            large = counts.get(modality, 0) >= self.binding.approximate_from
            if large and modality not in indexed:
                literal = modality.replace("'", "''")
                self._query(
                    f"CREATE INDEX {self._table}_hnsw{number} ON {self._table} "
                    f"USING hnsw (vector {self._type}_ip_ops) WHERE modality = '{literal}'"
                )

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        """A connection for what this thread does inside; nested uses share one."""
        if getattr(self._own, "connection", None) is not None:
            yield self._own.connection
            return
        with self._named_errors():
            connection = self._own.connection = self._take()
            try:
                yield connection
            finally:
                self._own.connection = None
                if not connection.closed:
                    self._idle.append(connection)

    def _take(self) -> Any:
        """An idle connection that the server has not closed, or a new one."""
        with self._guard:
            self._leave_parents_alone()
            while self._idle:
                connection = self._idle.pop()
                if _is_alive(connection):
                    return connection
                connection.close()
        connection = self._connect()
        connection.execute("SET synchronous_commit = on")
        self._register_types(connection)
        return connection

    def _leave_parents_alone(self) -> None:
        """In a forked process: forget the connections, which the parent goes on using."""
        if self._process != os.getpid():
            self._idle, self._writer, self._process = [], None, os.getpid()

    @contextmanager
    def _as_writer(self) -> Iterator[Any]:
        """The connection that has the index's lock, which ends with it, however that ends."""
        with self._guard, self._named_errors():
            self._leave_parents_alone()
            if self._writer is None or not _is_alive(self._writer):
                connection = self._take()
                key = [f"ccal {self._table}"]
                sql = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
                if not connection.execute(sql, key).fetchone()[0]:
                    self._idle.append(connection)
                    raise in_use(self.location, "another connection")
                self._writer = connection
            before, self._own.connection = getattr(self._own, "connection", None), self._writer
            try:
                yield self._writer
            finally:
                self._own.connection = before

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """One state of the index, which must still be of the model it was opened for."""
        with self._transaction():
            self._bind(Binding.from_json(self._about("binding")))
            yield

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All inside sees one state, and happens as a whole or not at all."""
        with self._connection() as connection:
            done = False
            try:
                with connection.transaction():
                    self._query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                    yield
                    done = True
            except self._error as error:
                if not done or connection is not self._writer:
                    raise
                text = " ".join(str(error).split())
                raise CcalError(
                    f"{self.location}: {text}; the connection was lost while a change was being "
                    "committed, and whether it happened is not known. Look, or repeat it with the "
                    "same ids: what is there already is refused."
                ) from error

    def _about(self, key: str) -> str:
        """The binding, or the counts, as JSON."""
        found = self._query(f"SELECT value FROM {self._table}_about WHERE key = %s", [key])
        if not found:
            raise CcalError(f"{self.location} is damaged: it says nothing about {key}.")
        return str(found[0][0])

    def _query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of one statement."""
        with self._connection() as connection, self._named_errors():
            cursor = connection.execute(sql, parameters or None, binary=True)
            found: list[tuple[Any, ...]] = cursor.fetchall() if cursor.description else []
            return found

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Errors of PostgreSQL, with the location."""
        try:
            yield
        except self._error as error:
            text = " ".join(str(error).split())
            raise CcalError(f"{self.location}: {text}; nothing was changed.") from error


def _is_alive(connection: Any) -> bool:
    """Whether an idle connection is still open; the server sends it nothing but its end."""
    return not connection.closed and not select.select([connection], [], [], 0)[0]


def _required(module: str) -> Any:
    return require(module, extra="postgres", purpose="An index in PostgreSQL")
