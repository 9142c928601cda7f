"""`ccal compare`: one table of methods and seeds, which a stop does not lose."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from pathlib import Path

import pytest

from ccal import runs
from ccal.data import Source
from ccal.errors import InputError
from ccal.training import Settings
from tests.cli.conftest import invoke

ARRAYS = ["--x", "image.npy", "--y", "text.npy"]
SMALL = [*ARRAYS, "--dim", "6", "--epochs", "2", "--batch-size", "96", "-o", "out", "-q"]
METHODS = ["linear", "dcca", "learned", "ccal", "refined"]


def test_one_table_and_a_run_for_each(files: Path) -> None:
    outcome = invoke("compare", *SMALL, "--methods", "linear,refined", "--seeds", "0,1")
    assert outcome.code == 0, outcome
    lines = outcome.out.splitlines()
    assert lines[0].split() == [
        "method",
        "direction",
        "MRR",
        "95%",
        "interval",
        "seeds",
        "R@1",
        "R@5",
        "R@10",
        "MR",
        "better",
        "than",
    ]
    assert len([line for line in lines[:5] if "image -> text" in line]) == 2
    assert ".." in lines[1]
    assert "too few for an interval" in outcome.out
    assert "image -> text: 24 queries, 24 candidates." in outcome.out
    assert len(outcome.out.split("Difference in MRR to the best method")[1].splitlines()) == 4
    content = json.loads(Path("out/comparison.json").read_text())
    rows = content["rows"]
    assert len(content["data_sha256"]) == 64
    assert [(t["direction"], t["one"], t["other"]) for t in content["tests"]] == [
        ("image -> text", "linear", "refined"),
        ("text -> image", "linear", "refined"),
    ]
    assert len(rows) == 4
    assert all(row["seeds"] == 2 and row["half"] >= 0 for row in rows)
    table = list(csv.DictReader(Path("out/comparison.csv").read_text().splitlines()))
    assert [float(row["mrr"]) for row in table] == [row["mrr"] for row in rows]
    page = Path("out/comparison.html").read_text()
    assert "refined" in page
    assert "p (Holm)" in page
    assert "Difference in MRR to the best method, with its 95% interval" in page
    assert Path("out/plots/comparison.png").is_file()
    assert Path("out/refined-1/model/config.json").is_file()


def test_without_matplotlib_no_page_is_promised(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [*SMALL[:-1], "--methods", "linear", "--seeds", "0"]
    with monkeypatch.context() as without:
        for name in [name for name in sys.modules if name.startswith("matplotlib")]:
            without.delitem(sys.modules, name)
        without.setitem(sys.modules, "matplotlib", None)
        outcome = invoke("compare", *options)
    assert outcome.code == 0, outcome
    assert "no page was written. Plotting needs the package matplotlib" in outcome.err
    assert "pip install '.[plots]'" in outcome.err
    assert outcome.err.splitlines()[-1] == "Wrote out."
    assert not Path("out/comparison.html").exists()
    outcome = invoke("compare", *options)
    assert outcome.err.splitlines()[-1] == "Wrote out. Look at out/comparison.html"
    assert Path("out/comparison.html").is_file()


def test_every_method_has_its_run(files: Path) -> None:
    outcome = invoke("compare", *SMALL, "--seeds", "3", "--no-report")
    assert outcome.code == 0, outcome
    assert [line.split()[0] for line in outcome.out.splitlines()[1:11:2]] == METHODS
    assert sorted(path.name for path in Path("out").iterdir() if path.is_dir()) == sorted(
        f"{method}-3" for method in METHODS
    )
    assert not list(Path("out").rglob("*.html"))


def test_finished_runs_are_not_repeated(files: Path) -> None:
    first = invoke("compare", *SMALL, "--methods", "linear,ccal", "--seeds", "0", "--no-report")
    assert first.code == 0, first
    before = {path: path.stat().st_mtime_ns for path in Path("out").glob("*/evaluation.json")}
    shutil.rmtree("out/linear-0")  # as if it had been stopped before this run
    Path("out/comparison.json").unlink()
    again = invoke("compare", *SMALL, "--methods", "linear,ccal", "--seeds", "0", "--no-report")
    assert again.out == first.out
    kept = Path("out/ccal-0/evaluation.json")
    assert kept.stat().st_mtime_ns == before[kept]
    assert Path("out/comparison.json").is_file()


def test_other_settings_in_the_same_folder_are_refused(files: Path) -> None:
    one = ["--methods", "linear", "--seeds", "0", "--no-report"]
    assert invoke("compare", *SMALL, *one).code == 0
    outcome = invoke("compare", *SMALL, *one, "--set", "ridge=0.5")
    assert outcome.code == 2
    assert "ridge was 0.001, now it is 0.5" in outcome.err
    outcome = invoke("compare", *SMALL, *one, "--split-seed", "3")
    assert outcome.code == 2
    assert "The split of the data has changed" in outcome.err


def test_a_refused_comparison_can_be_corrected(files: Path) -> None:
    Path("rare.csv").write_text("\n".join(["words", *(f"word{i}" for i in range(240))]) + "\n")
    command = ["rare.csv", "--x", "image=image.npy", "--y", "text=words", *SMALL[4:]]
    for name, more in (("train", []), ("compare", ["--methods", "linear", "--seeds", "0"])):
        options = [name, *command, *more, "--no-report", "-o", name]
        refused = invoke(*options)
        assert refused.code == 2
        assert "lower min_count. Here: --set min_count=1" in refused.err
        outcome = invoke(*options, "--set", "min_count=1")
        assert outcome.code == 0, outcome


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--methods", "linear,magic"], "--methods: there is no 'magic'; there are refined,"),
        (["--methods", ","], "--methods is empty"),
        (["--seeds", "0,one"], "--seeds takes whole numbers such as 0,1,2; got '0,one'"),
        (["--seeds", "-1"], "--seeds takes whole numbers"),
        (["-o", "."], "which is of no comparison"),
        (["-o", "pairs.csv"], "pairs.csv is a file"),
    ],
)
def test_bad_input(options: list[str], message: str, files: Path) -> None:
    outcome = invoke("compare", *SMALL, *options)
    assert outcome.code == 2
    assert message in outcome.err
    assert not Path("out").exists()


def test_a_comparison_is_no_run(files: Path) -> None:
    assert invoke("compare", *SMALL, "--methods", "linear", "--seeds", "0", "--no-report").code == 0
    outcome = invoke("info", "out")
    assert outcome.code == 2
    assert "It holds linear-0." in outcome.err


def test_a_preset_holds_for_each_method(files: Path) -> None:
    """Flickr30k has another learning rate with learned projections."""
    small = [*ARRAYS, "--dim", "6", "--epochs", "1", "--batch-size", "96", "-o", "out", "-q"]
    preset = ["--preset", "flickr30k", "--set", "hidden_y=[8]", "--no-report"]
    outcome = invoke("compare", *small, *preset, "--methods", "ccal,learned", "--seeds", "0")
    assert outcome.code == 0, outcome
    rates = [runs.load(f"out/{m}-0").settings.learning_rate for m in ("ccal", "learned")]
    assert rates == [2e-3, 1e-3]
    with pytest.raises(InputError, match="settings has none for 'learned'; it has linear"):
        runs.compare(
            Source(x="image.npy", y="text.npy"), {"linear": Settings()}, methods=["learned"]
        )
