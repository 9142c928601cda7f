"""Approximate search: recall against exact search, filters, removals, a damaged file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccal import DualEncoder
from ccal.retrieval import Hit, Index
from ccal.retrieval.backends.folder import candidates
from tests.retrieval.conftest import DIM, rows

pytest.importorskip("faiss")


@pytest.fixture
def index(model: DualEncoder, tmp_path: Path) -> Any:
    """6000 vectors, approximate from 1000."""
    options: dict[str, Any] = {"modality": "image", "approximate_from": 1000}
    with Index.build(tmp_path / "a", model, rows(0), **options) as built:
        facts = [{"n": n} for n in range(6000)]
        built.add_vectors("image", rows(6000, width=DIM), metadata=facts)
        yield built


def recall(index: Index, **options: Any) -> float:
    queries = rows(50, seed=3, width=DIM)
    near = index.search_vectors(queries, **options)
    true = index.search_vectors(queries, exact=True, **options)
    pairs = zip(near, true, strict=True)
    return float(np.mean([len(_ids(a) & _ids(b)) / len(b) for a, b in pairs]))


def _ids(hits: list[Hit]) -> set[str]:
    return {hit.id for hit in hits}


def test_recall_and_scores(index: Index) -> None:
    assert index.stats().details["approximate"] == 1
    assert recall(index) >= 0.95
    query = rows(1, seed=3, width=DIM)[0]
    exact = {hit.id: hit.score for hit in index.search_vectors(query, exact=True, k=50)}
    for hit in index.search_vectors(query):
        assert hit.score == exact[hit.id]


def test_filters_and_removals(index: Index) -> None:
    assert recall(index, where={"n": {">=": 2000}}) >= 0.9
    assert recall(index, where={"n": {">=": 5900}}) == 1
    first = index.search_vectors(rows(1, seed=3, width=DIM)[0])
    index.remove([hit.id for hit in first])
    again = index.search_vectors(rows(1, seed=3, width=DIM)[0])
    assert not _ids(first) & _ids(again)
    assert len(again) == 10
    assert recall(index) >= 0.9
    # More than any cells hold: search turns exact.
    assert len(index.search_vectors(rows(1, width=DIM)[0], k=5990)) == 5990


def test_a_damaged_file_makes_search_exact(index: Index, tmp_path: Path) -> None:
    (path,) = (tmp_path / "a").glob("*.faiss")
    path.write_bytes(path.read_bytes()[:-1])
    with (
        Index.open(tmp_path / "a") as other,
        pytest.warns(UserWarning, match="missing or damaged: search is exact"),
    ):
        assert recall(other) == 1


def test_without_faiss(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "has_faiss", lambda: False)
    with Index.open(tmp_path / "a") as other:
        assert recall(other) == 1


def test_queries_of_the_other_modality_count_when_cells_are_chosen(
    model: DualEncoder, tmp_path: Path
) -> None:
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
                assert np.mean([len(_ids(a) & _ids(b)) / 10 for a, b in pairs]) > 0.98
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
