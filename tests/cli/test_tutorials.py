"""The commands of two tutorials, run as they stand there, with fewer pictures and methods."""

from __future__ import annotations

import json
import os
import re
import runpy
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, environment

TUTORIALS = [ROOT / "docs" / "tutorials" / f"{name}.md" for name in ("photos", "arrays")]


def blocks() -> list[str]:
    text = "".join(path.read_text() for path in TUTORIALS)
    return re.findall(r"^```sh\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.slow  # `make docs` runs it
def test_the_tutorials_work(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, arguments in (("ccal", "-m ccal"), ("python", "")):
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        (tools / name).chmod(0o755)
    place = tmp_path / "place"
    place.mkdir()
    (place / "examples").symlink_to(ROOT / "examples")
    env = {**environment(), "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    found = blocks()
    commands = re.findall(r"^ccal (\w+)", "\n".join(found), flags=re.MULTILINE)
    road = ["train", "evaluate", "search", "serve", "compare"]
    assert commands == [*road, "train", "encode", "info"]
    said = {}
    for block in found:
        # So that the test takes seconds.
        block = block.replace("--count 400", "--count 60").replace("linear,refined", "linear")
        if block.startswith("ccal serve"):
            check_page(block, place, env)
            continue
        result = subprocess.run(
            ["bash", "-eu", "-c", block],
            cwd=place,
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert result.returncode == 0, f"{block}\n{result.stdout}\n{result.stderr}"
        said[block.split()[1]] = result.stdout
    assert "boat" in said["search"]
    assert (place / "runs/pictures/report.html").is_file()
    assert (place / "runs/which/comparison.html").is_file()
    assert (place / "embedded.npy").is_file()


def test_the_same_seed_draws_the_same_pictures(tmp_path: Path) -> None:
    script = ROOT / "examples" / "draw_pictures.py"
    write = runpy.run_path(str(script))["write"]
    for name, seed in (("one", 0), ("two", 0), ("other", 1)):
        write(tmp_path / name, 4, seed)
    one, two, other = (
        {file.name: file.read_bytes() for file in (tmp_path / name).rglob("*.*")}
        for name in ("one", "two", "other")
    )
    assert one == two != other
    rows = [json.loads(line) for line in one["captions.jsonl"].splitlines()]
    assert [len(set(row["captions"])) for row in rows] == [5] * 4
    assert len(one["captions.csv"].splitlines()) == 21


def check_page(command: str, place: Path, env: dict[str, str]) -> None:
    """The server shows pictures with their captions."""
    options = [*command.split()[1:], "--port", "0", "--no-open"]
    server = subprocess.Popen(
        [sys.executable, "-m", "ccal", *options],
        cwd=place,
        env=env,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stderr is not None
        address = next(
            found[0] for line in server.stderr if (found := re.search(r"http://\S+/", line))
        )
        body = json.dumps({"text": "a red boat", "k": 3}).encode()
        request = urllib.request.Request(f"{address}api/search", body)
        with urllib.request.urlopen(request, timeout=60) as answer:
            results = json.load(answer)["results"]
        assert all(len(result["counterparts"]) == 5 for result in results)
        with urllib.request.urlopen(address.rstrip("/") + results[0]["media"]["thumbnail"]) as one:
            assert one.headers["content-type"] == "image/jpeg"
    finally:
        server.send_signal(signal.SIGINT)
        deadline = time.monotonic() + 20
        while server.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        server.kill()
        server.wait()
