"""Binary codes inside an index: recall against exact search, filters, removals, damage."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccal import DualEncoder, InputError
from ccal.retrieval import Hit, Index
from ccal.retrieval.backends.folder import candidates, compaction
from ccal.retrieval.embedding import unit_vectors
from tests.retrieval.conftest import DIM, rows


@pytest.fixture(params=["faiss", "numpy"])
def index(
    request: pytest.FixtureRequest,
    model: DualEncoder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    """6000 vectors with codes of 32 bits, from 1000 on."""
    if request.param == "faiss":
        pytest.importorskip("faiss")
    else:
        monkeypatch.setattr(candidates, "has_faiss", lambda: False)
    options: dict[str, Any] = {"modality": "image", "approximate_from": 1000, "codes": 32}
    with Index.build(tmp_path / "a", model, rows(0), **options) as built:
        facts = [{"n": n} for n in range(6000)]
        built.add_vectors("image", rows(6000, width=DIM), metadata=facts)
        yield built


def ids(hits: list[Hit]) -> set[str]:
    return {hit.id for hit in hits}


def recall(index: Index, **options: Any) -> float:
    queries = rows(50, seed=3, width=DIM)
    near = index.search_vectors(queries, **options)
    true = index.search_vectors(queries, exact=True, **options)
    return float(np.mean([len(ids(a) & ids(b)) / len(b) for a, b in zip(near, true, strict=True)]))


def test_recall_and_scores(index: Index, tmp_path: Path) -> None:
    assert index.stats().details["approximate"] == 1
    assert not list((tmp_path / "a").glob("*.faiss"))
    assert recall(index) >= 0.98
    assert recall(index, k=100) >= 0.95
    query = rows(1, seed=3, width=DIM)[0]
    exact = {hit.id: hit.score for hit in index.search_vectors(query, exact=True, k=50)}
    for hit in index.search_vectors(query):
        assert hit.score == exact[hit.id]


def test_only_candidates_are_ranked(index: Index) -> None:
    """Otherwise recall would prove nothing."""
    (shard,) = index._backend._state(["image"], [])[0].shards["image"]  # type: ignore[attr-defined]
    assert isinstance(shard.approximate, candidates.CodesFile)
    queries = unit_vectors(rows(5, seed=3, width=DIM), DIM, "queries")
    at = shard.approximate.candidates(queries, 10, None)
    assert at.shape == (5, shard.approximate.rerank)
    assert shard.approximate.rerank < 1000
    assert all(len(set(near)) == len(near) for near in at.tolist())


def test_filters_and_removals(index: Index) -> None:
    assert recall(index, where={"n": {">=": 2000}}) >= 0.95
    assert recall(index, where={"n": {">=": 5900}}) == 1
    query = rows(1, seed=3, width=DIM)[0]
    first = index.search_vectors(query)
    index.remove([hit.id for hit in first])
    again = index.search_vectors(query)
    assert not ids(first) & ids(again)
    assert len(again) == 10
    assert recall(index) >= 0.95
    # More than there are candidates: search turns exact.
    assert len(index.search_vectors(query, k=5990)) == 5990


def test_new_items_are_found_at_once(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    vector = rows(1, seed=9, width=DIM)
    index.add_vectors("image", vector, ids=["new"])
    assert index.search_vectors(vector[0], k=1)[0].id == "new"
    monkeypatch.setattr(compaction, "TAIL", 10)
    index.add_vectors("image", rows(3200, seed=10, width=DIM))
    assert index.stats().details["segments"] == 1
    assert index.search_vectors(vector[0], k=1)[0].id == "new"
    assert recall(index) >= 0.95


def test_a_damaged_file_makes_search_exact(index: Index, tmp_path: Path) -> None:
    (path,) = (tmp_path / "a").glob("*.codes")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with (
        Index.open(tmp_path / "a") as other,
        pytest.warns(UserWarning, match="codes is missing or damaged: search is exact"),
    ):
        assert recall(other) == 1
    path.unlink()
    with Index.open(tmp_path / "a") as other, pytest.warns(UserWarning, match="search is exact"):
        assert recall(other) == 1


@pytest.mark.parametrize(("bits", "dim"), [(8, 24), (64, 24), (24, 24)])
def test_any_number_of_bits(tmp_path: Path, bits: int, dim: int) -> None:
    vectors = unit_vectors(rows(700, width=dim), dim, "vectors").astype(np.float16)
    candidates.write_codes(tmp_path / "a.codes", vectors, bits, vectors[:0])
    file = candidates.CodesFile(tmp_path / "a.codes")
    file.verify()
    at = file.candidates(vectors[:5].astype(np.float32), 3, None)
    # The code of an item is the nearest to its own vector, or nearly.
    assert all(number in near for number, near in enumerate(at))
    assert (tmp_path / "a.codes").stat().st_size <= 4096 * 2 + 4 * dim * bits + 700 * bits // 8
    again = tmp_path / "b.codes"
    candidates.write_codes(again, vectors, bits, vectors[:0])
    assert zlib.crc32(again.read_bytes()) == zlib.crc32((tmp_path / "a.codes").read_bytes())


def test_what_is_refused(model: DualEncoder, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="multiple of 8"):
        Index.build(tmp_path / "a", model, rows(1), modality="image", codes=12)
    with pytest.raises(InputError, match="no binary codes"):
        Index.build("milvus://nowhere:1/a", model, rows(1), modality="image", codes=16)


def test_a_rebuilt_index_keeps_its_codes(model: DualEncoder, tmp_path: Path) -> None:
    options: dict[str, Any] = {"modality": "image", "approximate_from": 100, "codes": 16}
    Index.build(tmp_path / "a", model, rows(300), **options).close()
    with Index.rebuild(tmp_path / "a", model, lambda items: rows(len(items), seed=1)) as index:
        assert json.loads(index.binding.to_json())["codes"] == 16
        assert len(list((tmp_path / "a").glob("*.codes"))) == 1
        assert recall(index) >= 0.9
