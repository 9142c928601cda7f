"""The five commands of the README, run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import ROOT, environment

README = ROOT / "README.md"


def blocks() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", README.read_text(), flags=re.MULTILINE | re.DOTALL)


def test_the_readme_works(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, arguments in (("ccal", "-m ccal"), ("python", "")):
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        (tools / name).chmod(0o755)
    place = tmp_path / "place"
    place.mkdir()
    env = {**environment(), "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    found = blocks()
    commands = re.findall(r"^(?:.*\| )?ccal (\w+)", "\n".join(found), flags=re.MULTILINE)
    assert commands == ["train", "evaluate", "compare", "encode", "info"]
    for block in found:
        result = subprocess.run(
            ["bash", "-eu", "-c", block],
            cwd=place,
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert result.returncode == 0, f"{block}\n{result.stdout}\n{result.stderr}"
    assert {"pairs.csv", "photos.npy", "runs", "query.npy"} <= {p.name for p in place.iterdir()}
    assert (place / "runs/birds/report.html").is_file()
    assert (place / "runs/which/comparison.html").is_file()
