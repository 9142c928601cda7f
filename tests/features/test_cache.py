"""The cache on disk: exact, shared, killed at any moment, damaged."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ccal.features import FeatureCache, user_cache

FORK = multiprocessing.get_context("fork")


def row(number: int, width: int = 64) -> NDArray[np.float32]:
    return np.random.default_rng(number).normal(size=width).astype(np.float32)


def digest(number: int) -> bytes:
    return number.to_bytes(8, "big")


def test_rows_come_back_bit_by_bit(tmp_path: Path) -> None:
    special = np.array([-0.0, 1e-45, 3.4e38, np.pi], dtype=np.float32)
    with FeatureCache(tmp_path / "new" / "folder", "net") as cache:
        cache.put({b"a": special})
    with FeatureCache(tmp_path / "new" / "folder", "net") as cache:
        found = cache.get(b"a")
    assert found is not None
    assert found.tobytes() == special.tobytes()
    found[0] = 1  # a row is the caller's own


def test_spaces_do_not_mix(tmp_path: Path) -> None:
    with FeatureCache(tmp_path, "one") as one, FeatureCache(tmp_path, "two") as two:
        one.put({b"a": row(1)})
        assert two.get(b"a") is None
        two.put({b"a": row(2)})
        assert np.array_equal(one.get(b"a"), row(1))  # type: ignore[arg-type]


def test_without_a_folder_nothing_is_kept() -> None:
    with FeatureCache(None, "net") as cache:
        cache.put({b"a": row(1)})
        assert cache.get(b"a") is None


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE features SET row = zeroblob(length(row))",
        "UPDATE features SET row = substr(row, 1, length(row) - 4)",
        "UPDATE features SET row = substr(row, 1, 40) || x'00' || substr(row, 42)",
        "UPDATE features SET row = CAST(substr(row, 1, 40) || x'00' || substr(row, 42) AS BLOB)",
        "UPDATE features SET row = x''",
        "UPDATE features SET row = 'text'",
        "UPDATE features SET row = (SELECT max(row) FROM features)",
    ],
)
def test_damaged_rows_count_as_missing_and_are_replaced(tmp_path: Path, damage: str) -> None:
    rows = {digest(n): row(n) for n in range(5)}
    with FeatureCache(tmp_path, "net") as cache:
        cache.put(rows)
    with sqlite3.connect(tmp_path / "features.sqlite") as connection:
        connection.execute(damage)
    connection.close()
    with FeatureCache(tmp_path, "net") as cache:
        for key, expected in rows.items():
            found = cache.get(key)
            assert found is None or np.array_equal(found, expected)
        assert sum(cache.get(key) is not None for key in rows) <= 1
        cache.put(rows)
        assert all(np.array_equal(cache.get(key), rows[key]) for key in rows)  # type: ignore[arg-type]


def test_a_damaged_file_is_left_alone_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "features.sqlite").write_bytes(b"no database" * 1000)
    with pytest.warns(UserWarning, match="not cached.*delete the folder"):
        cache = FeatureCache(tmp_path, "net")
    cache.put({b"a": row(1)})
    assert cache.get(b"a") is None


def test_pages_that_went_bad(tmp_path: Path) -> None:
    with FeatureCache(tmp_path, "net") as cache:
        cache.put({digest(n): row(n, 1280) for n in range(100)})
    path = tmp_path / "features.sqlite"
    content = bytearray(path.read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    path.write_bytes(content)
    with pytest.warns(UserWarning, match="not cached"), FeatureCache(tmp_path, "net") as cache:
        assert all(cache.get(digest(n)) is None for n in range(100))


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.warns(UserWarning, match="not cached"):
        FeatureCache(tmp_path / "file" / "below", "net")


def _write(folder: Path, first: int) -> None:
    for start in range(first, first + 200, 10):
        with FeatureCache(folder, "net") as cache:
            cache.put({digest(n): row(n) for n in range(start, start + 10)})
            assert np.array_equal(cache.get(digest(start)), row(start))  # type: ignore[arg-type]


def test_processes_share_a_folder(tmp_path: Path) -> None:
    # Overlapping ranges: some rows are written by several processes.
    workers = [FORK.Process(target=_write, args=(tmp_path / "c", 100 * k)) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 4
    with FeatureCache(tmp_path / "c", "net") as cache:
        assert all(np.array_equal(cache.get(digest(n)), row(n)) for n in range(500))  # type: ignore[arg-type]


def test_threads_share_a_cache(tmp_path: Path) -> None:
    errors: list[Exception] = []

    def work(first: int) -> None:
        try:
            for n in range(first, first + 50):
                cache.put({digest(n): row(n)})
                assert np.array_equal(cache.get(digest(n)), row(n))  # type: ignore[arg-type]
        except Exception as error:
            errors.append(error)

    with FeatureCache(tmp_path, "net") as cache:
        threads = [threading.Thread(target=work, args=(50 * k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert errors == []


def _write_batches(folder: Path) -> None:
    with FeatureCache(folder, "net") as cache:
        for batch in range(100_000):
            cache.put({digest(50 * batch + n): row(50 * batch + n) for n in range(50)})


def test_killed_while_writing_batches_are_whole_or_absent(tmp_path: Path) -> None:
    for pause in (0.15, 0.2, 0.3):
        worker = FORK.Process(target=_write_batches, args=(tmp_path,))
        worker.start()
        assert worker.pid is not None
        time.sleep(pause)
        os.kill(worker.pid, signal.SIGKILL)
        worker.join(60)
        with FeatureCache(tmp_path, "net") as cache:
            cache.put({b"after": row(0)})
            batch = 0
            while cache.get(digest(50 * batch)) is not None:
                for n in range(50 * batch, 50 * batch + 50):
                    assert np.array_equal(cache.get(digest(n)), row(n))  # type: ignore[arg-type]
                batch += 1
            assert cache.get(digest(50 * batch + 49)) is None
    connection = sqlite3.connect(tmp_path / "features.sqlite")
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_the_users_folder(user_cache_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert user_cache() == user_cache_home / "ccal" / "images"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert user_cache() == Path.home() / ".cache" / "ccal" / "images"
