"""ItemStore: a SQLite database with every item and its vector, from which all else is made."""

import json
import os
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ccal.errors import CcalError, InputError
from ccal.retrieval.answers import pack_record
from ccal.retrieval.backends.folder.change_counter import ChangeCounter
from ccal.retrieval.backends.folder.schema import SCHEMA, STATE, among, checksum
from ccal.retrieval.exact import Floats, Ints
from ccal.retrieval.filters import Conditions, sqlite_condition
from ccal.retrieval.items import Binding, Change, DamagedIndexError, Item, id_taken, in_order

_FIELDS = ("id", "modality", "metadata", "file")
# As bytes, since a damaged text may be no UTF-8.
_CHECKSUM = f"checksum(row, {', '.join(f'CAST({name} AS BLOB)' for name in _FIELDS)})"


class ItemStore:
    """Items by row number; a new vector takes a new row, and a row number is never used again.

    `about` holds the binding, `changes`, which counts transactions, and `sealed`, which is
    `compacted`. The tables `removed` and `described` list rows that were removed, or whose metadata
    or file changed, since their segment was written. `changing` says whether a transaction that
    writes is under way.

    SQLite does not notice when bytes of its file change. So each item and each vector has a CRC-32,
    which covers its row number, and is compared whenever it is read. One checksum covers the small
    tables; each transaction that sees a new state compares it, and one that writes makes it anew.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.folder = path, path.parent
        self._depth = self._written = 0
        self.changing = False
        self._compared: tuple[int, int] | None = None
        self._verified = 0
        if not os.access(self.folder, os.W_OK):
            raise InputError(
                f"{self.folder}: even to search an index, SQLite must be allowed to write to its "
                "folder, where it notes who reads; get that right, or copy the folder."
            )
        self._inherited: list[sqlite3.Connection] = []
        self._counter = ChangeCounter(path)
        self._connect()

    def _connect(self) -> None:
        self._process = os.getpid()
        with self._named_errors():
            # Autocommit: transactions begin and end where we say. The backend locks.
            options: Any = {"isolation_level": None, "check_same_thread": False}
            self._db: sqlite3.Connection = sqlite3.connect(self.path, timeout=30, **options)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.create_function("checksum", -1, checksum, deterministic=True)
            self._file = os.stat(self.path)

    def _reconnect_after_fork(self) -> None:
        """SQLite's connections must neither be used nor closed in a forked process."""
        if self._process != os.getpid():
            self._inherited.append(self._db)
            self._depth, self.changing = 0, False
            self._connect()

    def reading(self) -> AbstractContextManager[None]:
        """All queries inside see one state, whatever others write; may be nested."""
        return self._transaction("BEGIN", end="ROLLBACK")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """All changes inside happen, and are on disk, or none."""
        try:
            with self._transaction("BEGIN IMMEDIATE", end="COMMIT"):
                self.changing = True
                yield
                number = int(self.get("changes")) + 1
                self.set("changes", number)
                self.set("checksum", self._state())
            if not self._depth:
                self._counter.note(number)
        finally:
            self.changing = self._depth > 0
            self._written += 1

    def version(self) -> tuple[int, int]:
        """A value that differs after every change, whoever made it."""
        ((others,),) = self.query("PRAGMA data_version")
        return self._written, others

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of one statement."""
        self._reconnect_after_fork()
        with self._named_errors():
            return self._db.execute(sql, parameters).fetchall()

    def get(self, key: str) -> str:
        """A value of `about`."""
        found = self.query("SELECT value FROM about WHERE key = ?", [key])
        if not found:
            raise self.damaged(f"it says nothing about {key}")
        return str(found[0][0])

    def set(self, key: str, value: object) -> None:
        """Set a value of `about`."""
        self.query("INSERT OR REPLACE INTO about VALUES (?, ?)", [key, str(value)])

    def query_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """One statement for each row of parameters."""
        with self._named_errors():
            self._db.executemany(sql, rows)

    def close(self) -> None:
        """Close the connection."""
        if self._process == os.getpid():
            self._db.close()

    def _check_place(self) -> None:
        """Refuse to go on with a database that was deleted, or replaced by another file."""
        with suppress(OSError):
            if os.path.samestat(os.stat(self.path), self._file):
                return
        problem = "was deleted or replaced since it was opened; open the index again."
        raise CcalError(f"{self.path} {problem}")

    @contextmanager
    def _transaction(self, begin: str, end: str) -> Iterator[None]:
        if self._depth:
            yield
            return
        self._check_place()
        noted = self._counter.noted()
        self.query(begin)
        self._depth += 1
        try:
            if self._compared != (version := self.version()) and self.is_complete():
                self._compare_state()
                if (found := int(self.get("changes"))) < noted:
                    raise self.damaged(f"the last {noted - found} changes are lost")
                self._compared = version
            yield
            self.query(end)
        finally:
            self._depth -= 1
            # A COMMIT that found the disk full leaves the transaction open, too.
            if self._db.in_transaction:
                self._db.rollback()

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Errors of SQLite, with the name of the file."""
        try:
            yield
        # A message of SQLite may quote damaged text.
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            # An SQL error: the file is not what our statements expect.
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
            if isinstance(error, sqlite3.OperationalError) and code != sqlite3.SQLITE_ERROR:
                raise CcalError(f"{self.path}: {error}; nothing was changed.") from error
            raise self.damaged(str(error)) from error

    def damaged(self, reason: str) -> DamagedIndexError:
        """The error for a database that is not as it was written."""
        return DamagedIndexError(
            f"{self.path} is damaged: {' '.join(reason.split())}. It holds the items of the index, "
            "which cannot be restored without it; build the index again."
        )

    def is_complete(self) -> bool:
        """Whether the first transaction, which builds the index, was committed."""
        return bool(self.query("SELECT 1 FROM sqlite_master WHERE name = 'about'"))

    def create(self) -> None:
        """Make the tables, inside a transaction."""
        for statement in SCHEMA:
            self.query(statement)
        self.set("changes", 0)
        self.compacted = 0

    def verify(self) -> None:
        """Read everything and compare it with its checksums."""
        ((verdict,), *_) = self.query("PRAGMA integrity_check")
        if verdict != "ok":
            raise self.damaged(verdict)
        self._compared, self._verified = None, 0
        with self.reading():
            self.verify_items()
            sql = "SELECT count(*) FROM items LEFT JOIN vectors USING (row) WHERE vector IS NULL"
            ((lost,),) = self.query(sql)
            sql = "SELECT count(*) FROM vectors WHERE crc != checksum(row, vector)"
            ((changed,),) = self.query(sql)
        if lost or changed:
            raise self.damaged(f"{changed} vectors do not match their checksums, {lost} are lost")

    def verify_items(self) -> None:
        """Compare all items with their checksums and count them; afterwards, new ones only."""
        sql = f"SELECT row FROM items WHERE row > ? AND crc != {_CHECKSUM} LIMIT 1"
        for (row,) in self.query(sql, [self._verified]):
            raise self.damaged(f"the item of row {row} does not match its checksum")
        if not self._verified:
            found = dict(self.query("SELECT modality, count(*) FROM items GROUP BY modality"))
            if found != self.counts():
                raise self.damaged("items are lost")
        self._verified = self.last_row()

    def _state(self) -> int:
        """The checksum of the small tables."""
        return zlib.crc32(repr([self.query(sql) for sql in STATE]).encode())

    def _compare_state(self) -> None:
        found = {sql for (sql,) in self.query("SELECT sql FROM sqlite_master WHERE sql NOT NULL")}
        if found - {"CREATE TABLE sqlite_sequence(name,seq)"} != set(SCHEMA):
            raise DamagedIndexError(
                f"{self.path} was written by another version of ccal, or is damaged: its tables "
                "are not those of this version. Build the index again, with `ccal index --rebuild` "
                "and an INPUT."
            )
        if self.get("checksum") != str(self._state()):
            raise self.damaged("counts, segments and settings do not match their checksum")

    @property
    def compacted(self) -> int:
        """Rows up to this number are in segments."""
        return int(self.get("sealed"))

    @compacted.setter
    def compacted(self, row: int) -> None:
        self.set("sealed", row)

    def insert(self, items: Sequence[Item], vectors: Floats) -> None:
        """Add items; one whose id exists is refused."""
        ids = [item.id for item in items]
        if taken := self.query(f"SELECT id FROM items WHERE {among('id')} LIMIT 1", [_list(ids)]):
            raise id_taken(taken[0][0])
        row = self.last_row()
        numbered = enumerate(items, start=row + 1)
        values = ((n, i.id, i.modality, _json(i.metadata), i.file) for n, i in numbered)
        self.query_many("INSERT INTO items VALUES (?, ?, ?, ?, ?, 0)", values)
        self._sign("row > ?", [row])
        self._insert_vectors(range(row + 1, row + 1 + len(items)), vectors)
        self._count(Counter(item.modality for item in items))

    def move(self, rows: Sequence[int], vectors: Floats) -> None:
        """Give the items of these rows new vectors, which takes new rows."""
        new = range(self.last_row() + 1, self.last_row() + 1 + len(rows))
        self._drop_vectors(rows)
        pairs = zip(new, rows, strict=True)
        self.query_many("UPDATE items SET row = ? WHERE row = ?", pairs)
        self._sign("row >= ?", [new.start])
        # AUTOINCREMENT counts insertions only; a row must not come back after a removal.
        last = [new[-1] if len(new) else self.last_row()]
        self.query("UPDATE sqlite_sequence SET seq = ? WHERE name = 'items'", last)
        self._insert_vectors(new, vectors)

    def describe(self, rows: Sequence[int], changes: Sequence[Change]) -> None:
        """Give the items of these rows new metadata and files; None leaves them as they are."""
        values = (
            (None if c.metadata is None else _json(c.metadata), c.file, row)
            for row, c in zip(rows, changes, strict=True)
        )
        sql = "metadata = coalesce(?, metadata), file = coalesce(?, file)"
        self.query_many(f"UPDATE items SET {sql} WHERE row = ?", values)
        self._sign(among("row"), [_list(rows)])

    def delete(self, rows: Sequence[int]) -> None:
        """Remove items."""
        sql = f"SELECT modality, -count(*) FROM items WHERE {among('row')} GROUP BY modality"
        self._count(dict(self.query(sql, [_list(rows)])))
        self._drop_vectors(rows)
        self.query(f"DELETE FROM items WHERE {among('row')}", [_list(rows)])

    def known(self, ids: Sequence[str]) -> list[str]:
        """Those of the ids that exist."""
        found = self.query(f"SELECT id FROM items WHERE {among('id')}", [_list(ids)])
        return [id for (id,) in found]

    def rows(self, ids: Sequence[str]) -> list[int]:
        """Row numbers of ids, which must exist."""
        found = self._read("id", among("id"), [_list(ids)])
        return in_order(ids, {id: row for row, id in found})

    def items(self, ids: Sequence[str]) -> list[Item]:
        """Items of ids, which must exist."""
        found = {}
        columns = "id, modality, metadata, file"
        for _, id, modality, metadata, file in self._read(columns, among("id"), [_list(ids)]):
            found[id] = Item(id, modality, json.loads(metadata), file)
        return in_order(ids, found)

    def records(self, condition: str, parameters: Sequence[Any]) -> tuple[Ints, list[bytes]]:
        """Row numbers (n,), ascending, and records of the items that meet a condition."""
        columns = ", ".join(f"CAST({name} AS BLOB)" for name in ("id", "metadata", "file"))
        found = self._read(columns, condition, parameters)
        rows = np.array([row for row, *_ in found], np.int64)
        return rows, [pack_record(*parts) for _, *parts in found]

    def ids(self, modality: str | None) -> list[str]:
        """All ids, of one modality if given, in the order of their rows."""
        found = self._read("id", "coalesce(modality = ?, 1)", [modality])
        counts = self.counts()
        if len(found) != (sum(counts.values()) if modality is None else counts.get(modality, 0)):
            raise self.damaged("items are lost")
        return [id for _, id in found]

    def _read(self, columns: str, condition: str, parameters: Sequence[Any]) -> list[Any]:
        """Row and columns of the items that meet a condition; each must be as it was written."""
        sql = f"SELECT crc = {_CHECKSUM}, row, {columns} FROM items WHERE {condition} ORDER BY row"
        found = self.query(sql, parameters)
        previous = 0
        for sound, row, *_ in found:
            if not sound or row <= previous:
                raise self.damaged(f"the item of row {row} does not match its checksum")
            previous = row
        return [values for _, *values in found]

    def _sign(self, condition: str, parameters: Sequence[Any]) -> None:
        """Give items that are new or changed their checksums."""
        self.query(f"UPDATE items SET crc = {_CHECKSUM} WHERE {condition}", parameters)

    def matching(self, modality: str, where: Conditions) -> Ints:
        """Row numbers (n,), ascending, of items that meet all conditions."""
        # SQLite looks at every item, so that every one must be as it was written.
        self.verify_items()
        tests = [sqlite_condition(condition) for condition in where]
        sql = " AND ".join(["SELECT row FROM items WHERE modality = ?", *(t for t, _ in tests)])
        parameters = [modality, *(value for _, values in tests for value in values)]
        return np.array(self.query(f"{sql} ORDER BY row", parameters), np.int64).reshape(-1)

    def vectors(
        self, condition: str, parameters: Sequence[Any], binding: Binding
    ) -> tuple[Ints, Floats]:
        """Row numbers (n,), ascending, and vectors (n, dim) of items that meet a condition."""
        tables = "items LEFT JOIN vectors USING (row)"
        sql = f"SELECT row, vector, vectors.crc FROM {tables} WHERE {condition} ORDER BY row"
        found = self.query(sql, parameters)
        size = binding.dim * np.dtype(binding.dtype).itemsize
        for row, blob, crc in found:
            if not isinstance(blob, bytes) or checksum(row, blob) != crc or len(blob) != size:
                raise self.damaged(f"the vector of row {row} does not match its checksum")
        rows = np.array([row for row, _, _ in found], np.int64)
        joined = bytearray(b"".join(blob for _, blob, _ in found))
        flat = np.frombuffer(joined, binding.dtype) if joined else np.empty(0, binding.dtype)
        return rows, flat.reshape(len(rows), binding.dim)

    def vectors_of(self, rows: Sequence[int], binding: Binding) -> tuple[Ints, Floats]:
        """Row numbers, ascending, and vectors of these rows, which must exist."""
        found, vectors = self.vectors(among("row"), [_list(rows)], binding)
        if found.tolist() != sorted(rows):
            raise self.damaged("items are lost")
        return found, vectors

    def last_row(self) -> int:
        """The highest row number ever used."""
        found = self.query("SELECT seq FROM sqlite_sequence WHERE name = 'items'")
        return int(found[0][0]) if found else 0

    def counts(self) -> dict[str, int]:
        """The number of items of each modality, kept up to date as SQLite counts slowly."""
        return dict(self.query("SELECT modality, count FROM counts WHERE count > 0"))

    def clear(self) -> None:
        """Remove everything."""
        for table in ("items", "vectors", "segments", "removed", "described", "counts"):
            self.query(f"DELETE FROM {table}")
        self.compacted = self.last_row()

    def _count(self, more: Mapping[str, int]) -> None:
        for modality, count in more.items():
            self.query("INSERT OR IGNORE INTO counts VALUES (?, 0)", [modality])
            self.query("UPDATE counts SET count = count + ? WHERE modality = ?", [count, modality])

    def _drop_vectors(self, rows: Sequence[int]) -> None:
        """Delete vectors, and list those in segments as removed."""
        self.query(f"DELETE FROM vectors WHERE {among('row')}", [_list(rows)])
        sql = f"INSERT INTO removed SELECT row, modality FROM items WHERE {among('row')}"
        compacted = self.compacted
        self.query(sql, [_list(row for row in rows if row <= compacted)])

    def _insert_vectors(self, rows: Iterable[int], vectors: Floats) -> None:
        pairs = zip(rows, (vector.tobytes() for vector in vectors), strict=True)
        values = ((row, blob, checksum(row, blob)) for row, blob in pairs)
        self.query_many("INSERT INTO vectors VALUES (?, ?, ?)", values)


def _json(metadata: Mapping[str, Any]) -> str:
    # SQLite compares keys as they are written, and would not find an escaped one.
    return json.dumps(dict(metadata), ensure_ascii=False) if metadata else "{}"


def _list(values: Iterable[Any]) -> str:
    return json.dumps(list(values))
