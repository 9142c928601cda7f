from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ccal.codes import BinaryCodes, CodeIndex
from ccal.errors import InputError
from ccal.retrieval.codes import code_index
from tests.retrieval.codes.data import embedded_pairs, small_model


@pytest.fixture
def codes() -> BinaryCodes:
    return BinaryCodes.fit(small_model(), *embedded_pairs(200), bits=24)


def test_reranking_is_that_of_a_loop(codes: BinaryCodes) -> None:
    x, y = embedded_pairs(80, seed=1)
    searched = CodeIndex(codes, codes.encode("text", y), vectors=y)
    asked = codes.encode("image", x[:7])
    near = searched.search(asked, k=20)
    found = searched.search(asked, k=5, rerank=20, vectors=x[:7])
    assert found.cosines is not None
    for query, rows in enumerate(near.rows.tolist()):
        cosines = {row: float(torch.cosine_similarity(x[query], y[row], dim=0)) for row in rows}
        best = sorted(rows, key=cosines.__getitem__, reverse=True)[:5]
        assert found.rows[query].tolist() == best
        np.testing.assert_allclose(found.cosines[query], [cosines[row] for row in best], rtol=1e-5)
        far = dict(zip(rows, near.distances[query].tolist(), strict=True))
        assert found.distances[query].tolist() == [far[row] for row in best]


def test_reranking_everything_is_search_by_cosine(codes: BinaryCodes) -> None:
    x, y = embedded_pairs(60, seed=2)
    searched = CodeIndex(codes, codes.encode("text", y), vectors=y)
    found = searched.search(codes.encode("image", x), k=60, rerank=1000, vectors=x)
    unit = torch.nn.functional.normalize
    assert torch.equal(
        torch.from_numpy(found.rows), (unit(x) @ unit(y).mT).argsort(1, descending=True)
    )


def test_vectors_may_lie_on_disk_in_half_precision(codes: BinaryCodes, tmp_path: Path) -> None:
    x, y = embedded_pairs(60, seed=3)
    np.save(tmp_path / "y.npy", y.half().numpy())
    mapped = np.load(tmp_path / "y.npy", mmap_mode="r")
    packed, asked = codes.encode("text", y), codes.encode("image", x)
    on_disk = CodeIndex(codes, packed, vectors=mapped).search(asked, k=3, rerank=9, vectors=x)
    in_memory = CodeIndex(codes, packed, vectors=y.half()).search(asked, k=3, rerank=9, vectors=x)
    np.testing.assert_array_equal(on_disk.rows, in_memory.rows)


def test_other_vectors_than_those_of_the_codes_may_rank(codes: BinaryCodes) -> None:
    x, y = embedded_pairs(30, seed=4)
    other = torch.randn(30, 5)
    searched = CodeIndex(codes, codes.encode("text", y), vectors=other)
    found = searched.search(codes.encode("image", x), k=1, rerank=30, vectors=other)
    assert found.rows[:, 0].tolist() == list(range(30))


@pytest.mark.parametrize("engine", ["numpy", "faiss"])
def test_both_engines_answer(codes: BinaryCodes, engine: Any) -> None:
    if engine == "faiss":
        pytest.importorskip("faiss", reason="faiss is not installed")
    x, y = embedded_pairs(90, seed=5)
    searched = CodeIndex(codes, codes.encode("text", y), vectors=y, engine=engine)
    found = searched.search(codes.encode("image", x), k=1, rerank=90, vectors=x)
    assert (searched.engine, len(searched)) == (engine, 90)
    assert (found.rows[:, 0] == np.arange(90)).mean() > 0.5


def test_many_candidates_go_to_faiss(codes: BinaryCodes, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faiss", reason="faiss is not installed")
    packed = codes.encode("text", embedded_pairs(50)[1])
    assert CodeIndex(codes, packed).engine == "numpy"
    monkeypatch.setattr(code_index, "_FAISS_FROM", 50)
    assert CodeIndex(codes, packed).engine == "faiss"
    monkeypatch.setattr(code_index, "find_spec", lambda name: None)
    assert CodeIndex(codes, packed).engine == "numpy"


def test_an_empty_index_finds_nothing(codes: BinaryCodes) -> None:
    none, x = torch.zeros(0, 12), embedded_pairs(4)[0]
    searched = CodeIndex(codes, codes.encode("text", none), vectors=none)
    asked = codes.encode("image", x)
    assert searched.search(asked, k=3).rows.shape == (4, 0)
    assert searched.search(asked, k=3, rerank=9, vectors=x).rows.shape == (4, 0)


def test_what_cannot_be_is_refused(codes: BinaryCodes) -> None:
    x, y = embedded_pairs(20)
    packed, asked = codes.encode("text", y), codes.encode("image", x)
    bare, searched = CodeIndex(codes, packed), CodeIndex(codes, packed, vectors=y)
    for act, message in (
        (lambda: CodeIndex(codes, packed[:, :2]), r"\(n, 3\)"),
        (lambda: CodeIndex(codes, packed, vectors=y[:3]), "20 candidates"),
        (lambda: CodeIndex(codes, packed, engine="abacus"), "engine"),  # type: ignore[arg-type]
        (lambda: bare.search(asked, rerank=10, vectors=x), "the index came without"),
        (lambda: searched.search(asked, rerank=10), "the queries came without"),
        (lambda: searched.search(asked, vectors=x), "rerank=100"),
        (lambda: searched.search(asked, k=11, rerank=10, vectors=x), "between 1 and rerank"),
        (lambda: searched.search(asked, rerank=10, vectors=x[:, :3]), r"\(20, 12\)"),
        (lambda: searched.search(asked, rerank=10, vectors=x * np.nan), "NaN"),
        (lambda: searched.search(asked, k=0), "k must be a whole number of at least 1"),
    ):
        with pytest.raises(InputError, match=message):
            act()
