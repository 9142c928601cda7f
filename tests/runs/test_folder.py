"""The folder of a run: written whole, read back, and refused if it is not one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import ccal
from ccal.data import Source
from ccal.errors import InputError
from ccal.runs import Run
from ccal.runs.config import read_config
from ccal.training import Settings

FOUND = {
    "modalities": ["image", "text"],
    "pairs": 10,
    "train": 8,
    "valid": 1,
    "test": 1,
    "data_sha256": "a",
    "split_sha256": "b",
}
SOURCE = Source(x="image=a b.npy", y='text=say "hi".npy', folder="/some/where")
SETTINGS = Settings(method="ccal", hidden_y=(32, 16), ridge=1e-5, dim=8)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "deep" / "run", SETTINGS, SOURCE, FOUND)


def test_what_was_written_is_read(run: Run) -> None:
    read = Run.open(run.path, finished=False)
    assert read == run
    assert read.about["ccal"] == ccal.__version__


OLDER = """\
# Written by ccal. To repeat this run: ccal train --config run/config.toml

[run]
format = 1
ccal = "0.1.0"
torch = "2.9.1+cpu"
created = "2025-11-02T10:00:00+00:00"

[train]
method = "ccal"
dim = 8
hidden_x = []
hidden_y = [32, 16]
ridge = 1e-05

[data]
x = "image=a b.npy"
y = "text=say \\"hi\\".npy"
folder = "/some/where"
captions = "separate"
valid = 0.1
test = 0.1
split_seed = 0
skip_bad_rows = false

[found]
modalities = ["image", "text"]
pairs = 10
train = 8
valid = 1
test = 1
data_sha256 = "a"
split_sha256 = "b"
"""


def test_a_folder_of_an_earlier_version_opens(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(OLDER)
    run = Run.open(tmp_path, finished=False)
    assert (run.settings, run.found) == (SETTINGS, FOUND)
    # Rows of one photo were split apart then, and the split must stay what it was.
    assert run.source == replace(SOURCE, allow_leaks=True)
    assert read_config(tmp_path / "config.toml")[1]["allow_leaks"] is True
    assert "allow_leaks" not in read_config(_of_a_person(tmp_path))[1]


def _of_a_person(folder: Path) -> Path:
    path = folder / "mine.toml"
    path.write_text('[data]\nx = "a.npy"\n')
    return path


def test_finished_is_said_last(run: Run) -> None:
    assert not run.finished
    with pytest.raises(InputError, match="has not finished; continue it with: ccal train --resume"):
        Run.open(run.path)
    run.model_folder.mkdir()
    assert not run.finished
    run.finish({"part": "test"})
    assert Run.open(run.path).evaluation() == {
        "part": "test",
        "data_sha256": "a",
        "split_sha256": "b",
    }


def test_nothing_is_overwritten(run: Run) -> None:
    before = (run.path / "config.toml").read_bytes()
    (run.path / "metrics.jsonl").touch()
    with pytest.raises(InputError, match="is not empty; continue it with --resume"):
        Run.create(run.path, Settings(), SOURCE, FOUND)
    assert (run.path / "config.toml").read_bytes() == before


def test_a_run_that_never_began_is_no_hindrance(run: Run) -> None:
    again = Run.create(run.path, Settings(min_count=1), SOURCE, FOUND)
    assert Run.open(again.path, finished=False).settings.min_count == 1


def test_a_config_that_a_person_wrote_is_kept(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[train]\ndim = 8\n")
    with pytest.raises(InputError, match="is not empty; name another folder"):
        Run.create(tmp_path, SETTINGS, SOURCE, FOUND)


def test_paths_in_commands_are_quoted(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "my run", SETTINGS, SOURCE, FOUND)
    with pytest.raises(InputError, match=r"--resume -o '.*my run'$"):
        Run.open(run.path)


def test_what_a_killed_process_left_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / ".config.toml.x3").touch()
    assert Run.create(tmp_path, SETTINGS, SOURCE, FOUND).path == tmp_path


def test_metrics_without_the_half_line_of_a_killed_process(run: Run) -> None:
    assert run.metrics() == []
    path = run.path / "metrics.jsonl"
    path.write_text('{"epoch": 1}\n{"epoch": 2}\n{"epo')
    assert run.metrics() == [{"epoch": 1}, {"epoch": 2}]
    path.write_text('{"epoch": 1}\n{"epo\n{"epoch": 3}\n')
    with pytest.raises(InputError, match="line 2 is not JSON"):
        run.metrics()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("format = 1", "format = 7", "has format 7; this version reads 1"),
        ("[found]", "[lost]", r"not of a run: no table \[found\]"),
        ('method = "ccal"', 'method = "magic"', "config.toml: method must be one of"),
        ("dim = 8", "dimm = 8", "config.toml: There is no setting 'dimm'; did you mean 'dim'"),
        ("valid = 0.1", 'valid = "x"', "config.toml: valid must be a finite number"),
        ("[train]", "[train", "not a readable TOML file"),
    ],
)
def test_damage_is_named(run: Run, old: str, new: str, message: str) -> None:
    path = run.path / "config.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match=message):
        Run.open(run.path, finished=False)


def test_changed_data_and_split(run: Run) -> None:
    run.check_unchanged(FOUND)
    with pytest.raises(InputError, match="The data have changed"):
        run.check_unchanged({**FOUND, "data_sha256": "other"})
    for allow_leaks, ending in ((False, r"was trained\."), (True, "with leaks .--allow-leaks.")):
        other = replace(run, source=replace(SOURCE, allow_leaks=allow_leaks))
        with pytest.raises(InputError, match=f"The split of the data has changed .*{ending}"):
            other.check_unchanged({**FOUND, "split_sha256": "other"})


def test_files_of_a_finished_run_are_compared_with_their_hashes(run: Run) -> None:
    metrics = run.path / "metrics.jsonl"
    metrics.write_text('{"epoch": 1, "mrr_x_to_y": 0.25}\n')
    run.model_folder.mkdir()
    run.finish({"mrr": 0.5})
    assert Run.open(run.path).metrics()[0]["mrr_x_to_y"] == 0.25
    assert run.evaluation() == {"data_sha256": "a", "split_sha256": "b", "mrr": 0.5}
    metrics.write_text(metrics.read_text().replace("0.25", "0.75"))
    with pytest.raises(InputError, match=r"metrics\.jsonl is missing or has changed"):
        run.metrics()
    config = run.path / "config.toml"
    config.write_text(config.read_text().replace("dim = 8", "dim = 9"))
    with pytest.warns(UserWarning, match=r"config\.toml has changed since the run finished"):
        Run.open(run.path)
    evaluation = run.path / "evaluation.json"
    evaluation.write_text(evaluation.read_text().replace("0.5", "0.6"))
    with pytest.raises(InputError, match=r"evaluation\.json: not readable .*SHA-256"):
        run.evaluation()


@pytest.mark.parametrize("content", ["", "[1]", "{"])
def test_a_broken_evaluation_is_named(run: Run, content: str) -> None:
    (run.path / "evaluation.json").write_text(content)
    with pytest.raises(InputError, match=r"evaluation\.json"):
        run.evaluation()
