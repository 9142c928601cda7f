"""Promises of the package as a whole."""

from __future__ import annotations

import subprocess
import sys
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


def test_losses_and_layer_import_one_way() -> None:
    for path in (ROOT / "src/ccal/cca").rglob("*.py"):
        assert "ccal.losses" not in path.read_text(), path


def test_help_does_not_wait_for_torch() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from ccal.cli.app import app;"
        "print(CliRunner().invoke(app, ['train', '--help']).exit_code, 'torch' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "0 False"
