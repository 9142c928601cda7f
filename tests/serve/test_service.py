"""Entries as JSON."""

from __future__ import annotations

import json

import pytest

from ccal.serve.collection import Card, Entry
from ccal.serve.service import entries_text, entry_text


def test_entries_are_rendered_as_valid_json() -> None:
    card = Card("é/1", "image", "image", 'a "b"\n', {"n": 1.5}, media=("image",))
    why: dict[str, object] = {"dimensions": []}
    found = json.loads(
        entries_text(
            [Entry(card, 0.1), Entry(card), Entry(card, 1.0, 0.5, "strong", why, {"a": 2})]
        )
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
def test_nan_and_infinite_scores_are_refused(score: float) -> None:
    with pytest.raises(ValueError, match="a score of"):
        entry_text(Entry(Card("a", "image", "image", "a", {}), score))
