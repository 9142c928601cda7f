"""The home in Milvus: recall, tidying, writers that are gone, filters, what is refused."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccal import CcalError, DualEncoder, InputError
from ccal.retrieval import Index, IndexInUseError
from ccal.retrieval.backends import exists
from ccal.retrieval.backends.milvus import writer as writer_module
from tests.cli.conftest import invoke
from tests.retrieval.conftest import DIM, assert_same, brute_force, drop_all, rows


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


def test_recall(location: str, model: DualEncoder) -> None:
    options: dict[str, Any] = {"modality": "image", "approximate_from": 4000}
    with Index.build(f"{location}?shards=2", model, rows(0), **options) as index:
        facts = [{"n": n} for n in range(5000)]
        stored = rows(5000, width=DIM)
        index.add_vectors("image", stored[:3000], metadata=facts[:3000])
        assert index.stats().details["approximate"] == 0
        index.add_vectors("image", stored[3000:], metadata=facts[3000:])
        details = index.stats().details
        assert 0 < details["probes"] < details["approximate"]
        queries = rows(50, seed=3, width=DIM)
        unit = stored / np.linalg.norm(stored, axis=1, keepdims=True)
        true = np.argsort(-(queries @ unit.T), axis=1)[:, :10]

        def recall(where: dict[str, Any], exact: bool, nearest: Any) -> float:
            found = index.search_vectors(queries, where=where, exact=exact)
            numbers = [[hit.metadata["n"] for hit in hits] for hits in found]
            pairs = zip(numbers, nearest, strict=True)
            return float(np.mean([np.isin(a, b).mean() for a, b in pairs]))

        assert recall({}, False, true) >= 0.99
        assert recall({}, True, true) == 1
        few = 4950 + np.argsort(-(queries @ unit[4950:].T), axis=1)[:, :10]
        assert recall({"n": {">=": 4950}}, False, few) == 1


def test_rows_that_are_removed_go(
    location: str, model: DualEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_BURIED", 8)
    with Index.build(location, model, rows(24), modality="image") as index:
        with Index.open(location) as reader:
            left = []
            for n in range(1, 17):
                index.remove([f"image-{n}"])
                left.append(index.stats().details["removed"])
                vector = rows(1, seed=n, width=DIM)[0]
                ids = [f"image-{m}" for m in range(n + 1, 25)]
                hits = reader.search_vectors(vector, k=24)
                assert_same(hits, brute_force(reader, vector, 24, ids))
        assert max(left) == 8
        assert left.count(0) == 1
        index.check()


def test_reading_while_another_changes(
    location: str, model: DualEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every item is always there exactly once, with the one vector or the other."""
    monkeypatch.setattr(writer_module, "_BURIED", 30)
    ids = [f"image-{n}" for n in range(1, 21)]
    Index.build(location, model, rows(20), modality="image").close()
    stop = threading.Event()
    failures: list[BaseException] = []

    def change() -> None:
        try:
            with Index.open(location, model) as writer:
                for seed in range(12):
                    writer.update(ids, rows(20, seed=seed), metadata=[{"seed": seed}] * 20)
        except BaseException as error:
            failures.append(error)
        finally:
            stop.set()

    thread = threading.Thread(target=change)
    thread.start()
    seen = set()
    with Index.open(location) as reader:
        while not stop.is_set():
            hits = reader.search_vectors(rows(1, width=DIM)[0], k=50)
            assert sorted(hit.id for hit in hits) == sorted(ids)
            (seed,) = {hit.metadata.get("seed") for hit in hits}
            seen.add(seed)
    thread.join()
    assert not failures
    assert len(seen) > 1


def test_a_writer_that_is_gone(
    location: str, model: DualEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Index.build(location, model, rows(9), modality="image")
    with Index.open(location) as second:
        with pytest.raises(IndexInUseError, match=r"process \d+ on "):
            second.remove(["image-1"])
        # As if the first had been on another machine.
        monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
        with pytest.raises(IndexInUseError):
            second.remove(["image-1"])
    with Index.open(f"{location}?takeover=yes") as second:
        second.remove(["image-1"])
        with pytest.raises(IndexInUseError, match="taken it over"):
            first.add("image", rows(1))
        second.remove(["image-2"])
        assert second.count() == 7
        assert len(second.search_like("image-5", within="image", k=20)) == 6
    first.close()
    with Index.open(location, model) as third:
        third.add("image", rows(3, seed=5))
        assert third.count() == len(third.ids()) == 10
        third.check()


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
        with pytest.raises(CcalError, match="64-bit"):
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
    }
    for place, message in refused.items():
        with pytest.raises(InputError, match=message):
            Index.open(place)


def test_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pymilvus")
    monkeypatch.setattr("ccal.retrieval.backends.milvus.server._TIMEOUT", 1.0)
    with pytest.raises(CcalError, match="milvus://me@localhost:1/name") as caught:
        Index.open("milvus://me:secret@localhost:1/name")
    assert "secret" not in str(caught.value)


def test_more_than_milvus_gives(location: str, model: DualEncoder) -> None:
    with (
        Index.build(location, model, rows(3), modality="image") as index,
        pytest.raises(InputError, match="16,384 at most"),
    ):
        index.search(image=rows(1)[0], k=20_000)
