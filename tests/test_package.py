"""Promises of the package as a whole."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ccal
import ccal.cca
import ccal.codes
import ccal.data
import ccal.encoders
import ccal.evaluation
import ccal.losses
import ccal.reports
import ccal.retrieval
import ccal.training
from tests.fresh import loaded

ROOT = Path(__file__).parents[1]


MODULES = [
    ccal,
    ccal.cca,
    ccal.codes,
    ccal.data,
    ccal.encoders,
    ccal.evaluation,
    ccal.losses,
    ccal.reports,
    ccal.retrieval,
    ccal.training,
]
PROJECT = """
import torch
from torch import Tensor, nn

import ccal


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.f, self.g = nn.Linear(20, 8), nn.Linear(30, 8)
        self.layer = ccal.CCALayer(8)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        xs, ys = self.layer(self.f(x), self.g(y))
        return xs, ys


def distance(x: Tensor, y: Tensor) -> float:
    loss: Tensor = ccal.PairwiseRankingLoss(margin=0.5)(*Network()(x, y))
    return loss.item()


def score(pairs: ccal.Pairs) -> float:
    model = ccal.train(ccal.Settings(max_epochs=2), pairs[:200], pairs[200:250]).model
    return ccal.evaluate(model, pairs[250:]).x_to_y.measures.mrr


def search(folder: str, query: str) -> list[str]:
    index = ccal.Index.open(folder, ccal.load("model"))
    return [hit.id for hit in index.search(text=query, k=10)]
"""
ALIASES = {"Ties", "Method", "METHODS", "PRESETS"}  # they have no docstring of their own


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_every_public_name_is_documented(module: object) -> None:
    for name in module.__all__:  # type: ignore[attr-defined]
        assert name in ALIASES or getattr(module, name).__doc__, name


@pytest.mark.parametrize("name", [n for n in ccal.__all__ if n.endswith(("Loss", "Layer", "CCA"))])
def test_every_public_class_shows_an_example(name: str) -> None:
    assert ">>>" in getattr(ccal, name).__doc__


def test_the_core_needs_torch_and_numpy_only() -> None:
    core = "import ccal.cca, ccal.losses, ccal.encoders, ccal.evaluation, ccal.training"
    others = {name.split(".")[0] for name in loaded(core) - loaded("pass")}
    assert not others - sys.stdlib_module_names - {"torch", "numpy", "ccal"}


def test_nothing_names_the_package_of_somebody_else() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("no git clone")
    wrong = re.compile(r"pip install\s+(-\S+\s+)*['\"]?ccal\b" + r"|\bccal" + r"\[[a-z]")
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".html", ".js", ".yml", ".yaml", ".cff", ""}:
            assert not wrong.search(path.read_text()), name


def test_every_extra_that_a_message_names_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    sources = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    named = set(re.findall(r'\bextra="(\w+)", purpose=', sources))
    named |= set(re.findall(r"install_command\('(\w+)'\)", sources))
    extras = project["optional-dependencies"]
    assert {"images", "music", "plots", "serve"} <= named <= set(extras)
    (everything,) = (entry for entry in extras["all"] if entry.startswith(project["name"]))
    # Ray is large, and for clusters only.
    for extra in set(extras) - {"all", "dev", "ray"}:
        assert extra in re.findall(r"\w+", everything), extra


@pytest.mark.slow
def test_a_typed_project_of_a_user_passes_mypy(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "project.py").write_text(PROJECT)
    command = [sys.executable, "-m", "mypy", "--strict", "project.py"]
    # Types come from the installed package, by py.typed, as for a user.
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
