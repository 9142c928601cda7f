"""The notebooks: small, with the outputs of a run from top to bottom; run by `make adapters`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def read(path: Path) -> list[dict[str, Any]]:
    """The cells."""
    return list(json.loads(path.read_text())["cells"])


def outputs(cells: list[dict[str, Any]]) -> list[list[str]]:
    """What kind of output each cell of code has."""
    return [
        [output.get("name", output["output_type"]) for output in cell["outputs"]]
        for cell in cells
        if cell["cell_type"] == "code"
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_outputs_and_is_small(path: Path) -> None:
    cells = read(path)
    assert cells[0]["cell_type"] == "markdown"
    found = outputs(cells)
    assert any("display_data" in kinds for kinds in found)
    assert not {"stderr", "error"} & {kind for kinds in found for kind in kinds}
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert path.stat().st_size < 350_000
    assert "/tmp/" not in path.read_text()


def test_the_site_shows_every_notebook() -> None:
    menu = (FOLDER.parents[1] / "mkdocs.yml").read_text()
    shown = re.findall(r"notebooks/(\S+)\.md$", menu, flags=re.MULTILINE)
    assert sorted(shown) == [path.stem for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path: Path) -> None:
    client = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = pytest.importorskip("nbformat").read(path, as_version=4)
    before = outputs(notebook.cells)
    resources = {"metadata": {"path": str(FOLDER)}}
    client.NotebookClient(notebook, timeout=900, resources=resources).execute()
    assert outputs(notebook.cells) == before
