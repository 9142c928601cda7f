"""The PostgreSQL backend: approximate search, filters with an index, what is refused."""

from __future__ import annotations

import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccal import CcalError, DualEncoder, InputError
from ccal.retrieval import Index, IndexInUseError
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


def test_threads_share_an_index(location: str, model: DualEncoder) -> None:
    with Index.build(location, model, rows(20), modality="image") as index:
        queries = rows(20)
        expected = [[hit.id for hit in hits] for hits in index.search(image=queries, k=3)]

        def work(number: int) -> list[str]:
            for n in range(10):
                query = (number + n) % 20
                hits = index.search(image=queries[query], k=3, within="image")
                assert [hit.id for hit in hits] == expected[query]
                assert index.get([f"image-{query + 1}"])[0].modality == "image"
            return index.add("text", rows(2, seed=number))

        with ThreadPoolExecutor(8) as threads:
            new = [id for ids in threads.map(work, range(8)) for id in ids]
        assert len(set(new)) == 16
        assert index.count() == 36


def test_lost_connections_are_replaced(server: str, location: str, model: DualEncoder) -> None:
    psycopg = pytest.importorskip("psycopg")
    with Index.build(location, model, rows(5), modality="image") as index:
        for number in range(2):
            with psycopg.connect(server, autocommit=True) as other:
                other.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid != pg_backend_pid()"
                )
            if number:
                index.add("image", rows(1))
            assert len(index.search(image=rows(1)[0])) == 5 + number
        with pytest.raises(IndexInUseError), Index.open(location, model) as second:
            second.remove(["image-1"])


def test_a_forked_process_has_connections_of_its_own(location: str, model: DualEncoder) -> None:
    with Index.build(location, model, rows(5), modality="image") as index:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads, which do not matter here
            child = os.fork()
        if not child:
            try:
                found = index.count()
                index.close()
                with suppress(IndexInUseError):
                    index.remove(["image-1"])
                    found = -1
            except BaseException:
                found = -2
            os._exit(found if found > 0 else 99)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
        index.remove(["image-2"])
        assert index.count() == 4
