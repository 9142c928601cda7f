"""What an import loads: opening a model to search loads no training, reports or commands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fresh import loaded


def loaded_alone(code: str) -> set[str]:
    """Names of the modules that a process has after running some code, and nothing before it."""
    command = [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(result.stdout.split())


def test_the_package_alone_loads_no_torch() -> None:
    assert not {"torch", "numpy"} & loaded_alone("import ccal")


def test_the_package_is_enough_for_those_that_the_readme_names() -> None:
    named = re.findall(r"`ccal\.(\w+)`", (Path(__file__).parents[1] / "README.md").read_text())
    rooms = ["encoders", "losses", "training", "retrieval", "reports", "serve"]
    modules = loaded("import ccal; " + "; ".join(f"ccal.{name}" for name in [*named, *rooms]))
    assert {"ccal.data", "ccal.features", "ccal.runs", "ccal.serve"} <= modules


@pytest.mark.parametrize("module", ["ccal.model", "ccal.bundled", "ccal.retrieval"])
def test_opening_a_model_loads_no_training(module: str) -> None:
    rooms = {".".join(name.split(".")[:2]) for name in loaded(f"import {module}")}
    assert not rooms & {
        "ccal.training",
        "ccal.losses",
        "ccal.data",
        "ccal.reports",
        "ccal.runs",
        "ccal.serve",
        "ccal.cli",
    }


def test_loading_the_bundled_model_loads_no_training() -> None:
    modules = loaded("import ccal; ccal.pretrained('folk-tunes')")
    rooms = {".".join(name.split(".")[:2]) for name in modules}
    assert not rooms & {"ccal.training", "ccal.losses", "ccal.data", "ccal.reports", "ccal.cli"}
    assert not {"ccal.cca.linear", "ccal.features"} & modules
    assert not {"PIL", "scipy", "sklearn"} & modules


def test_settings_load_neither_torch_nor_the_loop() -> None:
    modules = loaded_alone("from ccal.training import Settings")
    assert not {"torch", "numpy", "ccal.training.loop"} & modules
