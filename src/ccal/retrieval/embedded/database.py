"""A SQLite database, in transactions, whose errors name the file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ccal.errors import CcalError, InputError
from ccal.retrieval.errors import DamagedIndexError

__all__ = ["Database"]


class Database:
    """A connection; the table `about` holds values by name, `changes` counts transactions.

    `changing` says whether it is in the middle of one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._depth = self._written = 0
        self.changing = False
        if not os.access(path.parent, os.W_OK):
            raise InputError(
                f"{path.parent}: even to search an index, SQLite must be allowed to write to its "
                "folder, where it notes who reads; get that right, or copy the folder."
            )
        try:
            # Autocommit: transactions begin and end where we say. Locking is the home's.
            self._db = sqlite3.connect(
                path, timeout=30, isolation_level=None, check_same_thread=False
            )
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
        except sqlite3.DatabaseError as error:
            raise self._named(error) from error

    @contextmanager
    def reading(self) -> Iterator[None]:
        """All queries inside see one state, whatever others write; may be nested."""
        with self._transaction("BEGIN", end="ROLLBACK"):
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """All changes inside happen, and are on disk, or none."""
        try:
            with self._transaction("BEGIN IMMEDIATE", end="COMMIT"):
                self.changing = True
                yield
                self.set("changes", int(self.get("changes")) + 1)
        finally:
            self.changing = self._depth > 0
            self._written += 1

    def version(self) -> tuple[int, int]:
        """Another one than before if there was a change since, by whomever."""
        ((others,),) = self.query("PRAGMA data_version")
        return self._written, others

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of one statement."""
        try:
            return self._db.execute(sql, parameters).fetchall()
        except sqlite3.DatabaseError as error:
            raise self._named(error) from error

    def get(self, key: str) -> str:
        """A value of `about`."""
        found = self.query("SELECT value FROM about WHERE key = ?", [key])
        if not found:
            raise DamagedIndexError(f"{self.path} is damaged: it says nothing about {key}.")
        return str(found[0][0])

    def set(self, key: str, value: object) -> None:
        """Set a value of `about`."""
        self.query("INSERT OR REPLACE INTO about VALUES (?, ?)", [key, str(value)])

    def query_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """One statement for each row of parameters."""
        try:
            self._db.executemany(sql, rows)
        except sqlite3.DatabaseError as error:
            raise self._named(error) from error

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

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

    def _named(self, error: sqlite3.DatabaseError) -> CcalError:
        """What SQLite says, with the name of the file."""
        if isinstance(error, sqlite3.OperationalError):
            return CcalError(f"{self.path}: {error}; nothing was changed.")
        return DamagedIndexError(
            f"{self.path} is damaged: {error}. It holds the truth of the index, which cannot "
            "be rebuilt without it; build the index again."
        )
