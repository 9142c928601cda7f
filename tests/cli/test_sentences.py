"""TF-IDF joined with sentence embeddings: raw texts go in at every command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ccal.features import FeatureUnion
from ccal.runs import Run
from tests.cli.conftest import SMALL, invoke, make_files
from tests.features.tiny_bert import write_tiny_bert

pytest.importorskip("tokenizers", reason="needs the extra sentences")


@pytest.fixture
def joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a folder with a finished run of texts that went through two front ends."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    make_files(tmp_path)
    network = write_tiny_bert(tmp_path / "network")
    views = ["--x", "image=image.npy", "--y", "text=caption", "--method", "linear", "-o", "run"]
    more = ["--set", f"sentence_model={network}", "--set", "text=auto", "--no-report"]
    outcome = invoke("train", "pairs.csv", *views, *more)
    assert outcome.code == 0, outcome
    assert f"sentence embeddings by {network}" in outcome.err
    return tmp_path


def test_texts_go_in_at_every_command(joined: Path) -> None:
    model = Run.open(joined / "run").model()
    front_end = model.front_ends["text"]
    assert isinstance(front_end, FeatureUnion)
    assert (joined / "cache/ccal/texts/features.sqlite").is_file()
    Path("texts.txt").write_text("red bird\nblue dog runs\n")
    for command in (
        ("encode", "run", "text", "texts.txt", "-o", "out.npy"),
        ("evaluate", "run"),
        ("index", "run", "texts.txt", "-m", "text", "-o", "texts.index"),
        # No word of it is in the vocabulary of TF-IDF.
        ("search", "run", "a"),
    ):
        outcome = invoke(*command)
        assert outcome.code == 0, outcome
    expected = model.encode("text", ["red bird", "blue dog runs"]).numpy()
    np.testing.assert_allclose(np.load("out.npy"), expected, atol=1e-5)


def test_methods_are_compared_on_joined_features(joined: Path) -> None:
    columns = ["--x", "image=image.npy", "--y", "text=caption", "-o", "which", "--seeds", "0"]
    more = ["--set", f"sentence_model={joined / 'network'}", "--set", "text=tfidf+sentences"]
    outcome = invoke("compare", "pairs.csv", *columns, "--methods", "linear,learned", *SMALL, *more)
    assert outcome.code == 0, outcome
