"""The truth of an embedded index: a SQLite database with every item and its vector."""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.errors import CcalError, InputError
from ccal.retrieval.errors import DamagedIndexError
from ccal.retrieval.filters import Condition, sqlite_condition
from ccal.retrieval.items import Change, Item

__all__ = ["Facts", "Truth"]

Facts = tuple[str, str, dict[str, Any], str | None]

_SCHEMA = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE items (
    row INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, modality TEXT NOT NULL,
    metadata TEXT NOT NULL, file TEXT);
CREATE TABLE vectors (row INTEGER PRIMARY KEY, vector BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE segments (
    name TEXT PRIMARY KEY, modality TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    count INTEGER NOT NULL, approximate INTEGER);
CREATE TABLE counts (modality TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE removed (row INTEGER PRIMARY KEY, modality TEXT NOT NULL);
"""


class Truth:
    """The database, in transactions; rows of vectors never change and never come back.

    `about` holds the binding, `changes` (a counter that every change raises), and `sealed`: rows up
    to this number are in segments, those after it are not.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._depth = 0
        if not os.access(path.parent, os.W_OK):
            raise InputError(
                f"{path.parent}: even to search an index, SQLite must be allowed to write to its "
                "folder, where it notes who reads; get that right, or copy the folder."
            )
        with self._named_errors():
            # Autocommit: transactions begin and end where we say. Locking is the home's.
            self._db = sqlite3.connect(
                path, timeout=30, isolation_level=None, check_same_thread=False
            )
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")

    def is_complete(self) -> bool:
        """Whether the first transaction, which builds the index, came to its end."""
        found = self.query("SELECT 1 FROM sqlite_master WHERE name = 'about'")
        return bool(found)

    def create(self) -> None:
        """Make the tables, inside a transaction."""
        for statement in filter(str.strip, _SCHEMA.split(";")):
            self.query(statement)
        self.set("changes", 0)
        self.set("sealed", 0)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """All queries inside see one state, whatever others write; may be nested."""
        with self._transaction("BEGIN", end="ROLLBACK"):
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """All changes inside happen, and are on disk, or none."""
        with self._transaction("BEGIN IMMEDIATE", end="COMMIT"):
            yield
            self.set("changes", int(self.get("changes")) + 1)

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of one statement."""
        with self._named_errors():
            return self._db.execute(sql, parameters).fetchall()

    def get(self, key: str) -> str:
        """A value of `about`."""
        found = self.query("SELECT value FROM about WHERE key = ?", [key])
        if not found:
            raise DamagedIndexError(f"{self.path} is damaged: it says nothing about {key}.")
        return str(found[0][0])

    def set(self, key: str, value: object) -> None:
        """Set a value of `about`."""
        self.query("INSERT OR REPLACE INTO about VALUES (?, ?)", [key, str(value)])

    def insert(self, items: Sequence[Item], vectors: NDArray[np.floating]) -> None:
        """Add items; one whose id exists is refused."""
        ids = [item.id for item in items]
        if taken := self.query(f"SELECT id FROM items WHERE {_among('id')} LIMIT 1", [_list(ids)]):
            raise InputError(
                f"The index has an item {taken[0][0]!r} already; nothing was added. Change it with "
                "update, or choose another id."
            )
        row = self.last_row()
        with self._named_errors():
            self._db.executemany(
                "INSERT INTO items VALUES (?, ?, ?, ?, ?)",
                (
                    (row + n, i.id, i.modality, _json(i.metadata), i.file)
                    for n, i in enumerate(items, start=1)
                ),
            )
        self._insert_vectors(range(row + 1, row + 1 + len(items)), vectors)
        self._count(Counter(item.modality for item in items))

    def move(self, rows: Sequence[int], vectors: NDArray[np.floating]) -> None:
        """Give the items of these rows new vectors, which takes new rows."""
        new = range(self.last_row() + 1, self.last_row() + 1 + len(rows))
        self._bury(rows)
        with self._named_errors():
            pairs = zip(new, rows, strict=True)
            self._db.executemany("UPDATE items SET row = ? WHERE row = ?", pairs)
            # AUTOINCREMENT counts insertions only; a row must not come back after a removal.
            last = [new[-1] if len(new) else self.last_row()]
            self._db.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'items'", last)
        self._insert_vectors(new, vectors)

    def describe(self, rows: Sequence[int], changes: Sequence[Change]) -> None:
        """Give the items of these rows new metadata and files; what is None stays."""
        values = (
            (None if c.metadata is None else _json(c.metadata), c.file, row)
            for row, c in zip(rows, changes, strict=True)
        )
        sql = "metadata = coalesce(?, metadata), file = coalesce(?, file)"
        with self._named_errors():
            self._db.executemany(f"UPDATE items SET {sql} WHERE row = ?", values)

    def delete(self, rows: Sequence[int]) -> None:
        """Take items out."""
        sql = f"SELECT modality, -count(*) FROM items WHERE {_among('row')} GROUP BY modality"
        self._count(dict(self.query(sql, [_list(rows)])))
        self._bury(rows)
        self.query(f"DELETE FROM items WHERE {_among('row')}", [_list(rows)])

    def rows(self, ids: Sequence[str]) -> list[int]:
        """Row numbers of ids, which must exist."""
        sql = f"SELECT id, row FROM items WHERE {_among('id')}"
        found = dict(self.query(sql, [_list(ids)]))
        for id in ids:
            if id not in found:
                raise InputError(f"The index has no item {id!r}; nothing was done.")
        return [found[id] for id in ids]

    def items(self, rows: Iterable[int]) -> dict[int, Item]:
        """Items by row number."""
        return {row: Item(*facts) for row, facts in self.facts(rows).items()}

    def facts(self, rows: Iterable[int]) -> dict[int, Facts]:
        """What an `Item` is made of, by row number."""
        sql = f"SELECT row, id, modality, metadata, file FROM items WHERE {_among('row')}"
        return {
            row: (id, modality, {} if facts == "{}" else json.loads(facts), file)
            for row, id, modality, facts, file in self.query(sql, [_list(rows)])
        }

    def matching(self, modality: str, where: Sequence[Condition]) -> NDArray[np.int64]:
        """Row numbers (n,), rising, of items that meet all conditions."""
        tests = [sqlite_condition(condition) for condition in where]
        sql = " AND ".join(["SELECT row FROM items WHERE modality = ?", *(t for t, _ in tests)])
        parameters = [modality, *(value for _, values in tests for value in values)]
        return np.array(self.query(f"{sql} ORDER BY row", parameters), np.int64).reshape(-1)

    def vectors(
        self, condition: str, parameters: Sequence[Any], dim: int, dtype: str
    ) -> tuple[NDArray[np.int64], NDArray[np.floating]]:
        """Row numbers (n,), rising, and vectors (n, dim) of the items that meet a condition."""
        sql = (
            "SELECT row, vector, crc FROM items JOIN vectors USING (row) "
            f"WHERE {condition} ORDER BY row"
        )
        found = self.query(sql, parameters)
        for row, blob, crc in found:
            if zlib.crc32(blob) != crc or len(blob) != dim * np.dtype(dtype).itemsize:
                raise DamagedIndexError(
                    f"{self.path} is damaged: the vector of row {row} does not match its checksum. "
                    "Build the index again."
                )
        rows = np.array([row for row, _, _ in found], np.int64)
        joined = bytearray(b"".join(blob for _, blob, _ in found))
        flat = np.frombuffer(joined, dtype) if joined else np.empty(0, dtype)
        return rows, flat.reshape(len(rows), dim)

    def vectors_of(
        self, rows: Sequence[int], dim: int, dtype: str
    ) -> tuple[NDArray[np.int64], NDArray[np.floating]]:
        """The same for these rows."""
        return self.vectors(_among("row"), [_list(rows)], dim, dtype)

    def last_row(self) -> int:
        """The highest row number there ever was."""
        found = self.query("SELECT seq FROM sqlite_sequence WHERE name = 'items'")
        return int(found[0][0]) if found else 0

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    def counts(self) -> dict[str, int]:
        """How many items there are of each modality that has some; SQLite would count them all."""
        return dict(self.query("SELECT modality, count FROM counts WHERE count > 0"))

    def clear(self) -> None:
        """Take everything out."""
        for table in ("items", "vectors", "segments", "removed", "counts"):
            self.query(f"DELETE FROM {table}")
        self.set("sealed", self.last_row())

    def _count(self, more: Mapping[str, int]) -> None:
        for modality, count in more.items():
            self.query("INSERT OR IGNORE INTO counts VALUES (?, 0)", [modality])
            self.query("UPDATE counts SET count = count + ? WHERE modality = ?", [count, modality])

    def _bury(self, rows: Sequence[int]) -> None:
        """Drop vectors, and note those that segments hold."""
        self.query(f"DELETE FROM vectors WHERE {_among('row')}", [_list(rows)])
        sealed = int(self.get("sealed"))
        self.query(
            f"INSERT INTO removed SELECT row, modality FROM items WHERE {_among('row')}",
            [_list(row for row in rows if row <= sealed)],
        )

    def _insert_vectors(self, rows: Iterable[int], vectors: NDArray[np.floating]) -> None:
        blobs = (vector.tobytes() for vector in vectors)
        with self._named_errors():
            self._db.executemany(
                "INSERT INTO vectors VALUES (?, ?, ?)",
                ((row, blob, zlib.crc32(blob)) for row, blob in zip(rows, blobs, strict=True)),
            )

    @contextmanager
    def _transaction(self, begin: str, end: str) -> Iterator[None]:
        if self._depth:
            yield
            return
        self.query(begin)
        self._depth += 1
        try:
            yield
            self.query(end)
        finally:
            self._depth -= 1
            # A COMMIT that found the disk full leaves the transaction open, too.
            if self._db.in_transaction:
                self._db.rollback()

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """What SQLite says, with the name of the file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise CcalError(f"{self.path}: {error}; nothing was changed.") from error
        except sqlite3.DatabaseError as error:
            raise DamagedIndexError(
                f"{self.path} is damaged: {error}. It holds the truth of the index, which cannot "
                "be rebuilt without it; build the index again."
            ) from error


def _among(column: str) -> str:
    """A condition for any number of values, given as one JSON list."""
    return f"{column} IN (SELECT value FROM json_each(?))"


def _json(metadata: Mapping[str, Any]) -> str:
    # SQLite looks for keys as they are spelt, and would not find an escaped one.
    return json.dumps(dict(metadata), ensure_ascii=False) if metadata else "{}"


def _list(values: Iterable[Any]) -> str:
    return json.dumps(list(values))
