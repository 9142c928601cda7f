"""Cards and their texts are kept, and still tell what an item is now."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ccal.retrieval import Index
from ccal.serve import cached_reader
from ccal.serve.collection import Card, Entry
from ccal.serve.service import entries_text, entry_text
from tests.serve.conftest import open_collection
from tests.serve.live import Live


def test_a_change_by_somebody_else_shows(photos: Path, tmp_path: Path) -> None:
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
    assert after[0] == {
        **first,
        "title": 'now "this"',
        "metadata": {"title": 'now "this"', "n": None},
    }
    assert after[1] == before[2]


def test_only_so_many_are_kept(
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


def test_a_text_is_what_json_would_be() -> None:
    card = Card("é/1", "image", "image", 'a "b"\n', {"n": 1.5}, media=("image",))
    why: dict[str, object] = {"dimensions": []}
    found = json.loads(
        entries_text([Entry(card, 0.1), Entry(card), Entry(card, 1.0, why, {"a": 2})])
    )
    assert [result["score"] for result in found] == [0.1, None, 1.0]
    assert [result["why"] for result in found] == [None, None, why]
    assert [result["place"] for result in found] == [None, None, {"a": 2}]
    for result in found:
        assert (result["title"], result["text"], result["metadata"]) == (
            'a "b"\n',
            None,
            {"n": 1.5},
        )
        assert result["media"]["image"] == "/media/image?id=%C3%A9%2F1"
        assert result["media"]["audio"] is None


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_what_json_has_not_is_not_sent(score: float) -> None:
    with pytest.raises(ValueError, match="a score of"):
        entry_text(Entry(Card("a", "image", "image", "a", {}), score))
