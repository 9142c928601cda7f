"""The commands of docs/retrieval.md, run as they stand there."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import torch

from ccal import DualEncoder
from ccal.encoders import DenseTower
from ccal.features import Backbone, ImageFeatures, TfidfVectoriser, register_backbone
from tests.cli.conftest import ROOT, Outcome, invoke

Image = pytest.importorskip("PIL.Image")

YEARS = {"yellow": 1985, "robin": 1990, "small": 2001}


def save_model(folder: str, seed: int) -> None:
    torch.manual_seed(seed)
    words = TfidfVectoriser(min_count=1, lemmatise=False).fit(["a small yellow bird"])
    DualEncoder(
        dim=3,
        projection="none",
        front_ends={"image": ImageFeatures("mean-colour"), "text": words},
        image=DenseTower(3, 3),
        text=DenseTower(len(words.vocabulary), 3),
    ).save(folder)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files as the guide names them; a backbone that sees colours stands for a large one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    register_backbone("mean-colour", lambda: Backbone(torch.nn.Identity().eval(), size=8))
    save_model("runs/first", 0)
    save_model("runs/second", 1)
    Path("photos").mkdir()
    lines = ["photo,year"]
    for number, (name, year) in enumerate(YEARS.items()):
        colour = (60 * number, 200 - 50 * number, 30)
        Image.new("RGB", (20, 20), colour).save(f"photos/{name}.jpg")
        lines.append(f"photos/{name}.jpg,{year}")
    Path("birds.csv").write_text("\n".join(lines) + "\n")
    Image.open("photos/robin.jpg").save("robin.jpg")
    return tmp_path


def test_the_guide_works(place: Path) -> None:
    text = (ROOT / "docs" / "retrieval.md").read_text()
    block = re.search(r"^```\n(ccal index.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    assert block is not None
    outcomes: list[Outcome] = []
    for line in block[1].splitlines():
        program, *arguments = shlex.split(line, comments=True)
        assert program == "ccal"
        outcomes.append(invoke(*arguments))
        assert outcomes[-1].code == 0, f"{line}\n{outcomes[-1]}"
    indexed, filtered, pictures, rebuilt = outcomes
    assert "holds 3 image" in indexed.err
    assert "1990" in filtered.out
    assert "2001" in filtered.out
    assert "1985" not in filtered.out
    hits = json.loads(pictures.out)["hits"]
    assert hits[0]["file"] == "photos/robin.jpg"
    assert "Embedded 3 items" in rebuilt.err
