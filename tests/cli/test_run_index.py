"""From a run on image files to its index, its search and its page."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from ccal.retrieval import Index
from ccal.retrieval.items import counterparts
from tests.cli.conftest import SMALL, environment, invoke, start

COLOURS = {"red": (200, 30, 30), "green": (30, 160, 40), "blue": (40, 50, 200), "grey": (9, 9, 9)}
NAMES = ("a/bild ü 1.JPG", "b/bild ü 1.JPG", "a/two.png")


def make_photos(folder: Path) -> None:
    """36 photos in two folders, in captions.csv (a row a caption) and captions.jsonl (lists)."""
    rows = []
    for number in range(36):
        front, back = (list(COLOURS)[n % 4] for n in (number, number // 4))
        file = folder / (NAMES[number] if number < 3 else f"b/{number}.jpg")
        file.parent.mkdir(exist_ok=True)
        picture = Image.new("RGB", (40, 30), COLOURS[back])
        picture.paste(COLOURS[front], (5 + number // 16 * 8, 8, 20 + number // 16 * 8, 22))
        picture.putpixel((number, 1), (255, 255, 255))  # no two are the same
        picture.save(file, quality=95)
        texts = [f"a {front} square on {back}", f"{front} on {back} number {number}"]
        rows.append({"photo": str(file.relative_to(folder)), "captions": texts})
    with (folder / "captions.jsonl").open("w") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows)
    with (folder / "captions.csv").open("w") as table:
        table.write("photo,caption\n")
        table.writelines(f'"{row["photo"]}",{text}\n' for row in rows for text in row["captions"])


VIEWS = ("--x", "photo=photo", "--y", "text=captions")


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos and a finished run of them, `run`; not to be changed."""
    folder = tmp_path_factory.mktemp("pictures")
    make_photos(folder)
    options = ["--method", "linear", "-o", folder / "run", *SMALL]
    outcome = invoke("train", folder / "captions.jsonl", *VIEWS, *options)
    assert outcome.code == 0, outcome
    return folder


def test_both_shapes_of_tables_give_the_same_index(pictures: Path, tmp_path: Path) -> None:
    own = invoke("index", pictures / "run", "-o", tmp_path / "own")
    assert own.code == 0, own
    assert "Added 88 items" in own.err
    table = [pictures / "captions.csv", "--x", "photo=photo", "--y", "text=caption"]
    assert invoke("index", pictures / "run", *table, "-o", tmp_path / "csv").code == 0
    with Index.open(tmp_path / "own") as one, Index.open(tmp_path / "csv") as other:
        assert one.get(one.ids()) == other.get(other.ids())
        assert one.ids("photo")[:3] == list(NAMES)
        photo, caption = one.get([NAMES[1], f"{NAMES[1]}#2"])
        assert photo.file == str(pictures / NAMES[1])
        assert counterparts(photo) == ([f"{NAMES[1]}#1", f"{NAMES[1]}#2"], 2)
        assert caption.metadata["text"] == "green on red number 1"
        # Sixteen pairs of colours, so that a caption is of several photos.
        assert counterparts(*one.get([f"{NAMES[0]}#1"]))[1] == 3
    again = invoke("index", pictures / "run", *table, "-o", tmp_path / "csv")
    assert again.code == 2
    assert "has an item 'a/bild ü 1.JPG' already" in again.err
    parts = ["--split", "test", "-m", "text", "-o", tmp_path / "some"]
    assert invoke("index", pictures / "run", *parts).code == 0
    with Index.open(tmp_path / "some") as some:
        assert 0 < some.count() == some.count("text") < 20


def test_a_column_of_lists_is_an_item_a_caption(pictures: Path, tmp_path: Path) -> None:
    columns = ["--column", "captions", "--id", "photo", "-m", "text", "-o", tmp_path / "texts"]
    outcome = invoke("index", pictures / "run", pictures / "captions.jsonl", *columns)
    assert outcome.code == 0, outcome
    with Index.open(tmp_path / "texts") as index:
        assert index.ids()[:2] == [f"{NAMES[0]}#1", f"{NAMES[0]}#2"]
        assert index.count() == 72


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["captions.jsonl"], "with --x and --y. Items of one modality"),
        (["captions.jsonl", *VIEWS, "--column", "captions"], "belong to an INPUT of one modality"),
        (["captions.jsonl", *VIEWS, "--split", "test"], "--split is for the run's own pairs"),
        (["captions.jsonl", "--x", "photo"], "--y missing"),
        (["captions.jsonl", "--x", "image=photo", "--y", "text=captions"], "no 'image'"),
        (["--rebuild", "--split", "test"], "keeps what the index holds"),
    ],
)
def test_wrong_options_are_explained(
    pictures: Path,
    tmp_path: Path,
    options: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(pictures)
    outcome = invoke("index", "run", *options, "-o", tmp_path / "new")
    assert outcome.code == 2
    assert message in " ".join(outcome.err.split())
    assert not (tmp_path / "new").exists()


def test_a_run_is_searched_by_its_own_items(pictures: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(pictures / "run", copy)
    first = invoke("search", copy, "a red square on blue", "-k", 3)
    assert first.code == 0, first
    assert "The first time" in first.err
    assert re.search(r"a \w+ square on \w+  \(and 1 more\)", first.out)
    assert "counterparts" not in first.out
    second = invoke("search", copy, pictures / NAMES[0], "-k", 2, "--json")
    assert second.code == 0, second
    assert second.err == ""
    assert len(json.loads(second.out)["hits"]) == 2
    assert "leave --model out" in invoke("search", copy, "red", "--model", copy).err
    # Another model in its place: the index is made again.
    options = ["--method", "linear", "--dim", "3", "-o", tmp_path / "other", *SMALL]
    assert invoke("train", pictures / "captions.jsonl", *VIEWS, *options).code == 0
    shutil.rmtree(copy / "model")
    shutil.copytree(tmp_path / "other" / "model", copy / "model")
    third = invoke("search", copy, "a red square", "-k", 1)
    assert "The first time" in third.err
    # Damage: everything can be made again.
    (copy / "index" / "items.sqlite").write_bytes(b"no database" * 100)
    assert invoke("search", copy, "a red square", "-k", 1).code == 0


def test_data_that_changed_or_moved_are_named(pictures: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    make_photos_run(pictures, folder)
    with (folder / "captions.jsonl").open("a") as lines:
        lines.write(json.dumps({"photo": NAMES[0], "captions": ["one more"]}) + "\n")
    changed = invoke("search", folder / "run", "red")
    assert changed.code == 2
    assert "are not what they were: The data have changed" in changed.err
    assert not (folder / "run" / "index").exists()
    (folder / NAMES[1]).unlink()
    missing = invoke("search", folder / "run", "red")
    assert "file not found" in missing.err
    (folder / "captions.jsonl").unlink()
    moved = invoke("index", folder / "run", "-o", tmp_path / "new")
    assert "no such file" in moved.err
    assert "Put the files back, or name the pairs to index" in " ".join(moved.err.split())


def make_photos_run(pictures: Path, folder: Path) -> None:
    """A copy of the photos, with a run of this copy."""
    shutil.copytree(pictures, folder, ignore=shutil.ignore_patterns("index"))
    config = folder / "run" / "config.toml"
    shutil.rmtree(folder / "run")
    options = ["--method", "linear", "-o", config.parent, *SMALL]
    assert invoke("train", folder / "captions.jsonl", *VIEWS, *options).code == 0


def wait_for_page(server: subprocess.Popen[str]) -> str:
    assert server.stderr is not None
    return next(found[0] for line in server.stderr if (found := re.search(r"http://\S+\d", line)))


def asked(address: str, path: str, body: Any = None) -> Any:
    """The answer of a server, as soon as it is ready."""
    for _ in range(600):
        sent = httpx.get(address + path) if body is None else httpx.post(address + path, json=body)
        if sent.status_code != 503:
            return sent.json()
        time.sleep(0.1)
    raise AssertionError(sent.text)


def test_serving_a_run_survives_a_kill(pictures: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(pictures / "run", copy, ignore=shutil.ignore_patterns("index"))
    # A build that was killed: a database without its last step.
    script = f"""
import os
from ccal.retrieval import run_index
from ccal.runs import Run
run = Run.open({str(copy)!r})
run_index.build_index(run, run.model(), progress=lambda done, total: done < total or os.abort())
"""
    killed = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGABRT, killed
    assert (copy / "index").is_dir()
    server = start("serve", copy, "--port", "0", "--no-open", cwd=tmp_path)
    try:
        address = wait_for_page(server)
        found = asked(address, "/api/search", {"text": "a red square on blue", "k": 2})
        assert [one["kind"] for one in found["results"]] == ["image"] * 2
        assert all(one["counterparts"] for one in found["results"])
        assert [m["count"] for m in asked(address, "/api/info")["modalities"]] == [36, 52]
    finally:
        server.send_signal(signal.SIGINT)
        _, err = server.communicate(timeout=30)
    assert "Stopped." in err


def test_a_run_on_arrays_is_served_by_rows(trained: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(trained / "run", copy)
    outcome = invoke("search", copy, "red bird")
    assert outcome.code == 2
    assert "neither modality of this model takes that: it was trained on arrays" in outcome.err
    outcome = invoke("search", copy, "--like", "image-3", "-k", 2, "--json")
    assert outcome.code == 0, outcome
    hit = json.loads(outcome.out)["hits"][0]
    assert hit["id"].startswith("text-")
    assert hit["file"] == f"{trained / 'text.npy'}#{hit['id'].removeprefix('text-')}"
    rows = np.load(trained / "image.npy")[:2]
    np.save(tmp_path / "query.npy", rows)
    assert invoke("search", copy, tmp_path / "query.npy", "-m", "image", "-k", 1).code == 0
    newer = invoke("index", copy, "--rebuild", "-o", copy / "index")
    assert newer.code == 0, newer


def test_a_run_that_cannot_be_written_to(pictures: Path, tmp_path: Path) -> None:
    shutil.copytree(pictures / "run", tmp_path / "run")
    (tmp_path / "run" / "index").write_text("a file")
    outcome = invoke("search", tmp_path / "run", "red")
    assert outcome.code == 2
    assert "is a file; an index needs a folder of its own" in outcome.err
