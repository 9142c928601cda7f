"""A connection to PostgreSQL, and the two tables of an index."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from ccal.errors import CcalError, InputError
from ccal.optional import require
from ccal.retrieval.items import Binding, Item
from ccal.retrieval.refusals import in_use

__all__ = ["Database", "parse_location"]

_TABLE = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_HNSW_DIMENSIONS = 2000


class Database:
    """NAME has the items, NAME_about the binding and how many items there are of each modality."""

    def __init__(self, location: str) -> None:
        uri, self.table, self.location = parse_location(location)
        psycopg = require("psycopg", extra="postgres", purpose="An index in PostgreSQL")
        self.pgvector = require("pgvector", extra="postgres", purpose="An index in PostgreSQL")
        self.error: type[Exception] = psycopg.Error
        self.connection: Any = None
        self._guard = threading.RLock()
        self._is_writer = False
        with self._named_errors():
            # Prepared statements would forget which modality is asked for, and with it the index.
            options = {"autocommit": True, "prepare_threshold": None, "connect_timeout": 10}
            self.connection = psycopg.connect(uri, **options)
            self.connection.execute("SET synchronous_commit = on")

    def register(self) -> None:
        """Teach the connection the types of pgvector."""
        module = require("pgvector.psycopg", extra="postgres", purpose="An index in PostgreSQL")
        with self._named_errors():
            module.register_vector(self.connection)

    def exists(self) -> bool:
        """Whether the tables are there."""
        return self.query("SELECT to_regclass(%s)", [f"{self.table}_about"])[0][0] is not None

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of one statement."""
        with self._named_errors():
            cursor = self.connection.execute(sql, parameters or None, binary=True)
            found: list[tuple[Any, ...]] = cursor.fetchall() if cursor.description else []
            return found

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All inside sees one state, and happens as a whole or not at all."""
        with self._guard, self._named_errors(), self.connection.transaction():
            self.query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            yield

    def become_writer(self) -> None:
        """Take the lock of the index, which ends with the connection, however that ends."""
        with self._guard:
            if self._is_writer:
                return
            key = [f"ccal {self.table}"]
            if not self.query("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", key)[0][0]:
                raise in_use(self.location, "another connection")
            self._is_writer = True

    def about(self, key: str) -> str:
        """The binding, or the counts, as JSON."""
        found = self.query(f"SELECT value FROM {self.table}_about WHERE key = %s", [key])
        if not found:
            raise CcalError(f"{self.location} is damaged: it says nothing about {key}.")
        return str(found[0][0])

    def count(self, more: Mapping[str, int]) -> None:
        """Add to how many items there are of each modality; PostgreSQL would count them all."""
        counts: dict[str, int] = json.loads(self.about("counts"))
        for modality, count in more.items():
            counts[modality] = counts.get(modality, 0) + count
        sql = f"UPDATE {self.table}_about SET value = %s WHERE key = 'counts'"
        self.query(sql, [json.dumps(counts)])

    def copy(self, items: Sequence[Item], vectors: Sequence[Any], kind: str) -> None:
        """Add rows by COPY, with vectors of a type of pgvector."""
        columns = "(id, modality, metadata, file, vector)"
        command = f"COPY {self.table} {columns} FROM STDIN (FORMAT BINARY)"
        jsonb = require("psycopg.types.json", extra="postgres", purpose="PostgreSQL").Jsonb
        with self.connection.cursor() as cursor, cursor.copy(command) as copy:
            copy.set_types(["text", "text", "jsonb", "text", kind])
            for item, vector in zip(items, vectors, strict=True):
                facts = jsonb(dict(item.metadata))
                copy.write_row((item.id, item.modality, facts, item.file, vector))

    def make_tables(self, binding: Binding) -> None:
        """New tables, in place of old ones if there are."""
        kind = "halfvec" if binding.dtype == "float16" else "vector"
        self.query(f"DROP TABLE IF EXISTS {self.table}, {self.table}_about")
        self.query(
            f"CREATE TABLE {self.table} (row bigserial PRIMARY KEY, "
            'id text COLLATE "C" NOT NULL UNIQUE, modality text NOT NULL, '
            f"metadata jsonb NOT NULL, file text, vector {kind}({binding.dim}) NOT NULL)"
        )
        self.query(f"CREATE TABLE {self.table}_about (key text PRIMARY KEY, value text NOT NULL)")
        sql = f"INSERT INTO {self.table}_about VALUES ('binding', %s), ('counts', '{{}}')"
        self.query(sql, [binding.to_json()])

    def indexed(self, binding: Binding) -> set[str]:
        """Modalities that have an index for approximate search."""
        sql = "SELECT indexname FROM pg_indexes WHERE tablename = %s"
        names = {name for (name,) in self.query(sql, [self.table])}
        return {
            modality
            for number, modality in enumerate(binding.modalities)
            if f"{self.table}_hnsw{number}" in names
        }

    def make_indexes(self, binding: Binding) -> None:
        """Index the modalities that have become large; PostgreSQL keeps the index up to date."""
        if binding.dim > _HNSW_DIMENSIONS:
            return
        counts = json.loads(self.about("counts"))
        missing = set(binding.modalities) - self.indexed(binding)
        kind = "halfvec" if binding.dtype == "float16" else "vector"
        for number, modality in enumerate(binding.modalities):
            if modality in missing and counts.get(modality, 0) >= binding.approximate_from:
                literal = modality.replace("'", "''")
                self.query(
                    f"CREATE INDEX {self.table}_hnsw{number} ON {self.table} "
                    f"USING hnsw (vector {kind}_ip_ops) WHERE modality = '{literal}'"
                )

    def close(self) -> None:
        """Close the connection."""
        if self.connection is not None:
            with suppress(self.error):
                self.connection.close()

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """What PostgreSQL says, with the location."""
        try:
            yield
        except self.error as error:
            text = " ".join(str(error).split())
            raise CcalError(f"{self.location}: {text}; nothing was changed.") from error


def parse_location(location: str) -> tuple[str, str, str]:
    """The address for the driver, the table, and the location as it may be shown.

    >>> parse_location("postgresql://me:secret@here/birds?table=photos")
    ('postgresql://me:secret@here/birds', 'photos', 'postgresql://me@here/birds?table=photos')
    """
    parts = urlsplit(location)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    table = options.pop("table", "ccal")
    if not _TABLE.fullmatch(table):
        raise InputError(
            f"table={table} is no name for an index; expected small letters, digits and _."
        )
    uri = urlunsplit(parts._replace(query=urlencode(options)))
    user, at, host = parts.netloc.rpartition("@")
    shown = parts._replace(netloc=user.partition(":")[0] + at + host)
    options.pop("password", None)
    query = urlencode({**options, "table": table}, safe="/")
    return uri, table, urlunsplit(shown._replace(query=query))
