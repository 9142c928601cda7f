"""The PostgreSQL backend: approximate search, filters with an index, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccal import CcalError, DualEncoder, InputError
from ccal.retrieval import Index
from tests.cli.conftest import invoke
from tests.retrieval.conftest import DIM, rows


@pytest.fixture
def location(server: str, request: pytest.FixtureRequest) -> str:
    name = "".join(c if c.isalnum() else "_" for c in request.node.name.lower())[:40]
    return f"{server}{'&' if '?' in server else '?'}table={name}"


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_recall(location: str, model: DualEncoder, dtype: Any) -> None:
    options: dict[str, Any] = {"modality": "image", "approximate_from": 1000, "dtype": dtype}
    with Index.build(location, model, rows(0), **options) as index:
        facts = [{"n": n} for n in range(3000)]
        index.add_vectors("image", rows(3000, width=DIM), metadata=facts)
        assert index.stats().details["approximate"] == 1
        queries = rows(20, seed=3, width=DIM)
        for where in ({}, {"n": {">=": 2950}}):
            near = index.search_vectors(queries, where=where)
            true = index.search_vectors(queries, where=where, exact=True)
            shares = [
                len({h.id for h in a} & {h.id for h in b}) / 10
                for a, b in zip(near, true, strict=True)
            ]
            assert np.mean(shares) > 0.95


def test_the_command_line(location: str, model: DualEncoder, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    np.save(tmp_path / "photos.npy", rows(20))
    arguments = [tmp_path / "model", tmp_path / "photos.npy", "-m", "image", "-o", location]
    for _ in range(2):
        outcome = invoke("index", *arguments)
        assert outcome.code == 0, outcome
    assert "holds 40 image" in outcome.err
    outcome = invoke("search", location, tmp_path / "photos.npy", "-m", "image", "-k", 1, "--json")
    assert outcome.code == 0, outcome
    assert '"id": "image-20"' in outcome.out
    assert invoke("index", *arguments, "--rebuild").code == 0
    with Index.open(location) as index:
        assert index.count() == 20


def test_places_that_are_no_index(location: str, model: DualEncoder) -> None:
    with pytest.raises(InputError, match=r"is no index: there is no table .*`ccal index`"):
        Index.open(location)
    with pytest.raises(InputError, match="is no name for an index"):
        Index.open("postgresql://here/db?table=a;drop")
    with pytest.raises(CcalError, match="postgresql://me@localhost:1/db") as caught:
        Index.open("postgresql://me:secret@localhost:1/db")
    assert "secret" not in str(caught.value)


def test_a_build_that_fails_leaves_nothing(location: str, model: DualEncoder) -> None:
    broken = rows(3)
    broken[1] = np.nan
    with pytest.raises(InputError, match="NaN"):
        Index.build(location, model, broken, modality="image")
    with pytest.raises(InputError, match="is no index"):
        Index.open(location)
