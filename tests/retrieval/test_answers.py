"""Lazy answers behave as the lists that they stand for."""

from __future__ import annotations

import json
import pickle
from dataclasses import asdict

import numpy as np
import pytest

from ccal.retrieval import Hit
from ccal.retrieval.answers import Catalogue, Hits, ShardRecords, pack_record, unpack_record

SCORES = np.array([[0.9, 0.5, 0.1], [0.8, 0.2, -np.inf], [-np.inf] * 3])
POSITIONS = np.array([[4, 2, 0], [1, 3, 0], [0, 0, 0]])


def file(position: int) -> str | None:
    return None if position % 2 else f"{position}.jpg"


def record(position: int) -> bytes:
    name = file(position)
    return pack_record(
        f"image-{position}".encode(), b'{"n": %d}' % position, name.encode() if name else None
    )


RECORDS = Catalogue([ShardRecords("image", [record(position) for position in range(5)])])


@pytest.fixture
def answers() -> list[Hits]:
    return [Hits(SCORES[n, :end], POSITIONS[n, :end], RECORDS) for n, end in enumerate([3, 2, 0])]


def expected(query: int, count: int) -> list[Hit]:
    return [
        Hit(f"image-{position}", score, "image", {"n": position}, file(position))
        for score, position in zip(SCORES[query].tolist(), POSITIONS[query].tolist(), strict=True)
    ][:count]


def test_they_equal_lists(answers: list[Hits]) -> None:
    lists = [expected(0, 3), expected(1, 2), []]
    assert answers == lists
    assert lists == answers
    assert answers != lists[:2]
    assert answers[0] == Hits(SCORES[0], POSITIONS[0], RECORDS)
    assert answers[0] == expected(0, 3) != answers[1]
    assert answers[0] != "text"
    assert [list(hits) for hits in answers] == lists
    assert repr(answers) == repr(lists)


def test_positions_and_slices(answers: list[Hits]) -> None:
    hits = answers[0]
    assert isinstance(hits, Hits)
    assert (len(answers), len(hits), len(answers[-1])) == (3, 3, 0)
    assert (hits[0].id, hits[-1].id) == ("image-4", "image-0")
    assert hits[1:] == expected(0, 3)[1:]
    assert hits[::-1] == expected(0, 3)[::-1]
    assert answers[1:] == [expected(1, 2), []]
    assert hits[1] in hits
    assert hits.index(hits[1]) == 1
    assert not answers[2]
    with pytest.raises(IndexError):
        hits[3]
    with pytest.raises(TypeError):
        hash(hits)


def test_items_can_be_told_apart_before_they_are_read(answers: list[Hits]) -> None:
    hits = answers[0]
    stored = list(hits.stored())
    assert [score for score, _, _ in stored] == [hit.score for hit in hits]
    assert [unpack_record(*one)[0] for _, _, one in stored] == [hit.id for hit in hits]
    assert len({one for _, _, one in [*stored, *answers[0].stored()]}) == 3


def test_they_travel(answers: list[Hits]) -> None:
    again = pickle.loads(pickle.dumps(answers))
    assert again == answers
    assert type(again[0]) is list
    assert json.loads(json.dumps([asdict(hit) for hit in answers[1]]))[0] == {
        "id": "image-1",
        "score": 0.8,
        "modality": "image",
        "metadata": {"n": 1},
        "file": None,
        "chance": None,
        "match": None,
    }
