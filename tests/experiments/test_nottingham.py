"""The paper's audio-sheet experiment in small: the same code on a handful of tunes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ccal.cli.app import app
from ccal.errors import InputError
from ccal.experiments import nottingham
from ccal.experiments.nottingham import Budget, comparison, nottingham_split, run_method
from ccal.music import SheetAudioPairs, SheetAudioStore


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Budget:
    monkeypatch.setattr(nottingham, "_SMALL_TUNES", 6)
    return Budget(max_epochs=2, batch_size=130, epoch_pairs=130, stride=2)


def test_a_method_is_trained_measured_and_kept(
    store: SheetAudioStore, small: Budget, tmp_path: Path
) -> None:
    found = {
        method: run_method(store, "nottingham-10pct", method, tmp_path, small, progress=False)
        for method in nottingham.METHODS
    }
    split = nottingham_split(store)
    test = SheetAudioPairs(store, split.test)
    for run in found.values():
        assert run["training tunes"] == 6
        assert run["candidates"] == len(test)
        assert run["data"] == store.manifest["hash"][:16]
        assert len(run["validation MRR"]) == run["epochs"] == 2
        assert 0 < run["sheet -> audio"]["mrr"] <= 100
        assert len(run["correlation"]["train"]) == 32
    again = run_method(store, "nottingham-10pct", "ccal", tmp_path, small, progress=False)
    assert again == found["ccal"] == json.loads((tmp_path / "ccal-0.json").read_text())
    assert nottingham.reproduce(store, "nottingham-10pct", tmp_path, small) == found
    with pytest.raises(InputError, match=r"another budget \(margin"):
        run_method(store, "nottingham-10pct", "ccal", tmp_path, replace(small, margin=1.0))
    table = comparison("nottingham-10pct", found)
    assert "| ccal, paper | 22.2 | 59.2 | 70.7 | 4.0 | 38.8 | 25.0 |" in table
    assert table.count("ours") == 3


def test_the_command_prints_the_table(
    store: SheetAudioStore, small: Budget, tmp_path: Path
) -> None:
    arguments = ["reproduce", "nottingham-10pct", str(store.folder), "-o", str(tmp_path)]
    options = ["--methods", "ccal", "--epochs", "1", "--batch-size", "130", "--stride", "2"]
    result = CliRunner().invoke(app, [*arguments, *options])
    assert result.exit_code == 0, result.output
    assert "ccal, ours" in result.output
    assert (tmp_path / "correlation.svg").read_text().count("<path") > 3
    for wrong in (["iapr"], ["nottingham", "--methods", "svm"]):
        result = CliRunner().invoke(
            app, ["reproduce", wrong[0], str(store.folder), "-o", str(tmp_path), *wrong[1:]]
        )
        assert result.exit_code != 0
        assert "must be one of" in result.output


def test_the_small_set_may_be_one_of_pairs(
    store: SheetAudioStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nottingham, "_SMALL_PAIRS", 100)
    budget = Budget(max_epochs=1, batch_size=130, stride=2, small="pairs")
    run = run_method(store, "nottingham-10pct", "learned", tmp_path, budget, progress=False)
    each = len(SheetAudioPairs(store, [0]))
    assert run["training pairs"] == run["training tunes"] * each
    assert 100 <= run["training pairs"] < 100 + each


def test_unknown_experiments_and_methods_are_refused() -> None:
    for experiment, methods in (("flowers", ["ccal"]), ("nottingham", ["svm"]), ("nottingham", [])):
        with pytest.raises(InputError, match=r"must be one of|no method"):
            nottingham.check_names(experiment, methods)
