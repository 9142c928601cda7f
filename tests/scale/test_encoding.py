"""Embedding shards: the same numbers as of one array, whatever dies in the middle."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccal.errors import CcalError, InputError
from ccal.files import file_hash
from ccal.scale import engines
from ccal.scale.encoding import encode_dataset
from ccal.scale.engines import LocalEngine
from ccal.scale.shards import open_dataset
from tests.cli.conftest import environment, invoke
from tests.scale.data import ENDS, MANY, die, pairs, write_shards
from tests.scale.engines import Dying, Here


def embedded(folder: Path) -> np.ndarray[Any, Any]:
    """All embeddings of a folder, each shard compared with its checksum."""
    dataset = open_dataset(folder)
    assert dataset.manifest is not None
    for entry in dataset.manifest["shards"]:
        assert file_hash(folder / entry["file"]) == entry["sha256"]
    return np.concatenate(column(folder, "embedding"))


def column(folder: str | Path, name: str) -> list[Any]:
    """The batches of a column of all shards."""
    shards = open_dataset(folder).shards
    return [batch[name] for shard in shards for batch in shard.batches([name], 500)]


def expected(model: Path) -> np.ndarray[Any, Any]:
    from ccal.model import load

    return load(model).encode("image", pairs()[0]).numpy()


@pytest.mark.parametrize("kind", ["npy", "parquet", "tar"])
def test_every_kind_of_shard(kind: str, model: Path, tmp_path: Path) -> None:
    dataset = open_dataset(write_shards(tmp_path / "shards", kind, *pairs()))
    name, key = ("x.npy", "__key__") if kind == "tar" else ("x", "id")
    keep = [] if kind == "npy" else [key]
    out, told = tmp_path / "out", []
    given: dict[str, Any] = {"column": name, "keep": keep}
    encode_dataset(
        dataset, model, "image", out, Here(), progress=lambda *n: told.append(n), **given
    )
    np.testing.assert_allclose(embedded(out), expected(model), atol=1e-6)
    assert told[-1] == (ENDS[-1], ENDS[-1])
    assert not (out / "done.jsonl").exists()
    if keep:
        ids = [id for batch in column(out, key) for id in batch]
        assert ids == [f"id {row}" for row in range(ENDS[-1])]


def test_what_is_done_stays_and_what_is_torn_is_done_again(model: Path, tmp_path: Path) -> None:
    dataset = open_dataset(write_shards(tmp_path / "shards", "npy", *pairs()))
    whole, out = tmp_path / "whole", tmp_path / "out"
    encode_dataset(dataset, model, "image", whole, Here(), column="x")
    manifest = json.loads((whole / "manifest.json").read_text())
    # As a killed driver leaves a folder: one shard noted, one not, one half, a line cut short.
    out.mkdir()
    plan = {n: manifest[n] for n in ("format", "model", "modality", "dataset", "columns", "files")}
    first, second, third, _ = manifest["shards"]
    lines = [json.dumps(line) for line in (plan, first)]
    (out / "done.jsonl").write_text("\n".join(lines) + "\n" + json.dumps(second)[:20])
    for entry in (first, second):
        (out / entry["file"]).write_bytes((whole / entry["file"]).read_bytes())
    before = (out / first["file"]).stat().st_mtime_ns
    (out / f".{third['file']}.0123").write_bytes(b"half")
    encode_dataset(dataset, model, "image", out, Here(), column="x")
    assert (out / first["file"]).stat().st_mtime_ns == before
    assert {p.name for p in out.iterdir()} == {p.name for p in whole.iterdir()}
    assert (out / "manifest.json").read_bytes() == (whole / "manifest.json").read_bytes()
    with pytest.raises(InputError, match="is complete"):
        encode_dataset(dataset, model, "image", out, Here(), column="x")


def test_another_job_is_refused(model: Path, tmp_path: Path) -> None:
    dataset = open_dataset(write_shards(tmp_path / "shards", "npy", *pairs()))
    with pytest.raises(InputError, match="name one with --column"):
        encode_dataset(dataset, model, "image", tmp_path / "out", Here())
    with pytest.raises(InputError, match="takes features of shape"):
        encode_dataset(dataset, model, "image", tmp_path / "out", Here(), column="y")
    with pytest.raises(InputError, match="part of another job, which differs in: columns"):
        encode_dataset(dataset, model, "image", tmp_path / "out", Here(), column="x")


def test_a_killed_worker_is_replaced(model: Path, tmp_path: Path) -> None:
    dataset = open_dataset(write_shards(tmp_path / "shards", "npy", *pairs()))
    told: list[Any] = []
    engine, out = Dying(2), tmp_path / "out"
    encode_dataset(
        dataset, model, "image", out, engine, column="x", progress=lambda *n: told.append(n)
    )
    assert engine.killed
    assert told[-1] == (ENDS[-1], ENDS[-1])
    np.testing.assert_allclose(embedded(out), expected(model), atol=1e-6)


def test_a_task_that_kills_every_worker_is_named() -> None:
    with pytest.raises(CcalError, match=r"fatal: 3 workers died of it \(exit code 7\)"):
        list(LocalEngine(1).map(die, ["fatal"]))


@pytest.mark.slow
def test_a_killed_driver_goes_on(model: Path, tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "shards", "npy", *pairs(), ends=MANY)
    out = tmp_path / "out"
    command = [sys.executable, "-m", "ccal", "encode", str(model), "image", str(folder)]
    command += ["--column", "x", "--workers", "2", "-o", str(out)]
    for share in (0.1, 0.5):
        driver = subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL)
        while len(list(out.glob("embedding-*"))) < share * len(MANY):
            assert driver.poll() is None
            time.sleep(0.001)
        driver.kill()
        driver.wait()
        assert not (out / "manifest.json").exists()
    again = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    np.testing.assert_allclose(embedded(out), expected(model), atol=1e-6)
    assert len(list(out.iterdir())) == len(MANY) - 1 + 2  # the shards, the manifest, the lock


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "make_engine", lambda *_: Here())
    folder = write_shards(tmp_path / "shards", "parquet", *pairs())
    pattern, model, out = folder / "*.parquet", tmp_path / "linear", tmp_path / "out"
    columns = ["--x", "image=x", "--y", "text=y"]
    one = ["--workers", "1"]
    found = invoke("fit-linear", pattern, *columns, "--dim", "8", *one, "-o", model)
    assert found.code == 0, found
    assert "Fitted 3,000 pairs of 20 and 15 features: 8 dimensions" in found.err
    assert "Held-out pairs find their counterparts among 300" in found.err
    found = invoke("fit-linear", pattern, *columns, "-o", model)
    assert "exists; add --force" in found.err
    given = ["--column", "x", "--keep", "id", *one]
    found = invoke("encode", model, "image", pattern, *given, "-o", out)
    assert found.code == 0, found
    assert "3,000 embeddings in 4 shards." in found.err
    assert embedded(out).shape == (3000, 8)
