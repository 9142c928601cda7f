"""The Milvus backend: recall, readers during changes, repeated calls, filters, refusals."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccal import CcalError, DualEncoder, InputError
from ccal.retrieval import Index, embedding
from ccal.retrieval.backends import exists
from ccal.retrieval.embedding import unit_vectors
from tests.cli.conftest import invoke
from tests.retrieval.backends.test_kill import CONTEXT
from tests.retrieval.conftest import DIM, drop_all, rows


@pytest.fixture
def location(milvus: str, request: pytest.FixtureRequest) -> Iterator[str]:
    name = "".join(c if c.isalnum() else "_" for c in request.node.name)[:40]
    yield f"http://{milvus}/{name}"
    drop_all(milvus)


def collections(location: str) -> list[str]:
    client = pytest.importorskip("pymilvus").MilvusClient(location.rpartition("/")[0])
    found = sorted(client.list_collections())
    client.close()
    return found


@pytest.mark.slow
def test_recall(location: str, model: DualEncoder) -> None:
    options: dict[str, Any] = {"modality": "image", "approximate_from": 4000}
    with Index.build(f"{location}?shards=2", model, rows(0), **options) as index:
        facts = [{"n": n} for n in range(5000)]
        stored = rows(5000, width=DIM)
        index.add_vectors("image", stored[:3000], metadata=facts[:3000])
        details = index.stats().details
        assert details["approximate"] == 0
        queries = rows(50, seed=3, width=DIM)
        late = Index.open(location)
        late.search_vectors(queries)
        index.add_vectors("image", stored[3000:], metadata=facts[3000:])
        details = index.stats().details
        assert 0 < details["probes"] < details["approximate"]
        unit = stored / np.linalg.norm(stored, axis=1, keepdims=True)
        true = np.argsort(-(queries @ unit.T), axis=1)[:, :10]

        def recall(where: dict[str, Any], exact: bool, nearest: Any, by: Index = index) -> float:
            found = by.search_vectors(queries, where=where, exact=exact)
            numbers = [[hit.metadata["n"] for hit in hits] for hits in found]
            pairs = zip(numbers, nearest, strict=True)
            return float(np.mean([np.isin(a, b).mean() for a, b in pairs]))

        assert recall({}, False, true) >= 0.99
        assert recall({}, True, true) == 1
        few = 4950 + np.argsort(-(queries @ unit[4950:].T), axis=1)[:, :10]
        assert recall({"n": {">=": 4950}}, False, few) == 1
        # Whoever does not know of the cells yet looks into all of them.
        backend: Any = late._backend
        backend._known = float("inf"), backend._known[1]
        assert recall({}, False, true, late) == 1
        late.close()


def test_reading_while_another_changes(location: str, model: DualEncoder) -> None:
    """A reader may see a part of a change, but each item with one vector and its metadata."""
    ids = [f"image-{n}" for n in range(1, 21)]
    Index.build(location, model, rows(20), modality="image").close()
    stop = threading.Event()
    failures: list[BaseException] = []
    stored: dict[int | None, Any] = {seed: rows(20, seed=seed) for seed in range(12)}
    stored[None] = rows(20)
    unit = {seed: unit_vectors(model.encode("image", x), DIM, "x") for seed, x in stored.items()}

    def change() -> None:
        try:
            with Index.open(location, model) as writer:
                for seed in range(12):
                    writer.update(ids, stored[seed], metadata=[{"seed": seed}] * 20)
        except BaseException as error:
            failures.append(error)
        finally:
            stop.set()

    thread = threading.Thread(target=change)
    thread.start()
    query = unit_vectors(rows(1, width=DIM)[0], DIM, "query")[0]
    seen = set()
    with Index.open(location) as reader:
        while not stop.is_set():
            for hit in reader.search_vectors(query, k=50):
                seed = hit.metadata.get("seed")
                vector = unit[seed][int(hit.id.removeprefix("image-")) - 1]
                assert abs(hit.score - float(vector @ query)) < 1e-5
                seen.add(seed)
        thread.join()
        assert not failures
        assert len(seen) > 1
        assert sorted(hit.id for hit in reader.search_vectors(query, k=50)) == sorted(ids)


def test_a_vector_that_changes_during_a_search(location: str, model: DualEncoder) -> None:
    with Index.build(location, model, rows(20), modality="image") as index:
        query, server = rows(1, width=DIM)[0], index._backend._server  # type: ignore[attr-defined]
        before = index.search_vectors(query)
        for other in (np.zeros(DIM), None):

            def changed(about: Any, ids: Any, *_: Any, other: Any = other, **__: Any) -> Any:
                return {} if other is None else {id: {"vector": other} for id in ids}

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(server, "find", changed)
                assert list(index.search_vectors(query)) == list(before)


NEW = [f"new {n}" for n in range(4096)]


def add_slowly(location: str, model: DualEncoder, done: Any) -> None:
    """Add many chunks in one call, which takes seconds."""
    embedding._CHUNK = 64
    with Index.open(location, model) as index:
        index.add("image", rows(4096, seed=1), ids=NEW, progress=lambda n, _: done.put(n))


def test_a_killed_call_can_be_repeated(location: str, model: DualEncoder) -> None:
    Index.build(location, model, rows(30), modality="image").close()
    done = CONTEXT.Queue()
    process = CONTEXT.Process(target=add_slowly, args=(location, model, done))
    process.start()
    assert done.get(timeout=120) == 64
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with Index.open(location, model) as index:
        left = index.ids()
        assert 30 + 64 <= index.count() == len(left) < 30 + 4096
        assert left[30:] == NEW[: len(left) - 30]
        index.add("image", rows(4096, seed=1), ids=NEW)
        assert index.count() == 30 + 4096
        assert index.ids()[30:] == NEW
        index.check()


def test_changes_build_on_the_latest_state_at_any_level(location: str, model: DualEncoder) -> None:
    Index.build(location, model, rows(3), modality="image").close()
    with Index.open(f"{location}?consistency=Eventually", model) as index:
        for seed in range(3):
            index.add("image", rows(2, seed=seed), ids=["a", "b"])
            index.update(["a"], metadata=[{"seed": seed}])
            index.remove(["a", "b"])
    with Index.open(location) as index:
        assert index.ids() == ["image-1", "image-2", "image-3"]


def test_an_index_of_an_earlier_version(location: str, model: DualEncoder) -> None:
    name = location.rpartition("/")[2]
    client = pytest.importorskip("pymilvus").MilvusClient(location.rpartition("/")[0])
    client.create_collection(f"{name}_0123456789ab", dimension=2)
    client.alter_collection_properties(f"{name}_0123456789ab", {"ccal.state": "{}"})
    client.create_alias(f"{name}_0123456789ab", name)
    client.close()
    with pytest.raises(InputError, match=r"earlier version of ccal.* `ccal index MODEL INPUT"):
        Index.open(location)
    with Index.build(location, model, rows(3), modality="image", replace=True) as index:
        assert index.count() == 3
        assert collections(location) == [index.stats().details["collection"]]


def test_a_build_that_fails_leaves_nothing(location: str, model: DualEncoder) -> None:
    broken = rows(3)
    broken[1] = np.nan
    before = collections(location)
    with pytest.raises(InputError, match="NaN"):
        Index.build(location, model, broken, modality="image")
    assert collections(location) == before
    assert not exists(location)
    with pytest.raises(InputError, match=r"is no index: there is no collection .*`ccal index`"):
        Index.open(location)


def test_a_build_anew_removes_what_was_there(location: str, model: DualEncoder) -> None:
    Index.build(location, model, rows(9), modality="image").close()
    with Index.open(location, model) as reader:
        with Index.build(location, model, rows(5), modality="image", replace=True):
            assert reader.count() == len(reader.search(text=rows(1)[0])) == 5
        assert len(collections(location)) == 1


def test_metadata_that_is_hard_to_ask_for(location: str, model: DualEncoder) -> None:
    texts = ['"quoted"', "back\\slash", "new\nline", "ü%_*?", "", "x" * 5000, "x" * 5000 + "y"]
    facts: list[dict[str, Any]] = [{"t": text} for text in texts]
    facts += [{"n": n} for n in (2**62 + 1, -3, 0.1 + 0.2, 1e300, 2**63 - 1)]
    ids = [f'{n} "é\\\n' for n in range(len(facts))]
    with Index.build(location, model, rows(len(facts)), modality="image", ids=ids) as index:
        index.update(ids, metadata=facts)

        def found(where: dict[str, Any]) -> list[int]:
            hits = index.search(image=rows(1)[0], k=50, where=where)
            return sorted(ids.index(hit.id) for hit in hits)

        for n, text in enumerate(texts):
            assert found({"t": text}) == [n]
            assert found({"t": {">=": text, "<=": text}}) == [n]
        assert found({"t": {">": "x" * 5000}}) == [3, 6]
        assert found({"n": 2**62 + 1}) == [7]
        assert found({"n": {">": 2**62}}) == [7, 10, 11]
        assert found({"n": 0.3}) == []
        assert found({"n": {"<=": 0.1 + 0.2}}) == [8, 9]
        assert found({"n": {"<": 0.1 + 0.2}}) == [8]
        assert [item.id for item in index.get(ids)] == ids
        with pytest.raises(CcalError, match="more than 64 bits"):
            index.update(ids[:1], metadata=[{"n": 10**400}])
        assert index.get(ids[:1])[0].metadata == facts[0]


def test_the_command_line(location: str, model: DualEncoder, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    np.save(tmp_path / "photos.npy", rows(20))
    place = location.replace("http://", "milvus://")
    arguments = [tmp_path / "model", tmp_path / "photos.npy", "-m", "image", "-o", place]
    for _ in range(2):
        outcome = invoke("index", *arguments)
        assert outcome.code == 0, outcome
    assert "holds 40 image" in outcome.err
    outcome = invoke("search", place, tmp_path / "photos.npy", "-m", "image", "-k", 1, "--json")
    assert outcome.code == 0, outcome
    assert json.loads(outcome.out)[19]["hits"][0]["id"] == "image-20"
    outcome = invoke("index", tmp_path / "model", "--rebuild", "-o", place)
    assert outcome.code == 0, outcome
    assert "Embedded 40 items" in outcome.err


def test_places_that_are_no_index(location: str, milvus: str, model: DualEncoder) -> None:
    client = pytest.importorskip("pymilvus").MilvusClient(f"http://{milvus}")
    client.create_collection(location.rpartition("/")[2], dimension=2)
    client.close()
    for call in (Index.open, lambda place: Index.build(place, model, rows(1), modality="image")):
        with pytest.raises(InputError, match=r"a collection .* of something else"):
            call(location)
    refused = {
        "milvus://here:19530/": "expected milvus://host:19530/NAME",
        "milvus://here:19530/a-b": "expected milvus://host:19530/NAME",
        "milvus:///name": "expected milvus://host:19530/NAME",
        "milvus://here/name?shards=0": "shards=2",
        "milvus://here/name?table=x": "got table=x",
        "milvus://here/name?consistency=none": "consistency=Bounded",
    }
    for place, message in refused.items():
        with pytest.raises(InputError, match=message):
            Index.open(place)


def test_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pymilvus")
    monkeypatch.setattr("ccal.retrieval.backends.milvus.server.TIMEOUT", 1.0)
    with pytest.raises(CcalError, match="milvus://me@localhost:1/name") as caught:
        Index.open("milvus://me:secret@localhost:1/name")
    assert "secret" not in str(caught.value)


def test_more_than_milvus_gives(location: str, model: DualEncoder) -> None:
    with (
        Index.build(location, model, rows(3), modality="image") as index,
        pytest.raises(InputError, match="16,384 at most"),
    ):
        index.search(image=rows(1)[0], k=20_000)
