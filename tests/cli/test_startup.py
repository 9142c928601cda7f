"""A search loads what it needs: the model, its front ends and the backend of the index."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import SMALL, environment, invoke, make_files

# A search loaded 178 modules of ccal before its commands imported lazily.
MOST = 75
CODE = """
import atexit, sys
own = lambda: sorted(name for name in sys.modules if name.split(".")[0] == "ccal")
atexit.register(lambda: print(*own(), file=sys.stderr))
from ccal.cli import main
main()
"""


def modules(*arguments: object) -> tuple[str, set[str]]:
    """What a command prints, and the modules of ccal that are loaded when it ends."""
    command = [sys.executable, "-c", CODE, *map(str, arguments)]
    result = subprocess.run(
        command, capture_output=True, text=True, env=environment(), timeout=120, check=True
    )
    return result.stdout, set(result.stderr.splitlines()[-1].split())


def test_a_search_loads_few_modules(tmp_path: Path) -> None:
    make_files(tmp_path)
    columns = ["--x", f"image={tmp_path / 'image.npy'}", "--y", "text=caption"]
    run, index = tmp_path / "run", tmp_path / "photos.index"
    assert invoke("train", tmp_path / "pairs.csv", *columns, "-o", run, *SMALL).code == 0
    made = invoke("index", run, tmp_path / "image.npy", "-m", "image", "-o", index)
    assert made.code == 0, made
    out, loaded = modules("search", index, "red bird", "-k", 2)
    assert "image-" in out
    assert len(loaded) <= MOST, sorted(loaded)
    rooms = {name.split(".")[1] for name in loaded if "." in name}
    assert not rooms & {"data", "experiments", "losses", "music", "reports", "serve", "training"}
    assert {name for name in loaded if name.startswith("ccal.cli.")} == {
        "ccal.cli.app",
        "ccal.cli.console",
        "ccal.cli.options",
        "ccal.cli.search",
    }
