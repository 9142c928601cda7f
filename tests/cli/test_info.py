"""`ccal info`: what a run is."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from ccal.runs.folder import stages
from tests.cli.conftest import invoke


def test_a_person_can_read_it(trained: Path) -> None:
    outcome = invoke("info", trained / "run")
    assert outcome.code == 0, outcome
    lines = dict(re.split(r"  +", line, maxsplit=1) for line in outcome.out.splitlines())
    assert lines["method"] == "refined, seed 0"
    assert lines["pairs"] == "240: 192 train, 24 valid, 24 test"
    assert "validation MRR" in lines["training"]
    assert "test MRR" in lines["image -> text"]
    assert "on test pairs" in lines["correlations"]
    assert "fine-tuning linear towers: 2 epochs" in lines["training"]
    assert "of 24 candidates" in lines["image -> text"]
    assert "ccal encode" in lines["next"]


def test_a_program_can_read_it(trained: Path) -> None:
    facts = json.loads(invoke("info", trained / "run", "--json").out)
    assert facts["finished"] is True
    assert facts["modalities"] == ["image", "text"]
    assert facts["evaluation"]["x_to_y"]["queries"] == 24
    records = [json.loads(line) for line in (trained / "run" / "metrics.jsonl").open()]
    assert set(facts["stages"]) == {record["stage"] for record in records}
    judged = [stage for stage in facts["stages"].values() if stage["measure"] == "MRR"]
    assert judged
    assert all(20 < stage["valid"] <= 100 for stage in judged)  # per cent, not shares


def test_features_behind_the_dimensions(trained: Path, tmp_path: Path) -> None:
    outcome = invoke("info", trained / "run", "--dimensions", "--first", 2)
    assert outcome.code == 0, outcome
    lines = outcome.out.splitlines()
    assert lines[0].startswith("Loadings of 192 training pairs")
    assert [line[:11] for line in lines if line.startswith("dimension")] == [
        *("dimension 1", "dimension 2")
    ]
    assert re.fullmatch(r"  image \+  feature \d+ 0\.\d\d, .*", lines[2])
    found = json.loads(invoke("info", trained / "run", "--dimensions", "--json").out)
    assert found["features"] == {"image": "numbers", "text": "numbers"}
    assert len(found["dimensions"]) == 5
    old = tmp_path / "old"
    shutil.copytree(trained / "run", old)
    (old / "dimensions.json").unlink()
    assert "trained by an earlier version" in invoke("info", old, "--dimensions").err


def test_stages() -> None:
    def record(stage: str, epoch: int, *mrr: float | None) -> dict[str, object]:
        return {"stage": stage, "epoch": epoch, "mrr_x_to_y": mrr[0], "mrr_y_to_x": mrr[1]}

    records = [record("a", i, share, share) for i, share in enumerate((0.2, 0.4, 0.4, 0.3))]
    counted = {"candidates_x_to_y": 9, "candidates_y_to_x": 5}
    records += [record("b", 1, 0.5, 0.7) | counted, record("all", 1, None, None)]
    assert stages(records) == {
        "a": {"epochs": 3, "best_epoch": 2, "measure": "MRR", "valid": 40.0, "candidates": None},
        "b": {"epochs": 1, "best_epoch": 1, "measure": "MRR", "valid": 60.0, "candidates": [9, 5]},
        "all": dict.fromkeys(("best_epoch", "measure", "valid", "candidates")) | {"epochs": 1},
    }


def test_average_precision_is_in_per_cent() -> None:
    (stage,) = stages([{"stage": "train", "epoch": 1, "score": 0.45}]).values()
    assert (stage["measure"], stage["valid"]) == ("AP@k", 45.0)


def test_a_name_that_is_almost_right(trained: Path) -> None:
    (trained / "rn").mkdir(exist_ok=True)
    outcome = invoke("info", trained / "rn")
    assert outcome.code == 2
    assert f"Did you mean {trained / 'run'}?" in outcome.err


@pytest.mark.parametrize("content", ["", "{}", "[]", None])
def test_a_damaged_model_is_named(content: str | None, trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "my run"
    shutil.copytree(trained / "run", run)
    assert f"ccal encode '{run}' text" in invoke("info", run).out
    config = run / "model" / "config.json"
    config.unlink() if content is None else config.write_text(content)
    outcome = invoke("info", run)
    assert outcome.code == 2
    assert f"error: The model in {str(run / 'model')!r} is damaged: " in outcome.err
