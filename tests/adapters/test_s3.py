"""Shards in an object store: a real S3 server (moto's), read and written by s3fs."""

from __future__ import annotations

import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccal.errors import CcalError, InputError
from ccal.scale.encoding import encode_dataset
from ccal.scale.engines import LocalEngine
from ccal.scale.fitting import fit_linear
from ccal.scale.indexing import index_dataset
from ccal.scale.shards import open_dataset
from tests.cli.conftest import invoke
from tests.retrieval.milvus_server import free_port
from tests.scale.conftest import model
from tests.scale.data import ENDS, pairs, write_shards
from tests.scale.engines import Dying, Here, Stopping
from tests.scale.test_encoding import column, expected
from tests.scale.test_indexing import check

__all__ = ["model"]
s3fs = pytest.importorskip("s3fs")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    program = shutil.which("moto_server")
    if program is None:
        pytest.skip("no S3 server: moto_server of the package moto[server]")
    found = f"http://127.0.0.1:{free_port()}"
    server = subprocess.Popen(
        [program, "-p", found.rpartition(":")[2]],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{found}/moto-api/", timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield found
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def bucket(address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty bucket, to which the workers have the key."""
    settings = {"ENDPOINT_URL": address, "ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret"}
    for name, value in settings.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    urllib.request.urlopen(
        urllib.request.Request(f"{address}/moto-api/reset", method="POST")
    ).close()
    store().mkdir("bucket")
    return "s3://bucket"


def store() -> Any:
    return s3fs.S3FileSystem(use_listings_cache=False)


@pytest.mark.parametrize("kind", ["npy", "parquet", "tar"])
def test_every_kind_of_shard(kind: str, bucket: str, model: Path, tmp_path: Path) -> None:
    x, y = pairs()
    folder = write_shards(tmp_path / "shards", kind, x, y)
    store().put(str(folder), "bucket/data", recursive=True)
    here, there = open_dataset(folder), open_dataset(f"{bucket}/data")
    assert there.fingerprint() == here.fingerprint()
    assert there.columns == here.columns
    first, second = ("x.npy", "y.npy") if kind == "tar" else ("x", "y")
    fits = [
        fit_linear(dataset, first, second, Here(), names=("image", "text"))
        for dataset in (here, there)
    ]
    np.testing.assert_array_equal(fits[0].cca.x_projection_, fits[1].cca.x_projection_)
    keep = [] if kind == "npy" else ["__key__" if kind == "tar" else "id"]
    given: dict[str, Any] = {"column": first, "keep": keep}
    for place in (f"{bucket}/out", str(tmp_path / "out")):
        encode_dataset(there, model, "image", place, Here(), **given)
    manifest = store().cat("bucket/out/manifest.json").replace(bucket.encode(), b"")
    local = (tmp_path / "out" / "manifest.json").read_bytes().replace(bucket.encode(), b"")
    assert manifest == local
    assert len(store().ls("bucket/out")) == len(ENDS)  # the shards and the manifest
    index_dataset(
        open_dataset(f"{bucket}/out"),
        model,
        "image",
        tmp_path / "index",
        Here(),
        id_column=keep[0] if kind == "parquet" else None,
        column="embedding",
    )
    check(str(tmp_path / "index"), model, *(("image-", 1) if kind == "npy" else ()))


def test_killed_workers_and_commands(bucket: str, model: Path, tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "shards", "parquet", *pairs())
    store().put(str(folder), "bucket/data", recursive=True)
    dataset, out = open_dataset(f"{bucket}/data/*.parquet"), f"{bucket}/out"

    with pytest.raises(KeyboardInterrupt):
        encode_dataset(dataset, model, "image", out, Stopping(), column="x")
    before = store().info("bucket/out/embedding-00000.parquet")["LastModified"]
    engine = Dying(2)
    encode_dataset(dataset, model, "image", out, engine, column="x")
    assert engine.killed
    assert store().info("bucket/out/embedding-00000.parquet")["LastModified"] == before
    found = np.concatenate(column(out, "embedding"))
    np.testing.assert_allclose(found, expected(model), atol=1e-6)
    with pytest.raises(InputError, match="s3://bucket/out is complete"):
        encode_dataset(dataset, model, "image", out, LocalEngine(1), column="x")


def test_the_commands(bucket: str, tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "shards", "npy", *pairs())
    store().put(str(folder), "bucket/data", recursive=True)
    linear, one = tmp_path / "linear", ["--workers", "1"]
    for arguments in (
        ["fit-linear", f"{bucket}/data/", "--dim", "8", "-o", linear, *one],
        ["encode", linear, "x", f"{bucket}/data", "--column", "x", "-o", f"{bucket}/out", *one],
        ["index", linear, f"{bucket}/out", "-m", "x", "-o", tmp_path / "index", *one],
    ):
        outcome = invoke(*arguments)
        assert outcome.code == 0, outcome
    assert "holds 3,000 x items" in outcome.err


def test_what_is_not_there_is_named(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"s3://bucket/none: expected .*there are none"):
        open_dataset(f"{bucket}/none")
    with pytest.raises(CcalError, match="nosuch://bucket/data: Protocol not known"):
        open_dataset("nosuch://bucket/data")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(CcalError, match=r"s3://bucket/data: .*127\.0\.0\.1:1"):
        open_dataset(f"{bucket}/data")
