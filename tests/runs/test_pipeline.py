"""`ccal.runs` from Python: what the commands do, with every item embedded once."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ccal
from ccal import runs
from ccal.data import Source
from ccal.errors import InputError
from ccal.features import TfidfVectoriser
from ccal.model import DualEncoder
from ccal.training import Settings
from ccal.training.progress import Record
from tests.cli.conftest import invoke, make_files

SETTINGS = Settings.preset("default", max_epochs=2, batch_size=100)


def table(folder: Path, **more: Any) -> Source:
    """Two captions a photo in pairs.csv, and the features of the photos."""
    image = np.load(folder / "image.npy")
    np.save(folder / "photos.npy", np.repeat(image[::2], 2, axis=0))
    return Source(
        table=str(folder / "pairs.csv"),
        x=f"image={folder}/photos.npy",
        y="text=caption",
        group="photo",
        folder=str(folder),
        **more,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("pairs")
    make_files(place)
    return place


class Told:
    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.closed = False

    def add(self, record: Record) -> None:
        self.epochs.append(record["epoch"])

    def close(self) -> None:
        self.closed = True


def test_python_and_command_line_give_the_same_run(folder: Path) -> None:
    notes: list[str] = []
    source = Source(x="image.npy", y="text.npy", folder=str(folder))
    told = Told()
    run = ccal.runs.train(
        source,
        SETTINGS,
        folder / "python",
        report=False,
        callbacks=[told],
        progress=False,
        note=notes.append,
    )
    assert told.epochs == [record["epoch"] for record in run.metrics()]
    assert told.closed
    plan = dict(re.split(r"  +", line, maxsplit=1) for line in notes)
    assert plan["Pairs"] == "240 of image and text, from image.npy and text.npy"
    assert plan["Split"] == "192 to train on, 24 to validate, 24 to test; at random"
    assert plan["Features"] == "image: 20 numbers each, as given; text: 16 numbers each, as given"
    assert plan["Results"] == str(folder / "python")
    assert {"Method", "Time"} < set(plan)
    options = ["--epochs", 2, "--batch-size", 100, "-q", "--no-report"]
    files = ["--x", folder / "image.npy", "--y", folder / "text.npy"]
    outcome = invoke("train", *files, "-o", folder / "command", *options)
    assert outcome.code == 0, outcome
    command = runs.load(folder / "command")
    assert outcome.out == f"{run.result}\n"
    left_out = ("facts",)
    one, two = (
        {k: v for k, v in r.evaluation().items() if k not in left_out} for r in (run, command)
    )
    assert one == two
    assert {p.name for p in run.path.iterdir()} == {p.name for p in command.path.iterdir()}
    assert runs.load(run.path) == run
    found = runs.evaluate(run)
    assert run.result is not None
    assert found.report == run.result.report
    assert runs.train(folder=run.path, resume=True).result is None


def train_in_a_group(rank: int, folder: Path) -> dict[str, Any]:
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2")
    source = Source(x="image.npy", y="text.npy", folder=str(folder))
    settings = Settings(method="learned", max_epochs=1, batch_size=100, train_on_all=False)
    run = runs.train(source, settings, folder / "group", report=False, progress=False)
    return {
        "measured": run.result is not None,
        "group": torch.distributed.is_initialized(),
        "loss": run.metrics()[-1]["loss"],
    }


def test_a_process_group_that_exists_is_used_and_stays(
    folder: Path, on_two_ranks: Callable[..., list[Any]]
) -> None:
    first, second = on_two_ranks(train_in_a_group, folder)
    assert first == {**second, "measured": True}
    assert not second["measured"], "only rank 0 measures"
    assert first["group"]


class Calls:
    """How many items go through front end and towers, by name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.texts: Counter[str] = Counter()
        self.rows: Counter[str] = Counter()
        words, encode = TfidfVectoriser.words, DualEncoder.encode

        def counted_words(this: TfidfVectoriser, text: str) -> list[str]:
            self.texts[text] += 1
            return words(this, text)

        def counted_encode(this: DualEncoder, modality: str, data: Any, **more: Any) -> Any:
            self.rows[modality] += len(data)
            return encode(this, modality, data, **more)

        monkeypatch.setattr(TfidfVectoriser, "words", counted_words)
        monkeypatch.setattr(DualEncoder, "encode", counted_encode)


def unique_texts(folder: Path) -> Source:
    """The same table with texts that are all different, so that each can be counted."""
    lines = (folder / "pairs.csv").read_text().splitlines()
    head, *rows = lines
    text = "\n".join([head, *(f"number{i} {row}" for i, row in enumerate(rows))]) + "\n"
    (folder / "numbered.csv").write_text(text)
    return replace(table(folder, label="kind"), table=str(folder / "numbered.csv"))


def test_every_text_goes_through_the_front_end_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, calls = unique_texts(folder), Calls(monkeypatch)
    run = runs.train(source, SETTINGS.changed(method="linear"), folder / "once", progress=False)
    assert (run.path / "report.html").is_file()
    assert len(calls.texts) == 240
    assert set(calls.texts.values()) == {1}
    # The test pairs, with a shared photo once, and the training pairs for correlations.
    calls.texts.clear()
    calls.rows.clear()
    found = runs.evaluate(run)
    found.export_trec(folder / "trec")
    counts = run.found
    assert set(calls.texts.values()) == {1}
    assert sum(calls.texts.values()) == counts["train"] + counts["test"]
    assert calls.rows == {
        "text": counts["train"] + counts["test"],
        "image": counts["train"] + counts["test"] // 2,
    }
    assert found.classes is not None


def test_compare_from_python(folder: Path) -> None:
    notes: list[str] = []
    options: dict[str, Any] = {"folder": folder / "which", "progress": False, "report": False}
    methods = ["linear", "learned"]
    source = table(folder, label="kind")
    first = runs.compare(
        source, SETTINGS, methods=methods, seeds=range(2), note=notes.append, **options
    )
    assert [note for note in notes if "seed" in note][-1] == "learned, seed 1 (run 4 of 4)"
    assert [(row.method, row.seeds) for row in first.rows[::2]] == [("linear", 2), ("learned", 2)]
    assert {test.measure for test in first.tests} == {"MRR", f"AP@{first.rows[1].k}"}
    before = (folder / "which/learned-1/evaluation.json").stat().st_mtime_ns
    again = runs.compare(source, SETTINGS, methods=methods, seeds=range(2), **options)
    assert str(again) == str(first)
    assert (folder / "which/learned-1/evaluation.json").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ["magic"]}, "method must be one of 'refined', 'ccal'.*got method='magic'"),
        ({"seeds": [-1]}, "seed must be a whole number of at least 0, got seed=-1"),
        ({"methods": []}, "at least one method and one seed"),
    ],
)
def test_bad_comparisons(folder: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        runs.compare(table(folder), folder=folder / "never", **changes)
    assert not (folder / "never").exists()


def test_bad_arguments(folder: Path) -> None:
    with pytest.raises(InputError, match="train needs a source"):
        runs.train()
    with pytest.raises(InputError, match="resume needs the folder"):
        runs.train(resume=True)
    with pytest.raises(InputError, match="split must be one of None, 'test'"):
        runs.evaluate(folder, split="half")  # type: ignore[arg-type]


def test_submodules_are_attributes_of_the_package() -> None:
    assert ccal.runs is runs
    assert ccal.data.Source is Source
    assert callable(ccal.music.TuneLibrary)
    with pytest.raises(AttributeError, match="no attribute 'walks'"):
        _ = ccal.walks  # type: ignore[attr-defined]
