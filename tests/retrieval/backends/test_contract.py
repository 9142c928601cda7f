"""What every backend promises, and what only some do: see PROMISES."""

from __future__ import annotations

import random
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ccal import DualEncoder, InputError
from ccal.evaluation.calibration import Calibration
from ccal.retrieval import Hit, Index, IndexInUseError, OtherModelError, copy_index, embedding
from tests.retrieval.conftest import DIM, Place, assert_same, brute_force, make_model, rows


@pytest.fixture
def index(place: Place, model: DualEncoder) -> Any:
    """40 images and 30 texts."""
    facts = [{"n": n, "colour": ["red", "blue"][n % 2]} for n in range(40)]
    files = [f"photos/{n}.jpg" for n in range(40)]
    options: dict[str, Any] = {"metadata": facts, "files": files}
    with Index.build(place(), model, rows(40), modality="image", **options) as built:
        built.add("text", rows(30, seed=1), ids=[f"caption {n}" for n in range(30)])
        yield built


def test_hits_carry_what_was_given(index: Index) -> None:
    hit = index.search(text=rows(1, seed=5)[0], k=1)[0]
    number = int(hit.id.removeprefix("image-")) - 1
    assert isinstance(hit, Hit)
    assert hit.modality == "image"
    assert hit.metadata == {"n": number, "colour": ["red", "blue"][number % 2]}
    assert hit.file == f"photos/{number}.jpg"
    assert -1 <= hit.score <= 1


def test_search_equals_brute_force(index: Index, model: DualEncoder) -> None:
    queries = rows(7, seed=5)
    embedded = model.encode("text", queries).numpy()
    answers = index.search(text=queries, k=5)
    assert len(answers) == 7
    for vector, hits in zip(embedded, answers, strict=True):
        assert_same(hits, brute_force(index, vector, 5, index.ids("image")))
    for vector, hits in zip(embedded, index.search_vectors(embedded, k=80), strict=True):
        assert_same(hits, brute_force(index, vector, 80, index.ids()))


def test_hits_have_chances_if_the_model_is_calibrated(index: Index, model: DualEncoder) -> None:
    assert {hit.match for hit in index.search(text=rows(1, seed=5)[0])} == {None}
    calibrated = deepcopy(model)
    calibration = calibrated.calibrations["text"] = Calibration(20.0, 0.3, 1.0, 100, 100)
    index.bind(calibrated)
    batch = index.search(text=rows(2, seed=5), k=40)
    for answer in batch:
        scores = [hit.score for hit in answer]
        judged = calibration.judged(scores, 40)
        assert [(hit.chance, hit.match) for hit in answer] == judged
        assert [answer[n].chance for n in (0, -1)] == [judged[0][0], judged[-1][0]]
    # However many are asked for, a hit has the same chance.
    assert list(index.search(text=rows(2, seed=5)[1], k=3)) == list(batch[1])[:3]
    vectors = model.encode("text", rows(2, seed=5))
    assert index.search_vectors(vectors, k=3, within="image", modality="text")[0] == batch[0][:3]
    with pytest.raises(InputError, match="no 'sound'"):
        index.search_vectors(vectors, within="image", modality="sound")
    assert index.search_like("caption 1", k=1)[0].match is not None
    others = (
        index.search(text=rows(1)[0], within="text")[0],
        index.search(image=rows(1)[0])[0],
        index.search_vectors(vectors, within="image")[0][0],
        index.search_vectors(vectors, modality="text")[0][0],
    )
    assert [(hit.chance, hit.match) for hit in others] == [(None, None)] * 4


def test_one_query_or_a_batch(index: Index) -> None:
    query = rows(1, seed=5)
    assert index.search(image=query)[0] == index.search(image=query[0])
    assert index.search(image=torch.from_numpy(query[0])) == index.search(image=query[0])
    vector = rows(1, seed=6, width=DIM)
    assert index.search_vectors(vector)[0] == index.search_vectors(vector[0].tolist())
    assert index.search_vectors(vector.tolist())[0] == index.search_vectors(torch.tensor(vector[0]))
    assert index.search_vectors(list(vector)) == index.search_vectors(vector)
    assert index.search_vectors(np.empty((0, DIM))) == []


def test_where_a_query_looks(index: Index) -> None:
    query = rows(1, seed=5)[0]
    assert {hit.modality for hit in index.search(image=query)} == {"text"}
    assert {hit.modality for hit in index.search(text=query)} == {"image"}
    assert {hit.modality for hit in index.search(text=query, within="text")} == {"text"}
    like = index.search_like("image-3", within="image", k=39)
    assert len(like) == 39
    assert "image-3" not in {hit.id for hit in like}
    assert {hit.modality for hit in index.search_like("image-3")} == {"text"}


def test_ties_come_by_id(place: Place, model: DualEncoder) -> None:
    ids = [f"é{n}" if n % 3 else f"Z{n}" for n in range(50)]
    random.Random(0).shuffle(ids)
    vector = rows(1, width=DIM)
    with Index.build(place(), model, rows(0), modality="image") as index:
        # In several shards, whose matrix products round differently.
        index.add_vectors("image", np.repeat(vector, 50, axis=0), ids=ids)
        index.add_vectors("image", -vector)
        index.add_vectors("image", vector, ids=["A"])
        hits = index.search_vectors(vector[0], k=7)
        assert [hit.id for hit in hits] == sorted([*ids, "A"])[:7]
        assert len({hit.score for hit in hits}) == 1


def test_filters(index: Index) -> None:
    query = rows(1, seed=5)[0]

    def found(where: dict[str, Any]) -> set[int]:
        return {hit.metadata["n"] for hit in index.search(text=query, k=50, where=where)}

    assert found({"colour": "red"}) == set(range(0, 40, 2))
    assert found({"colour": ["red", "blue"], "n": {">=": 3, "<": 6}}) == {3, 4, 5}
    assert found({"n": [1, 39, 99]}) == {1, 39}
    assert found({"n": 7.0}) == {7}
    assert found({"n": "7"}) == set()
    assert found({"none": None, "n": {"<=": 1}}) == {0, 1}
    assert found({"colour": []}) == set()


def test_filters_on_nested_and_listed_values(place: Place, model: DualEncoder) -> None:
    facts: list[dict[str, Any]] = [
        {"bird": {"tags": ["small", "red"], "tame": True}},
        {"bird": {"tags": "small", "tame": False}},
        {"bird": {"tags": [], "tame": 1, "seen": "2020-05-01"}},
        {"bird": None, "größe": 1},
    ]
    with Index.build(place(), model, rows(4), modality="image", metadata=facts) as index:

        def found(where: dict[str, Any]) -> list[str]:
            return sorted(hit.id for hit in index.search(image=rows(1)[0], where=where))

        assert found({"bird.tags": "small"}) == ["image-1", "image-2"]
        assert found({"bird.tags": "red"}) == ["image-1"]
        assert found({"bird.tame": True}) == ["image-1"]
        assert found({"bird.tame": 1}) == ["image-3"]
        assert found({"bird.tame": [True, False]}) == ["image-1", "image-2"]
        assert found({"bird": None}) == ["image-4"]
        assert found({"bird.seen": {">=": "2020", "<": "2021"}}) == ["image-3"]
        assert found({"bird.seen": {">=": 2020}}) == []
        assert found({"größe": 1}) == ["image-4"]


def test_changes(index: Index, model: DualEncoder) -> None:
    index.remove(["image-1", "caption 2"])
    assert (index.count(), index.count("image"), index.count("text")) == (68, 39, 29)
    index.update(["image-2"], metadata=[{"new": True}])
    assert index.get(["image-2"])[0].metadata == {"new": True}
    assert index.get(["image-2"])[0].file == "photos/1.jpg"
    index.update(["image-3", "image-4"], rows(2, seed=9), files=["a", "b"])
    expected = model.encode("image", rows(2, seed=9)).numpy()
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(index.vectors(["image-3", "image-4"]), expected, atol=1e-6)
    assert index.get(["image-4"])[0].file == "b"
    assert index.search(image=rows(2, seed=9)[1], within="image", k=1)[0].id == "image-4"
    (new,) = index.add("image", rows(1, seed=10))
    assert new not in {f"image-{n}" for n in range(41)}
    vector = rows(1, seed=11, width=DIM)[0]
    for modality in ("image", "text"):
        hits = index.search_vectors(vector, within=modality, k=100)
        assert_same(hits, brute_force(index, vector, 100, index.ids(modality)))


def test_everything_is_there_after_opening(place: Place, model: DualEncoder) -> None:
    location = place()
    with Index.build(location, model, rows(20), modality="image") as index:
        index.remove(["image-7"])
        index.add("text", rows(3))
        before = index.search(text=rows(4, seed=3), k=30)
    with Index.open(location, model) as index:
        assert index.search(text=rows(4, seed=3), k=30) == before
        assert index.count() == 22
        index.check()
    with Index.open(location) as index:
        assert index.stats().counts == {"image": 19, "text": 3}
        assert index.search_like("image-3", within="image", k=1)
        with pytest.raises(InputError, match="without its model"):
            index.search(text=rows(1))


def test_half_the_space(place: Place, model: DualEncoder) -> None:
    location = place()
    with Index.build(location, model, rows(200), modality="image", dtype="float16") as index:
        vector = rows(1, seed=4, width=DIM)[0]
        stored = index.vectors(["image-1"])
        assert (stored == stored.astype(np.float16)).all()
        hits = index.search_vectors(vector, k=20)
        assert_same(hits, brute_force(index, vector, 20, index.ids()), atol=2e-3)
        index.update(["image-5"], rows(1, seed=8))
        assert index.search(image=rows(1, seed=8)[0], k=1)[0].id == "image-5"
        assert index.stats().dtype == "float16"


def test_another_model_is_refused(place: Place, model: DualEncoder) -> None:
    location, other = place(), make_model(seed=1)
    Index.build(location, model, rows(5), modality="image", model_folder="runs/first").close()
    with pytest.raises(OtherModelError, match=r"another model .*runs/first.* build it anew"):
        Index.open(location, other)
    with pytest.raises(InputError, match="is an index already"):
        Index.build(location, other, rows(3), modality="image")
    reader = Index.open(location, model)
    with Index.build(location, other, rows(3), modality="image", replace=True) as index:
        assert index.count() == 3
        assert len(index.search(text=rows(1)[0])) == 3
    with pytest.raises(OtherModelError, match="since it was opened"):
        reader.search(image=rows(1)[0])
    reader.close()


def test_a_second_writer(place: Place, model: DualEncoder, promises: set[str]) -> None:
    location = place()
    with Index.build(location, model, rows(9), modality="image") as first:
        if "one writer" in promises:
            with Index.open(location) as second:
                with pytest.raises(IndexInUseError, match="one writer at a time"):
                    second.remove(["image-2"])
                first.remove(["image-1"])
                assert second.count() == 8
                assert len(second.search_like("image-2", within="image")) == 7
            with pytest.raises(IndexInUseError, match="one writer at a time"):
                Index.build(location, model, rows(1), modality="image", replace=True)
        else:
            first.remove(["image-1"])
    with Index.open(location) as second:
        second.remove(["image-2"])
        assert second.count() == 7


def test_a_refused_call_changes_nothing(index: Index) -> None:
    before = index.ids()
    with pytest.raises(InputError, match=r"'image-2' already.* another id.*`ccal index --rebuild`"):
        index.add("image", rows(2), ids=["new", "image-2"])
    with pytest.raises(InputError, match="no item 'absent'"):
        index.remove(["image-1", "absent"])
    with pytest.raises(InputError, match="no item 'absent'"):
        index.update(["image-1", "absent"], metadata=[{"x": 1}, {}])
    assert index.ids() == before
    assert index.get(["image-1"])[0].metadata == {"n": 0, "colour": "red"}


def test_a_failed_call_can_be_repeated(
    index: Index, promises: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "_CHUNK", 64)
    before, new = index.ids(), [f"new {n}" for n in range(150)]
    content = rows(150, seed=2)
    broken = content.copy()
    broken[149, 0] = np.nan
    whole = "whole changes" in promises
    message = "NaN" if whole else r"NaN.* The first 128 of the new items were written .* repeat"
    with pytest.raises(InputError, match=message):
        index.add("image", broken, ids=new)
    assert index.ids() == (before if whole else [*before, *new[:128]])
    index.add("image", content, ids=new)
    assert index.ids() == [*before, *new]
    assert index.count() == 220


def test_what_is_refused(index: Index) -> None:
    vector = rows(1, width=DIM)[0]
    refused: list[tuple[str, Any]] = [
        ("no 'sound'", lambda: index.add("sound", rows(1))),
        ("no 'sound'", lambda: index.search(sound=vector)),
        ("no 'sound'", lambda: index.search_vectors(vector, within="sound")),
        ("takes one query", lambda: index.search()),
        ("takes one query", lambda: index.search(image=rows(1), text=rows(1))),
        (r"\(n, 8\), the width of this index, got \(3,\)", lambda: index.search_vectors([1, 2, 3])),
        ("NaN", lambda: index.search_vectors(vector * np.nan)),
        ("without direction", lambda: index.search_vectors(vector * 0)),
        ("must be numbers", lambda: index.search_vectors(["a"] * 8)),
        ("k must be a whole number", lambda: index.search_vectors(vector, k=0)),
        ("ids has 'a' twice", lambda: index.add("image", rows(2), ids=["a", "a"])),
        ("not empty", lambda: index.add("image", rows(1), ids=[""])),
        ("ids has 1 entries for 2", lambda: index.add("image", rows(2), ids=["a"])),
        ("the one string", lambda: index.remove("image-1")),
        ("cannot be kept as JSON", lambda: index.add("image", rows(1), metadata=[{"a": {1}}])),
        ("cannot be kept", lambda: index.add("image", rows(1), metadata=[{"a": "\ud800"}])),
        ("no text", lambda: index.add("image", rows(1), ids=["a\0b"])),
        ("where must be", lambda: index.search_vectors(vector, where=["a"])),  # type: ignore[arg-type]
        ("must have some of", lambda: index.search_vectors(vector, where={"a": {"b": 1}})),
        ("no order", lambda: index.search_vectors(vector, where={"a": {">=": None}})),
        ("must be text", lambda: index.search_vectors(vector, where={"a": [object()]})),
        ("no item 'absent'", lambda: index.search_like("absent")),
        ("one modality at a time", lambda: index.update(["image-1", "caption 1"], rows(2))),
    ]
    for message, call in refused:
        with pytest.raises(InputError, match=message):
            call()


def test_an_empty_index(place: Place, model: DualEncoder) -> None:
    with Index.build(place(), model, rows(0), modality="image") as index:
        assert index.count() == 0
        with pytest.raises(InputError, match="has no items"):
            index.search_vectors(rows(1, width=DIM))
        index.add("text", rows(1))
        with pytest.raises(InputError, match="has no image items"):
            index.search(text=rows(1), within="image")
        index.remove(["text-1"])
        assert index.ids() == []
        index.remove([])
        index.add("text", rows(0))


def test_random_changes_against_a_dictionary(place: Place, model: DualEncoder) -> None:
    rng, draws = random.Random(1), np.random.default_rng(1)
    location = place()
    index = Index.build(location, model, rows(0), modality="image")
    known: dict[str, tuple[str, Any]] = {}
    # Each step takes a Milvus server a third of a second.
    for step in range(25 if str(location).startswith("milvus") else 60):
        action = rng.choice(["add", "add", "remove", "move", "reopen"])
        some = rng.sample(sorted(known), min(len(known), rng.randint(0, 6)))
        if action == "add":
            modality, count = rng.choice(["image", "text"]), rng.randint(1, 12)
            vectors = draws.normal(size=(count, DIM)).round()
            vectors[:, 0] += 0.5
            new = index.add_vectors(modality, vectors, ids=[f"{step}.{n}" for n in range(count)])
            known.update({id: (modality, v) for id, v in zip(new, vectors, strict=True)})
        elif action == "remove":
            index.remove(some)
            for id in some:
                del known[id]
        elif action == "move" and some:
            some = [id for id in some if known[id][0] == known[some[0]][0]]
            data = draws.normal(size=(len(some), 6)).astype(np.float32)
            index.update(some, data)
            moved = model.encode(known[some[0]][0], data).numpy()
            known.update({i: (known[i][0], v) for i, v in zip(some, moved, strict=True)})
        elif action == "reopen":
            index.close()
            index = Index.open(location, model)
        assert set(index.ids()) == set(known)
        for modality in ("image", "text"):
            ids = [id for id in known if known[id][0] == modality]
            assert index.count(modality) == len(ids)
            if ids:
                query = draws.normal(size=DIM).round() + 0.25
                hits = index.search_vectors(query, within=modality, k=5)
                assert_same(hits, brute_force(index, query, 5, ids))
    index.close()


def test_an_index_moves_from_a_folder_to_any_place(
    place: Place, model: DualEncoder, tmp_path: Path
) -> None:
    facts, files = [{"n": n} for n in range(5)], [f"{n}.jpg" for n in range(5)]
    photos: dict[str, Any] = {"modality": "image", "metadata": facts, "files": files}
    with Index.build(tmp_path / "old", model, rows(5), **photos) as old:
        old.add("text", rows(3, seed=1))
        with copy_index(old, place()) as new:
            new.bind(model)
            assert new.ids() == old.ids()
            assert new.get(new.ids()) == old.get(old.ids())
            assert list(new.search(text=rows(1)[0], k=3)) == list(old.search(text=rows(1)[0], k=3))
