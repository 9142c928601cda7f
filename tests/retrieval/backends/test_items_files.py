"""Files of records beside the vectors: hits always show what the item store has."""

from __future__ import annotations

import itertools
import os
import random
import signal
import sqlite3
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from ccal import DualEncoder
from ccal.retrieval import DamagedIndexError, Index
from ccal.retrieval.backends import exists
from ccal.retrieval.backends.folder import compaction
from ccal.retrieval.backends.folder.segments import ItemsFile, write_items
from tests.retrieval.backends.test_kill import CONTEXT
from tests.retrieval.conftest import DIM, damage, rows


@pytest.fixture
def location(model: DualEncoder, tmp_path: Path) -> Path:
    """An index of 40 images, closed."""
    facts = [{"n": n, "ä": "ö\n"} for n in range(40)]
    files = [f"{n}.jpg" for n in range(40)]
    options: dict[str, Any] = {"modality": "image", "metadata": facts, "files": files}
    Index.build(tmp_path / "index", model, rows(40), **options).close()
    return tmp_path / "index"


def found(index: Index) -> dict[str, Any]:
    """Metadata and file by id, as a search gives them."""
    hits = index.search_vectors(rows(1, width=DIM)[0], k=100)
    return {hit.id: (hit.metadata, hit.file) for hit in hits}


def known(index: Index) -> dict[str, Any]:
    """The same, as the item store has them."""
    return {item.id: (item.metadata, item.file) for item in index.get(index.ids())}


def items_file(location: Path) -> Path:
    (path,) = location.glob("segment-*.items")
    return path


def test_hits_stay_as_they_were(location: Path) -> None:
    index = Index.open(location)
    before = known(index)
    queries = rows(3, seed=1, width=DIM)
    answers = index.search_vectors(queries, k=40)
    index.update(["image-1"], metadata=[{"new": True}])
    index.remove(["image-2"])
    index.add_vectors("image", rows(30, seed=2, width=DIM))
    index.close()
    assert {hit.id: (hit.metadata, hit.file) for hit in answers[2]} == before


def test_metadata_that_changes(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "TAIL", 16)
    with Index.open(location) as index, Index.open(location) as reader:
        order = index.ids()
        for number in range(1, 30, 7):
            index.update([f"image-{number}"], metadata=[{"new": number}], files=["new.jpg"])
            assert found(index) == found(reader) == known(index)
        store = index._backend._store  # type: ignore[attr-defined]
        assert store.query("SELECT row FROM described") == [(1,), (8,), (15,), (22,), (29,)]
        # More than a quarter has changed, so that the segment is written again.
        index.update([f"image-{n}" for n in range(1, 13)], metadata=[{"n": -n} for n in range(12)])
        assert store.query("SELECT row FROM described") == []
        assert found(index) == found(reader) == known(index)
        assert index.ids() == order
        index.check()


@pytest.mark.parametrize("harm", ["cut", "flip", "header", "gone", "count"])
def test_a_damaged_file_is_named_and_written_again(location: Path, harm: str) -> None:
    with Index.open(location) as index:
        index.remove(["image-3", "image-40"])
        index.update(["image-5"], metadata=[{"five": 5}])
    path = items_file(location)
    if harm == "count":
        write_items(path, [b"a\0{}"] * 7)
    else:
        damage(path, harm)
    with (
        pytest.warns(UserWarning, match=rf"{path.name} was missing or damaged"),
        Index.open(location) as index,
    ):
        assert found(index) == known(index)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Index.open(location) as index:
            assert found(index) == known(index)
            assert len(found(index)) == 38
            # The segment was written again, without the items that were removed.
            assert not path.exists()
            assert len(ItemsFile(items_file(location), 38)) == 38


def test_a_damaged_file_while_another_process_writes(location: Path) -> None:
    with Index.open(location) as writer:
        writer.remove(["image-1"])
        items_file(location).unlink()
        with Index.open(location) as reader:
            assert found(reader) == known(reader)
        with pytest.warns(UserWarning, match="written again"):
            assert found(writer) == known(writer)


def test_a_folder_of_another_version(location: Path, model: DualEncoder) -> None:
    database = sqlite3.connect(location / "items.sqlite")
    database.execute("ALTER TABLE items DROP COLUMN crc")
    database.commit()
    database.close()
    assert exists(location)
    with pytest.raises(DamagedIndexError, match=r"another version of ccal.*--rebuild"):
        Index.open(location)
    with Index.build(location, model, rows(3), modality="image", replace=True) as index:
        index.update(["image-1"], metadata=[{"new": True}])
        assert found(index) == known(index)


def describe_until_killed(location: Path, seed: int, begun: Any) -> None:
    compaction.TAIL = 12
    rng = random.Random(seed)
    with Index.open(location) as index:
        for step in itertools.count():
            some = rng.sample(index.ids(), 4)
            index.update(some, metadata=[{"seed": seed, "step": step}] * 4, files=["new.jpg"] * 4)
            if step % 5 == 0:
                index.add_vectors("image", rows(8, seed=step, width=DIM))
                index.remove(rng.sample(index.ids(), 8))
            begun.set()


def test_kills_while_metadata_changes(location: Path) -> None:
    with Index.open(location) as reader:
        for seed in range(8):
            begun = CONTEXT.Event()
            process = CONTEXT.Process(target=describe_until_killed, args=(location, seed, begun))
            process.start()
            begun.wait()
            end = time.monotonic() + 0.05 + 0.1 * random.Random(seed).random()
            while time.monotonic() < end:
                assert len(found(reader)) % 8 == 0
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            with Index.open(location) as index:
                assert found(reader) == found(index) == known(index)
                index.check()


def test_a_search_in_the_middle_of_a_change(location: Path, model: DualEncoder) -> None:
    def look_and_fail(*_: int) -> None:
        found(index)
        raise KeyboardInterrupt

    with Index.open(location, model) as index:
        with pytest.raises(KeyboardInterrupt):
            index.add("image", rows(20, seed=1), progress=look_and_fail)
        assert found(index) == known(index)
        assert len(found(index)) == 40
        index.add("image", rows(20, seed=1), progress=lambda *_: print(len(found(index))))
        assert len(found(index)) == 60
