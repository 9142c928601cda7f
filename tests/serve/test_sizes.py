"""Files that somebody cuts short while they are served: noticed before they are read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ccal.serve.cached_reader import FileSizes
from tests.cli.conftest import environment
from tests.serve.conftest import open_collection
from tests.serve.live import Live


def test_only_what_shrinks_in_place_is_told(tmp_path: Path) -> None:
    for name in ("a.npy", "b.npy", "c.txt"):
        (tmp_path / name).write_bytes(bytes(100))
    sizes = FileSizes(tmp_path, lambda name: name.endswith(".npy"))
    (tmp_path / "new").write_bytes(bytes(10))
    os.replace(tmp_path / "new", tmp_path / "a.npy")
    os.truncate(tmp_path / "c.txt", 1)
    with (tmp_path / "b.npy").open("ab") as file:
        file.write(b"more")
    (tmp_path / "d.npy").write_bytes(bytes(5))
    assert sizes.cut() == []
    os.truncate(tmp_path / "b.npy", 103)
    os.truncate(tmp_path / "d.npy", 0)
    assert sizes.cut() == ["b.npy", "d.npy"]
    assert sizes.cut() == []
    shutil.rmtree(tmp_path)
    assert sizes.cut() == []


@pytest.mark.filterwarnings("ignore:.*was missing or damaged")
def test_an_index_is_mended(photos: Path, tmp_path: Path) -> None:
    shutil.copytree(photos, tmp_path / "copy")
    folder = tmp_path / "copy" / "photos.index"
    server = Live(open_collection(tmp_path / "copy"))
    with server.client() as client:
        asked = {"text": "a red square", "k": 5}
        before = client.post("/api/search", json=asked).json()["results"]
        sizes = {path.name: path.stat().st_size for path in folder.glob("segment-*")}
        assert sizes
        for name in sizes:
            os.truncate(folder / name, 4096)
        after = client.post("/api/search", json=asked)
        assert after.status_code == 200, after.text
        assert after.json()["results"] == before
        assert client.get("/ready").status_code == 200
    server.stop()
    # And whole for whoever comes next.
    assert sorted(path.stat().st_size for path in folder.glob("segment-*")) == sorted(
        sizes.values()
    )


def test_it_would_be_the_end(tmp_path: Path) -> None:
    """What all of this is for; if systems change, it can go."""
    code = """
        import mmap, os, sys
        with open(sys.argv[1], "w+b") as file:
            file.write(bytes(8192))
            file.flush()
            mapped = mmap.mmap(file.fileno(), 8192, mmap.MAP_PRIVATE)
            os.truncate(sys.argv[1], 0)
            mapped[5000]
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "file")]
    assert subprocess.run(command, env=environment(), check=False).returncode != 0
