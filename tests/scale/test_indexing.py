"""An index filled from shards, in every backend: repeated and killed loads end alike."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccal import Index
from ccal.errors import InputError
from ccal.model import load
from ccal.retrieval.backends import exists
from ccal.retrieval.items import OtherModelError
from ccal.scale.encoding import encode_dataset
from ccal.scale.indexing import index_dataset
from ccal.scale.shards import open_dataset
from tests.cli.conftest import environment
from tests.retrieval.conftest import Place
from tests.retrieval.milvus_server import NoServerError, alone, cache, install, kill, start, stop
from tests.scale.data import ENDS, MANY, pairs, write_shards
from tests.scale.engines import Dying, Here, Stopping


def check(location: str, model: Path, prefix: str = "id ", first: int = 0) -> None:
    """The index holds every row once, with its own vector."""
    vectors = load(model).encode("image", pairs()[0]).numpy()
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    with Index.open(location, load(model)) as index:
        ids = index.ids()
        assert sorted(ids) == sorted(f"{prefix}{first + row}" for row in range(ENDS[-1]))
        assert index.count() == ENDS[-1]
        rows = [0, 699, 700, 701, 2999]
        some = [f"{prefix}{first + row}" for row in rows]
        np.testing.assert_allclose(index.vectors(some), unit[rows], atol=1e-6)
        (hits,) = index.search(image=pairs()[0][1500:1501], within="image", k=1)
        assert hits[0].id == f"{prefix}{first + 1500}"
        index.check()


def test_a_repeated_load_ends_in_the_same_index(place: Place, model: Path, tmp_path: Path) -> None:
    dataset = open_dataset(write_shards(tmp_path / "shards", "parquet", *pairs()))
    given: dict[str, Any] = {"column": "x", "id_column": "id"}
    location, told = place(), list[Any]()

    with pytest.raises(KeyboardInterrupt):
        index_dataset(dataset, model, "image", location, Stopping(), **given)
    given["progress"] = lambda *numbers: told.append(numbers)
    assert index_dataset(dataset, model, "image", location, Here(), **given) == ENDS[-1]
    assert told[0][0] > 700  # the first two shards were not read again
    check(location, model)
    index_dataset(dataset, model, "image", location, Here(), **given)
    check(location, model)


def test_embeddings_of_this_model_are_taken_as_they_are(model: Path, tmp_path: Path) -> None:
    dataset = open_dataset(write_shards(tmp_path / "shards", "npy", *pairs()))
    encode_dataset(dataset, model, "image", tmp_path / "out", Here(), column="x")
    found, location = open_dataset(tmp_path / "out"), str(tmp_path / "index")
    index_dataset(found, model, "image", location, Here())
    check(location, model, "image-", first=1)
    with pytest.raises(InputError, match="holds image items, not text"):
        index_dataset(found, model, "text", location, Here())
    with pytest.raises(InputError, match="exists; its form"):
        index_dataset(found, model, "image", location, Here(), dims=2)
    changed = load(model)
    changed.towers["image"].matrix.weight.data.add_(1)  # type: ignore[union-attr, operator]
    changed.save(tmp_path / "other")
    with pytest.raises(OtherModelError, match="embeddings of another model"):
        index_dataset(found, tmp_path / "other", "image", str(tmp_path / "new"), Here())


def held(location: str) -> int:
    with Index.open(location) as index:
        return len(index.ids())


@pytest.mark.slow
def test_killed_workers_and_drivers_lose_nothing(place: Place, model: Path, tmp_path: Path) -> None:
    shards = write_shards(tmp_path / "shards", "parquet", *pairs(), ends=MANY)
    location = place()
    command = [sys.executable, "-m", "ccal", "index", str(model), str(shards), "-m", "image"]
    command += ["--column", "x", "--id", "id", "--workers", "2", "-o", location]
    for rows in (100, 1000):
        driver = subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL)
        while not exists(location) or held(location) < rows:
            assert driver.poll() is None
            time.sleep(0.05)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    assert held(location) < ENDS[-1]
    time.sleep(1.0)  # PostgreSQL notices that the driver has gone
    given: dict[str, Any] = {"column": "x", "id_column": "id"}
    engine = Dying(2)
    index_dataset(open_dataset(shards), model, "image", location, engine, **given)
    check(location, model)


@pytest.mark.slow
def test_a_load_waits_for_a_milvus_server_that_was_killed(model: Path, tmp_path: Path) -> None:
    folder = cache()
    try:
        with alone(folder):
            install(folder)
            process, address = start(folder, tmp_path / "server")
    except NoServerError as error:
        pytest.skip(f"no Milvus server: {error}")
    servers, lock = [process], threading.Lock()

    def restart() -> None:
        with lock:
            servers.append(start(folder, tmp_path / "server", int(address.rpartition(":")[2]))[0])

    def kill_once(done: int, total: int) -> None:
        if len(servers) == 1 and done >= 700:
            kill(servers[0])
            threading.Thread(target=restart).start()

    dataset = open_dataset(write_shards(tmp_path / "shards", "parquet", *pairs()))
    given: dict[str, Any] = {"column": "x", "id_column": "id", "progress": kill_once}
    try:
        location = f"milvus://{address}/load"
        index_dataset(dataset, model, "image", location, Here(), **given)
        check(location, model)
    finally:
        with lock:
            stop(servers[-1])
