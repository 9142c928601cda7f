"""Features on disk, by what an image or a text holds and which network saw it."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from ccal.errors import InputError

_FILE, _CHECK_BYTES = "features.sqlite", 16


def user_cache(kind: str = "images") -> Path:
    """The folder for features that nobody chose one for: $XDG_CACHE_HOME or ~/.cache, ccal/`kind`.

    It may be deleted at any time.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "ccal" / kind


def cache_folder(cache: str | os.PathLike[str] | bool | None, kind: str) -> Path | None:
    """The folder that the argument `cache` of a front end means, or None for no cache."""
    folder = (user_cache(kind) if cache is True else Path(cache)) if cache else None
    if folder is not None and folder.exists() and not folder.is_dir():
        raise InputError(f"cache must be a folder, and {str(folder)!r} is a file.")
    return folder


class FeatureCache:
    """Rows of float32, exactly as they were put in, kept by a digest of what they are made from.

    `space` tells apart what else the rows depend on: the network, its weights, the crop. Many
    processes and threads may use one folder at a time, and any may be killed at any moment: a batch
    of rows is there as a whole or not at all. Rows carry checksums, and a damaged one counts as
    missing. If the folder or its file cannot be used, a warning says so and nothing is kept.
    `folder=None` keeps nothing.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, FeatureCache(Path(folder), "net") as cache:
    ...     cache.put({b"digest": np.array([1.5, 2.5], dtype=np.float32)})
    ...     cache.get(b"digest"), cache.get(b"other")
    (array([1.5, 2.5], dtype=float32), None)
    """

    def __init__(self, folder: Path | None, space: str) -> None:
        self._folder, self._space = folder, space.encode()
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                self._connection = _connect(folder / _FILE)
            except (OSError, sqlite3.Error) as error:
                self._give_up(error)

    def get(self, digest: bytes) -> NDArray[np.float32] | None:
        """The row (d,) of this digest, or None."""
        key = self._key(digest)
        with self._lock:
            if self._connection is None:
                return None
            try:
                query = "SELECT CAST(row AS BLOB) FROM features WHERE key = ?"
                found = self._connection.execute(query, (key,)).fetchone()
            except sqlite3.Error as error:
                self._give_up(error)
                return None
        if found is None:
            return None
        check, row = found[0][:_CHECK_BYTES], found[0][_CHECK_BYTES:]
        if not row or len(row) % 4 or check != _checksum(key, row):
            return None
        return np.frombuffer(row, dtype="<f4").astype(np.float32)

    def put(self, rows: Mapping[bytes, NDArray[np.float32]]) -> None:
        """Keep rows (d,) by their digests, all or none."""
        entries = []
        for digest, values in rows.items():
            key, row = self._key(digest), values.astype("<f4").tobytes()
            entries.append((key, _checksum(key, row) + row))
        with self._lock:
            if self._connection is None or not entries:
                return
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.executemany("REPLACE INTO features VALUES (?, ?)", entries)
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                self._give_up(error)

    def close(self) -> None:
        """Let go of the file."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
        self._connection = None

    def __enter__(self) -> FeatureCache:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _key(self, digest: bytes) -> bytes:
        return hashlib.sha256(self._space + b"\0" + digest).digest()

    def _give_up(self, error: Exception) -> None:
        self.close()
        warnings.warn(
            f"Features are not cached: {str(self._folder)!r} cannot be used ({error}). "
            "If its file is damaged, delete the folder; else choose another with cache=...",
            UserWarning,
            stacklevel=2,
        )


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
    try:
        # Changing the journal's mode does not wait for other processes that are just doing so.
        for attempt in range(100):
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                break
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or attempt == 99:
                    raise
                time.sleep(0.05)
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS features (key BLOB PRIMARY KEY, row BLOB NOT NULL)"
        )
    except BaseException:
        connection.close()
        raise
    return connection


def _checksum(key: bytes, row: bytes) -> bytes:
    return hashlib.sha256(key + row).digest()[:_CHECK_BYTES]
