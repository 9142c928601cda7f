"""The folder backend: segments, damage, several processes, full disks."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccal import CcalError, DualEncoder, InputError
from ccal.retrieval import DamagedIndexError, Index, IndexInUseError, OtherModelError
from ccal.retrieval.backends.folder import compaction
from tests.fresh import run
from tests.retrieval.conftest import DIM, assert_same, brute_force, damage, rows
from tests.retrieval.test_embedding import trained

CONTEXT = multiprocessing.get_context("fork")


@pytest.fixture
def location(model: DualEncoder, tmp_path: Path) -> Path:
    """An index of 300 images and 50 texts, closed."""
    with Index.build(tmp_path / "index", model, rows(300), modality="image") as index:
        index.add("text", rows(50))
    return tmp_path / "index"


def assert_right(index: Index) -> None:
    for modality in index.stats().counts:
        ids = index.ids(modality)
        for query in rows(3, seed=7, width=DIM):
            hits = index.search_vectors(query, within=modality, k=15)
            assert_same(hits, brute_force(index, query, 15, ids))


def segment_files(location: Path) -> list[Path]:
    return sorted(location.glob("segment-*.vectors"))


def test_segments_stay_few(
    model: DualEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "TAIL", 10)
    with Index.build(tmp_path / "a", model, rows(0), modality="image") as index:
        for step in range(60):
            index.add_vectors("image" if step % 4 else "text", rows(7, seed=step, width=DIM))
            if step % 3 == 0:
                index.remove(index.ids()[::9])
            if step % 10 == 0:
                assert_right(index)
        assert_right(index)
        details = index.stats().details
        assert 2 <= details["segments"] <= 12
        assert details["waiting"] <= 17
        assert len(segment_files(tmp_path / "a")) == details["segments"]
        index.remove(index.ids()[:-20])
        assert index.stats().details["removed"] < 20
        assert_right(index)
        index.check()


@pytest.mark.parametrize("harm", ["cut", "flip", "header", "gone", "empty"])
def test_a_damaged_segment_is_named_and_written_again(location: Path, harm: str) -> None:
    (path,) = segment_files(location)
    damage(path, harm)
    with (
        pytest.warns(UserWarning, match=rf"{path.name} was missing or damaged"),
        Index.open(location) as index,
    ):
        assert_right(index)
    with Index.open(location) as index:
        assert_right(index)
    assert len(segment_files(location)) == 1


def test_damage_while_another_process_writes(location: Path) -> None:
    with Index.open(location) as writer:
        writer.remove(["image-1"])
        (path,) = segment_files(location)
        path.write_bytes(path.read_bytes()[:-1])
        with Index.open(location) as reader:
            assert_right(reader)
        with pytest.warns(UserWarning, match="written again"):
            assert_right(writer)


def test_a_damaged_database_is_refused(location: Path, model: DualEncoder) -> None:
    store = location / "items.sqlite"
    whole = store.read_bytes()
    store.write_bytes(b"no database" * 1000)
    with pytest.raises(DamagedIndexError, match=r"items\.sqlite is damaged"):
        Index.open(location)
    with Index.build(location, model, rows(2), modality="image", replace=True) as index:
        assert index.count() == 2
    store.write_bytes(whole)
    database = sqlite3.connect(store)
    database.execute("UPDATE vectors SET vector = zeroblob(32) WHERE row = 7")
    database.commit()
    database.close()
    with pytest.raises(DamagedIndexError, match="row 7"), Index.open(location) as index:
        index.check()
    store.write_bytes(whole[:20_000])
    with pytest.raises(DamagedIndexError), Index.open(location) as index:
        index.check()


def test_places_that_are_no_index(tmp_path: Path, model: DualEncoder) -> None:
    with pytest.raises(InputError, match=r"no such folder\. Make one with `ccal index`"):
        Index.open(tmp_path / "none")
    with pytest.raises(InputError, match=r"no items\.sqlite"):
        Index.open(tmp_path)
    with pytest.raises(InputError, match="no place for an index"):
        Index.open("redis://here")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"not empty and no index: it holds 'notes\.txt'"):
        Index.build(tmp_path, model, rows(1), modality="image", replace=True)
    with pytest.raises(InputError, match="is a file"):
        Index.build(tmp_path / "notes.txt", model, rows(1), modality="image")
    sqlite3.connect(tmp_path / "items.sqlite").execute("PRAGMA journal_mode = WAL")
    with pytest.raises(InputError, match="half-written"):
        Index.open(tmp_path)


def test_a_build_that_fails_leaves_nothing(tmp_path: Path, model: DualEncoder) -> None:
    broken = rows(3)
    broken[1] = np.nan
    with pytest.raises(InputError, match="NaN"):
        Index.build(tmp_path / "a", model, broken, modality="image")
    assert not (tmp_path / "a").exists()
    Index.build(tmp_path / "b", model, rows(3), modality="image").close()
    with pytest.raises(InputError, match="NaN"):
        Index.build(tmp_path / "b", model, broken, modality="image", replace=True)
    with Index.open(tmp_path / "b", model) as index:
        assert len(index.search(image=rows(1)[0])) == 3


def test_one_writer(location: Path) -> None:
    with Index.open(location) as first, Index.open(location) as second:
        first.remove(["image-1"])
        with pytest.raises(IndexInUseError, match=f"process {os.getpid()}"):
            second.remove(["image-2"])
        assert second.count() == 349
        assert_right(second)
    with Index.open(location) as second:
        second.remove(["image-2"])


def write_for_a_while(location: Path, seconds: float) -> None:
    compaction.TAIL = 40
    end = time.monotonic() + seconds
    with Index.open(location) as index:
        step = 0
        while time.monotonic() < end:
            new = index.add_vectors("image", rows(25, seed=step, width=DIM))
            index.remove(new[:10])
            step += 1


def test_readers_see_whole_states_while_one_writes(location: Path) -> None:
    process = CONTEXT.Process(target=write_for_a_while, args=(location, 1.5))
    process.start()
    sizes: set[int] = set()
    with Index.open(location) as reader:
        while process.is_alive():
            query = rows(1, seed=len(sizes), width=DIM)[0]
            hits = reader.search_vectors(query, within="image", k=100_000)
            # An addition is of 25, a removal of 10: no other size is ever seen.
            assert (len(hits) - 300) % 15 in (0, 10)
            sizes.add(len(hits))
            order = [(-hit.score, hit.id) for hit in hits]
            assert order == sorted(order)
        process.join()
        assert process.exitcode == 0
        assert len(sizes) > 3
        assert_right(reader)
    assert len(segment_files(location)) == Index.open(location).stats().details["segments"]


def test_a_full_disk_during_compaction(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "TAIL", 10)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with Index.open(location) as index:
        with monkeypatch.context() as patch:
            patch.setattr("ccal.files.os.fsync", full)
            with pytest.warns(UserWarning, match="the change is safe"):
                index.add_vectors("image", rows(30, width=DIM))
        assert index.count() == 380
        assert_right(index)
        assert not list(location.glob(".segment-*"))
        index.add_vectors("image", rows(1, width=DIM))
        assert index.stats().details["waiting"] == 0


def test_a_full_disk_during_repair(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = segment_files(location)
    path.unlink()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ccal.files.os.fsync", full)
    with pytest.warns(UserWarning, match="cannot be written again"), Index.open(location) as index:
        assert_right(index)


def test_readers_notice_other_dimensions(tmp_path: Path) -> None:
    model = trained()
    options: dict[str, Any] = {"modality": "image", "replace": True}
    Index.build(tmp_path / "a", model, rows(9), **options).close()
    with Index.open(tmp_path / "a", model) as reader:
        Index.build(tmp_path / "a", model, rows(9), dims=3, **options).close()
        with pytest.raises(OtherModelError, match="other dimensions"):
            reader.search(image=rows(1)[0])


def test_a_full_disk_while_adding(location: Path) -> None:
    with Index.open(location) as index:
        store = index._backend._store  # type: ignore[attr-defined]
        ((pages,),) = store.query("PRAGMA page_count")
        store.query(f"PRAGMA max_page_count = {pages + 2}")
        before = index.ids()
        with pytest.raises(CcalError, match="full; nothing was changed"):
            index.add_vectors("image", rows(3000, width=DIM))
        assert index.ids() == before
        assert_right(index)


def test_orphans_are_removed(location: Path) -> None:
    (location / "segment-000000000000.vectors").write_bytes(b"left over")
    (location / ".segment-1.vectors.tmp").write_bytes(b"left over")
    with Index.open(location) as index:
        index.remove(["image-1"])
    assert len(segment_files(location)) == 1
    assert not list(location.glob(".segment*"))


def test_segments_that_cannot_be_written_leave_nothing(
    location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(compaction, "TAIL", 10)
    before = segment_files(location)
    with Index.open(location) as index:
        with monkeypatch.context() as patch:
            patch.setattr(compaction, "write_items", fail)
            with pytest.warns(UserWarning, match="change is safe"):
                index.add_vectors("image", rows(20, width=DIM))
        assert segment_files(location) == before
        assert len(list(location.glob("segment-*"))) == 2 * len(before)
        assert_right(index)


def test_float16_in_chunks(
    model: DualEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ccal.retrieval import exact

    monkeypatch.setattr(exact, "_CHUNK", 64)
    options: dict[str, Any] = {"modality": "image", "dtype": "float16"}
    with Index.build(tmp_path / "a", model, rows(300), **options) as index:
        query = rows(1, seed=2, width=DIM)[0]
        hits = index.search_vectors(query, k=30)
        assert_same(hits, brute_force(index, query, 30, index.ids()))


def test_threads_share_an_index(location: Path) -> None:
    with Index.open(location) as index, ThreadPoolExecutor(4) as pool:

        def ask(seed: int) -> int:
            return len(index.search_vectors(rows(2, seed=seed, width=DIM), k=400)[1])

        answers = [pool.submit(ask, seed) for seed in range(20)]
        changes = [
            pool.submit(index.add_vectors, "image", rows(1, seed=n, width=DIM), ids=[f"new {n}"])
            for n in range(10)
        ]
        assert all(350 <= answer.result() <= 360 for answer in answers)
        assert [change.result() for change in changes] == [[f"new {n}"] for n in range(10)]
        assert index.count() == 360
        assert_right(index)


def test_opening_and_searching_loads_no_other_backend(location: Path) -> None:
    code = (
        "import sys; from ccal import Index; index = Index.open(sys.argv[1]); "
        f"index.search_vectors([1.0] * {DIM}); print(*sys.modules)"
    )
    modules = set(run(code, location).split())
    ours = {name for name in modules if name.split(".")[0] == "ccal"}
    assert len(ours) < 65
    assert not {"pymilvus", "psycopg", "faiss", "safetensors"} & modules
    unused = ("training", "losses", "data", "runs", "retrieval.codes")
    others = ("retrieval.backends.postgres", "retrieval.backends.milvus")
    assert not {
        name for name in ours if name.startswith(tuple(f"ccal.{n}" for n in unused + others))
    }


def test_a_forked_process_reopens_the_index_and_has_no_lock(location: Path) -> None:
    told, tell = os.pipe()
    until, end = os.pipe()
    with Index.open(location) as index:
        index.remove(["image-1"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads, which do not matter here
            child = os.fork()
        if not child:
            os.close(end)
            words = "the child failed"
            with suppress(BaseException):
                words = f"counts {index.count()}"
                with suppress(IndexInUseError):
                    index.remove(["image-2"])
                    words = "the child has the lock"
            os.write(tell, words.encode())
            os.read(until, 1)
            os._exit(0)
        assert os.read(told, 100) == b"counts 349"
        index.close()
        # The child lives, and does not keep the lock.
        with Index.open(location) as again:
            again.remove(["image-2"])
            assert again.count() == 348
        os.close(end)
        os.waitpid(child, 0)
