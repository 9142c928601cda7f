"""The truth of an embedded index: a SQLite database with every item and its vector."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.retrieval.embedded.database import Database
from ccal.retrieval.embedded.records import pack
from ccal.retrieval.errors import DamagedIndexError
from ccal.retrieval.filters import Condition, sqlite_condition
from ccal.retrieval.items import Change, Item
from ccal.retrieval.refusals import id_taken, in_order

__all__ = ["Truth"]

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
# A trigger, so that no way to change an item leaves it out.
_DESCRIBED = (
    "CREATE TABLE IF NOT EXISTS described (row INTEGER PRIMARY KEY, modality TEXT NOT NULL)",
    "CREATE TRIGGER IF NOT EXISTS describe AFTER UPDATE OF id, metadata, file ON items "
    "WHEN new.row <= (SELECT CAST(value AS INTEGER) FROM about WHERE key = 'sealed') "
    "BEGIN INSERT OR IGNORE INTO described VALUES (new.row, new.modality); END",
)


class Truth(Database):
    """Rows of vectors never change and never come back.

    `about` holds the binding, `changes` (a counter that every change raises), and `sealed`: rows up
    to this number are in segments, those after it are not. `removed` and `described` are rows that
    segments have, or describe, otherwise.
    """

    def is_complete(self) -> bool:
        """Whether the first transaction, which builds the index, came to its end."""
        found = self.query("SELECT 1 FROM sqlite_master WHERE name = 'about'")
        return bool(found)

    def create(self) -> None:
        """Make the tables, inside a transaction."""
        for statement in (*filter(str.strip, _SCHEMA.split(";")), *_DESCRIBED):
            self.query(statement)
        self.set("changes", 0)
        self.set("sealed", 0)

    def upgrade(self) -> bool:
        """Make what earlier versions had not; whether there was need."""
        if self.query("SELECT 1 FROM sqlite_master WHERE name = 'describe'"):
            return False
        with self.writing():
            for statement in _DESCRIBED:
                self.query(statement)
        return True

    def insert(self, items: Sequence[Item], vectors: NDArray[np.floating]) -> None:
        """Add items; one whose id exists is refused."""
        ids = [item.id for item in items]
        if taken := self.query(f"SELECT id FROM items WHERE {_among('id')} LIMIT 1", [_list(ids)]):
            raise id_taken(taken[0][0])
        row = self.last_row()
        self.query_many(
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
        pairs = zip(new, rows, strict=True)
        self.query_many("UPDATE items SET row = ? WHERE row = ?", pairs)
        # AUTOINCREMENT counts insertions only; a row must not come back after a removal.
        last = [new[-1] if len(new) else self.last_row()]
        self.query("UPDATE sqlite_sequence SET seq = ? WHERE name = 'items'", last)
        self._insert_vectors(new, vectors)

    def describe(self, rows: Sequence[int], changes: Sequence[Change]) -> None:
        """Give the items of these rows new metadata and files; what is None stays."""
        values = (
            (None if c.metadata is None else _json(c.metadata), c.file, row)
            for row, c in zip(rows, changes, strict=True)
        )
        sql = "metadata = coalesce(?, metadata), file = coalesce(?, file)"
        self.query_many(f"UPDATE items SET {sql} WHERE row = ?", values)

    def delete(self, rows: Sequence[int]) -> None:
        """Take items out."""
        sql = f"SELECT modality, -count(*) FROM items WHERE {_among('row')} GROUP BY modality"
        self._count(dict(self.query(sql, [_list(rows)])))
        self._bury(rows)
        self.query(f"DELETE FROM items WHERE {_among('row')}", [_list(rows)])

    def rows(self, ids: Sequence[str]) -> list[int]:
        """Row numbers of ids, which must exist."""
        sql = f"SELECT id, row FROM items WHERE {_among('id')}"
        return in_order(ids, dict(self.query(sql, [_list(ids)])))

    def items(self, rows: Iterable[int]) -> dict[int, Item]:
        """Items by row number."""
        sql = f"SELECT row, id, modality, metadata, file FROM items WHERE {_among('row')}"
        return {
            row: Item(id, modality, json.loads(facts), file)
            for row, id, modality, facts, file in self.query(sql, [_list(rows)])
        }

    def records(
        self, condition: str, parameters: Sequence[Any]
    ) -> tuple[NDArray[np.int64], list[bytes]]:
        """Row numbers (n,), rising, and records of the items that meet a condition."""
        columns = ", ".join(f"CAST({name} AS BLOB)" for name in ("id", "metadata", "file"))
        found = self.query(
            f"SELECT row, {columns} FROM items WHERE {condition} ORDER BY row", parameters
        )
        rows = np.array([row for row, *_ in found], np.int64)
        return rows, [pack(*parts) for _, *parts in found]

    def records_of(
        self, rows: NDArray[np.int64], condition: str, parameters: Sequence[Any]
    ) -> list[bytes]:
        """The same for these rows (n,), rising, all that is left of which meets the condition.

        Those that are gone have an empty record.
        """
        left, records = self.records(condition, parameters)
        aligned = [b""] * len(rows)
        for position, record in zip(np.searchsorted(rows, left).tolist(), records, strict=True):
            aligned[position] = record
        return aligned

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

    def counts(self) -> dict[str, int]:
        """How many items there are of each modality that has some; SQLite would count them all."""
        return dict(self.query("SELECT modality, count FROM counts WHERE count > 0"))

    def clear(self) -> None:
        """Take everything out."""
        for table in ("items", "vectors", "segments", "removed", "described", "counts"):
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
        self.query_many(
            "INSERT INTO vectors VALUES (?, ?, ?)",
            ((row, blob, zlib.crc32(blob)) for row, blob in zip(rows, blobs, strict=True)),
        )


def _among(column: str) -> str:
    """A condition for any number of values, given as one JSON list."""
    return f"{column} IN (SELECT value FROM json_each(?))"


def _json(metadata: Mapping[str, Any]) -> str:
    # SQLite looks for keys as they are spelt, and would not find an escaped one.
    return json.dumps(dict(metadata), ensure_ascii=False) if metadata else "{}"


def _list(values: Iterable[Any]) -> str:
    return json.dumps(list(values))
