"""Cells and binary codes in an index: recall against exact search, filters, removals, damage."""

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


@pytest.fixture(params=["cells", "codes by faiss", "codes by numpy"])
def index(
    request: pytest.FixtureRequest,
    model: DualEncoder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    """6000 vectors with cells, or with codes of 32 bits, from 1000 on."""
    if request.param == "codes by numpy":
        monkeypatch.setattr(candidates, "has_faiss", lambda: False)
    else:
        pytest.importorskip("faiss")
    options: dict[str, Any] = {"modality": "image", "approximate_from": 1000}
    options["codes"] = None if request.param == "cells" else 32
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


def file_of(index: Index) -> Path:
    """The file of the cells or the codes."""
    kind = "faiss" if index.binding.codes is None else "codes"
    (path,) = Path(index.stats().location).glob(f"*.{kind}")
    return path


def test_recall_and_scores(index: Index) -> None:
    assert index.stats().details["approximate"] == 1
    kinds = {path.suffix for path in file_of(index).parent.iterdir()}
    assert len(kinds & {".faiss", ".codes"}) == 1
    assert recall(index) >= (0.95 if index.binding.codes is None else 0.98)
    assert recall(index, k=100) >= 0.95
    query = rows(1, seed=3, width=DIM)[0]
    exact = {hit.id: hit.score for hit in index.search_vectors(query, exact=True, k=50)}
    for hit in index.search_vectors(query):
        assert hit.score == exact[hit.id]


def test_only_candidates_are_ranked(index: Index) -> None:
    """Otherwise recall would prove nothing."""
    (shard,) = index._backend._state(["image"], [])[0].shards["image"]  # type: ignore[attr-defined]
    queries = unit_vectors(rows(5, seed=3, width=DIM), DIM, "queries")
    at = shard.approximate.candidates(queries, 10, None)
    assert len(at) == 5
    assert at.shape[1] < 1000
    assert all(len(set(near)) == len(near) for near in at.tolist())


def test_filters_and_removals(index: Index) -> None:
    least = 0.9 if index.binding.codes is None else 0.95
    assert recall(index, where={"n": {">=": 2000}}) >= least
    assert recall(index, where={"n": {">=": 5900}}) == 1
    query = rows(1, seed=3, width=DIM)[0]
    first = index.search_vectors(query)
    index.remove([hit.id for hit in first])
    again = index.search_vectors(query)
    assert not ids(first) & ids(again)
    assert len(again) == 10
    assert recall(index) >= least
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
    path = file_of(index)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with (
        Index.open(tmp_path / "a") as other,
        pytest.warns(UserWarning, match=f"{path.name} is missing or damaged: search is exact"),
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


def test_cells_without_faiss(
    model: DualEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("faiss")
    options: dict[str, Any] = {"modality": "image", "approximate_from": 100}
    Index.build(tmp_path / "a", model, rows(300), **options).close()
    monkeypatch.setattr(candidates, "has_faiss", lambda: False)
    with Index.open(tmp_path / "a") as other:
        assert recall(other) == 1


def test_queries_of_the_other_modality_count_when_cells_are_chosen(
    model: DualEncoder, tmp_path: Path
) -> None:
    pytest.importorskip("faiss")
    # Texts lie beside the photos, whose cells are small: more of them have to be searched.
    rng = np.random.default_rng(0)
    photos = rng.normal(size=(4000, DIM)) * np.geomspace(1, 0.1, DIM)
    texts = photos[:300] + rng.normal(size=(300, DIM))
    probes = []
    for name, others in (("alone", texts[:0]), ("both", texts)):
        options: dict[str, Any] = {"modality": "image", "approximate_from": 1000}
        with Index.build(tmp_path / name, model, rows(0), **options) as index:
            index.add_vectors("text", others)
            index.add_vectors("image", photos)
            index._backend.finish_load()
            if len(others):
                near, true = (
                    index.search_vectors(texts, within="image", exact=e) for e in (False, True)
                )
                pairs = zip(near, true, strict=True)
                assert np.mean([len(ids(a) & ids(b)) / 10 for a, b in pairs]) > 0.98
        (path,) = (tmp_path / name).glob("*.faiss")
        probes.append(candidates.Cells(path.read_bytes())._index.nprobe)
    assert probes[0] < probes[1]


def test_both_modalities_are_ranked_by_themselves(model: DualEncoder, tmp_path: Path) -> None:
    photos = rows(20, width=DIM)
    with Index.build(tmp_path / "a", model, rows(0), modality="image") as index:
        index.add_vectors("image", photos)
        index.add_vectors("text", photos + 0.5)
        given: dict[str, Any] = {"modality": "image", "k": 5}
        hits = index.search_vectors(photos[3], within="both", **given)
        assert [hit.modality for hit in hits] == ["text", "image", "text", "image", "text"]
        for name in ("text", "image"):
            alone = index.search_vectors(photos[3], within=name, **given)
            own = [hit.id for hit in hits if hit.modality == name]
            assert own == [hit.id for hit in alone][: len(own)]
        index.remove(index.ids("text"))
        hits = index.search_vectors(photos[3], within="both", **given)
        assert [hit.modality for hit in hits] == ["image"] * 5
