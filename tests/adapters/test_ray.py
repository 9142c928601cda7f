"""The engine ray: a real cluster of two workers on this machine, of which some are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccal.cca import CCA
from ccal.errors import CcalError, InputError
from ccal.retrieval.backends import exists
from ccal.scale.encoding import encode_dataset
from ccal.scale.engines import RayEngine
from ccal.scale.fitting import fit_linear
from ccal.scale.indexing import index_dataset
from ccal.scale.shards import open_dataset
from tests.cli.conftest import environment
from tests.retrieval.conftest import server
from tests.scale.data import ENDS, MANY, pairs, write_shards
from tests.scale.engines import fatal
from tests.scale.test_indexing import check, held

__all__ = ["server"]

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def engine() -> Iterator[RayEngine]:
    found = RayEngine(2)
    yield found
    ray.shutdown()


@pytest.fixture(scope="module")
def linear(engine: RayEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with shards and the model that Ray's workers fitted to them."""
    folder = tmp_path_factory.mktemp("ray")
    x, y = pairs()
    dataset = open_dataset(write_shards(folder / "shards", "npy", x, y))
    found = fit_linear(dataset, "x", "y", engine, names=("image", "text"), dim=8)
    whole = CCA(8, ridge="auto", power="auto").fit(x, y)
    np.testing.assert_allclose(found.cca.x_projection_, whole.x_projection_, atol=1e-10)
    np.testing.assert_allclose(found.cca.y_projection_, whole.y_projection_, atol=1e-10)
    found.model.save(folder / "model")
    return folder


def embedded(folder: Path) -> np.ndarray[Any, Any]:
    shards = open_dataset(folder).shards
    found = [b["embedding"] for shard in shards for b in shard.batches(["embedding"], 500)]
    return np.concatenate(found)


def expected(linear: Path) -> np.ndarray[Any, Any]:
    from ccal.model import load

    return load(linear / "model").encode("image", pairs()[0]).numpy()


def _pid_and_wait() -> Any:
    def work(task: str) -> Any:
        path = Path(task)
        # The first to come is killed in the middle of its task.
        if not path.exists():
            path.write_text(str(os.getpid()))
            yield 5
            os.kill(os.getpid(), signal.SIGKILL)
        yield 10
        return os.getpid()

    return work


def test_a_killed_worker_is_replaced(engine: RayEngine, tmp_path: Path) -> None:
    told: list[int] = []
    found = list(engine.map(_pid_and_wait, [str(tmp_path / "a"), str(tmp_path / "b")], told.append))
    assert sorted(number for number, _ in found) == [0, 1]
    killed = {int((tmp_path / name).read_text()) for name in "ab"}
    assert not killed & {pid for _, pid in found}
    # What a worker has told is taken back when it dies.
    assert sum(told) == 20


def _refuse() -> Any:
    raise InputError("There is no model.")


def test_errors_of_workers_are_raised(engine: RayEngine) -> None:
    with pytest.raises(InputError, match=r"There is no model\."):
        list(engine.map(_refuse, ["task"]))
    with pytest.raises(CcalError, match="3 workers died of it"):
        list(engine.map(_die, ["task"]))


def _die() -> Any:
    return lambda _: os._exit(7)


def test_shards_are_embedded(linear: Path, engine: RayEngine, tmp_path: Path) -> None:
    told: list[Any] = []
    dataset = open_dataset(linear / "shards")
    given: dict[str, Any] = {"column": "x", "progress": lambda *numbers: told.append(numbers)}
    encode_dataset(dataset, linear / "model", "image", tmp_path / "out", engine, **given)
    np.testing.assert_allclose(embedded(tmp_path / "out"), expected(linear), atol=1e-6)
    assert told[-1] == (ENDS[-1], ENDS[-1])


def test_a_fit_whose_worker_is_killed(linear: Path, engine: RayEngine, tmp_path: Path) -> None:
    dataset = fatal(open_dataset(linear / "shards"), tmp_path)
    found = fit_linear(dataset, "x", "y", engine, dim=8)
    assert (tmp_path / "killed").exists()
    whole = CCA(8, ridge="auto", power="auto").fit(*pairs())
    np.testing.assert_allclose(found.cca.x_projection_, whole.x_projection_, atol=1e-10)


@pytest.mark.parametrize("backend", ["folder", "postgres"])
def test_a_load_whose_worker_and_driver_are_killed(
    backend: str, linear: Path, engine: RayEngine, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = str(tmp_path / "index")
    if backend == "postgres":
        place = f"{request.getfixturevalue('server')}&table=ray"
    shards, model = write_shards(tmp_path / "s", "parquet", *pairs(), ends=MANY), linear / "model"
    command = [sys.executable, "-m", "ccal", "index", str(model), str(shards), "-m", "image"]
    command += ["--column", "x", "--id", "id", "-o", place, "--engine", "ray", "--workers", "1"]
    driver = subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL)
    while not exists(place) or held(place) < 100:
        assert driver.poll() is None
        time.sleep(0.05)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert held(place) < ENDS[-1]
    time.sleep(1.0)  # PostgreSQL notices that the driver has gone
    given: dict[str, Any] = {"column": "x", "id_column": "id"}
    dataset = fatal(open_dataset(shards), tmp_path)
    index_dataset(dataset, model, "image", place, engine, **given)
    check(place, model)
    index_dataset(open_dataset(shards), model, "image", place, engine, **given)
    check(place, model)


def test_a_killed_driver_goes_on(linear: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shards = write_shards(tmp_path / "shards", "npy", *pairs(), ends=MANY)
    command = [sys.executable, "-m", "ccal", "encode", str(linear / "model"), "image"]
    command += [str(shards), "--column", "x", "-o", str(out)]
    command += ["--engine", "ray", "--workers", "1"]
    driver = subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL)
    while len(list(out.glob("embedding-*"))) < 20:
        assert driver.poll() is None
        time.sleep(0.01)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert not (out / "manifest.json").exists()
    again = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    np.testing.assert_allclose(embedded(out), expected(linear), atol=1e-6)
