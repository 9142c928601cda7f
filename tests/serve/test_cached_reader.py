"""Cached cards follow changes of the index; truncated files are noticed before they are read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ccal import Pairs, load
from ccal.data.pairs import Rows
from ccal.retrieval import Index
from ccal.serve import IndexCollection, cached_reader
from ccal.serve.cached_reader import CachedReader, FileSizes
from tests.cli.conftest import environment
from tests.serve.conftest import open_collection
from tests.serve.live import Live


def test_results_show_changes_by_another_process(photos: Path, tmp_path: Path) -> None:
    shutil.copytree(photos, tmp_path / "copy")
    server = Live(open_collection(tmp_path / "copy"))
    asked = {"text": "a red square", "k": 3}
    with server.client() as client:
        before = client.post("/api/search", json=asked).json()["results"]
        first = before[0]
        with Index.open(tmp_path / "copy" / "photos.index") as index:
            index.update([first["id"]], metadata=[{"title": 'now "this"', "n": None}])
            index.remove([before[1]["id"]])
        after = client.post("/api/search", json=asked).json()["results"]
    server.stop()
    # One item less to choose from: the others are more likely right.
    chances = [[result.pop("chance") for result in results] for results in (before, after)]
    assert chances[1][0] > chances[0][0]
    assert chances[1][1] > chances[0][2]
    assert after[0] == {
        **first,
        "title": 'now "this"',
        "metadata": {"title": 'now "this"', "n": None},
    }
    assert after[1] == before[2]


def test_items_show_their_counterparts(
    photos: Path, tmp_path: Path, serve: Callable[..., Live]
) -> None:
    names = [str(photos / f"{number}.jpg") for number in (0, 0, 3)]
    texts = ["a red square", "a red square on a redground", "a red square at the middle"]
    pairs = Pairs({"image": Rows(names, files=True), "text": texts})
    model = load(photos / "model")
    Index.build(tmp_path / "index", model, pairs).close()
    with serve(IndexCollection(Index.open(tmp_path / "index"), model)).client() as client:
        (first, _) = client.get("/api/items", params={"modality": "image"}).json()["items"]
        assert [one["text"] for one in first["counterparts"]] == texts[:2]
        assert first["counterparts_total"] == 2
        assert "counterparts" not in first["metadata"]
        asked = {"text": texts[0], "k": 2}
        found = client.post("/api/search", json=asked).json()["results"]
        assert first["counterparts"] in [one["counterparts"] for one in found]
        caption = client.get("/api/item", params={"id": "0.jpg#2"}).json()
        (photo,) = caption["counterparts"]
        assert (photo["id"], photo["text"]) == ("0.jpg", None)
        assert client.get(photo["media"]["thumbnail"]).headers["content-type"] == "image/jpeg"
        with Index.open(tmp_path / "index") as index:
            index.remove(["0.jpg#1"])
        time.sleep(1.1)  # counts are cached for a second
        found = client.post("/api/search", json=asked).json()["results"]
        (now,) = (one for one in found if one["id"] == "0.jpg")
        assert [one["text"] for one in now["counterparts"]] == texts[1:2]


def test_the_cache_of_cards_is_bounded(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached_reader, "_MOST_CARDS", 4)
    server = Live(open_collection(photos))
    with server.client() as client:
        wide, narrow = (
            client.post("/api/search", json={"text": "a blue square", "k": k}).json()["results"]
            for k in (50, 5)
        )
    server.stop()
    assert wide[:5] == narrow
    assert len({result["id"] for result in wide}) == 50


def test_counterparts_are_shown_although_their_cache_overflows(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached_reader, "_MOST_CARDS", 1)
    names = [str(photos / f"{number}.jpg") for number in (0, 3)]
    pairs = Pairs({"image": Rows(names, files=True), "text": ["red", "a red square"]})
    with Index.build(tmp_path / "index", load(photos / "model"), pairs) as index:
        reader = CachedReader(index, {})
        reader.cards(index.get(["0.jpg"]))
        both = reader.cards(index.get(["0.jpg", "3.jpg"]))
        assert [[one.text for one in card.counterparts] for card in both] == [
            ["red"],
            ["a red square"],
        ]


def test_only_files_that_shrink_in_place_are_reported(tmp_path: Path) -> None:
    for name in ("a.npy", "b.npy", "c.txt"):
        (tmp_path / name).write_bytes(bytes(100))
    sizes = FileSizes(tmp_path, lambda name: name.endswith(".npy"))
    (tmp_path / "new").write_bytes(bytes(10))
    os.replace(tmp_path / "new", tmp_path / "a.npy")
    os.truncate(tmp_path / "c.txt", 1)
    with (tmp_path / "b.npy").open("ab") as file:
        file.write(b"more")
    (tmp_path / "d.npy").write_bytes(bytes(5))
    assert sizes.cut() == []
    os.truncate(tmp_path / "b.npy", 103)
    os.truncate(tmp_path / "d.npy", 0)
    assert sizes.cut() == ["b.npy", "d.npy"]
    assert sizes.cut() == []
    shutil.rmtree(tmp_path)
    assert sizes.cut() == []


@pytest.mark.filterwarnings("ignore:.*was missing or damaged")
def test_an_index_with_truncated_files_is_repaired(photos: Path, tmp_path: Path) -> None:
    shutil.copytree(photos, tmp_path / "copy")
    folder = tmp_path / "copy" / "photos.index"
    server = Live(open_collection(tmp_path / "copy"))
    with server.client() as client:
        asked = {"text": "a red square", "k": 5}
        before = client.post("/api/search", json=asked).json()["results"]
        sizes = {path.name: path.stat().st_size for path in folder.glob("segment-*")}
        assert sizes
        for name in sizes:
            os.truncate(folder / name, 4096)
        after = client.post("/api/search", json=asked)
        assert after.status_code == 200, after.text
        assert after.json()["results"] == before
        assert client.get("/ready").status_code == 200
    server.stop()
    # The files on disk are repaired, too.
    assert sorted(path.stat().st_size for path in folder.glob("segment-*")) == sorted(
        sizes.values()
    )


def test_reading_a_truncated_mapped_file_kills_the_process(tmp_path: Path) -> None:
    """The reason for `FileSizes`; if this test fails, the class is not needed any more."""
    code = """
        import mmap, os, sys
        with open(sys.argv[1], "w+b") as file:
            file.write(bytes(8192))
            file.flush()
            mapped = mmap.mmap(file.fileno(), 8192, mmap.MAP_PRIVATE)
            os.truncate(sys.argv[1], 0)
            mapped[5000]
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "file")]
    assert subprocess.run(command, env=environment(), check=False).returncode != 0
