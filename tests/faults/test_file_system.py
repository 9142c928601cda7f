"""A file system that fails at every operation: what is there afterwards is the old or the new."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ccal.errors import CcalError, InputError
from ccal.retrieval.backends.folder import compaction
from tests.cli.conftest import environment
from tests.faults.cases import CASES, MODES

SEED = int(os.environ.get("FAULT_SEED", "0"))
Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Lets a process act on a failing file system."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("the shim needs Linux and a C compiler")
    shim = tmp_path_factory.mktemp("shim") / "shim.so"
    source = Path(__file__).with_name("shim.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", shim, source, "-ldl"], check=True)
    with subprocess.Popen(
        [sys.executable, "-m", "tests.faults.cases"],
        env={**environment(), "LD_PRELOAD": str(shim)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:

        def ask(case: str, folder: Path, at: int = 0, mode: int = 0, log: str = "") -> Any:
            assert process.stdin is not None
            assert process.stdout is not None
            order = {"case": case, "folder": str(folder), "at": at, "mode": mode, "log": log}
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield ask
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "TAIL", 8)


def look(case: str, folder: Path) -> Any:
    """What is there, None if nothing is; anything else is an error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return CASES[case].look(folder)
    except InputError as error:
        said = str(error)
        assert re.search(r"half-written|no index|no model|missing|no such", said.lower()), said
        return None


def files(folder: Path) -> list[str]:
    """Names of all files, without hashes and random parts."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(re.sub(r"[0-9a-f]{12,}", "#", name) for name in found)


def try_all(case: str, ask: Ask, folder: Path, most: int | None = None) -> dict[str, int]:
    """Fail at every operation in every way, or at `most` of them; how the outcomes were."""
    template, clean = folder / "template", folder / "clean"
    template.mkdir()
    CASES[case].prepare(template)
    shutil.copytree(template, clean)
    outcome = ask(case, clean, log=str(folder / "log"))
    assert outcome["error"] is None, outcome
    check_order((folder / "log").read_text(), clean)
    old, new = look(case, template), look(case, clean)
    CASES[case].repeat(clean)
    tidy = files(clean)
    moments = [(at, mode) for at in range(1, outcome["count"] + 1) for mode in range(len(MODES))]
    if most is not None:
        moments = random.Random(f"{SEED}{case}").sample(moments, min(most, len(moments)))
    counts = {"old": 0, "new": 0}
    for at, mode in moments:
        what = f"{case}: operation {at} of {outcome['count']} failed, {MODES[mode]}"
        place = folder / "place"
        shutil.copytree(template, place)
        ended = ask(case, place, at, mode)
        # Training writes as often as it has time for, so that the moment may not have come.
        came = ended.get("count", at) >= at
        assert ended["code"] == (-9 if MODES[mode] == "kill" and came else 0), f"{what}: {ended}"
        assert ended.get("expected", True), f"{what}: {ended}"
        try:
            found = look(case, place)
        except CcalError as error:
            raise AssertionError(what) from error
        assert found in (old, new), what
        if ended["code"] == 0 and ended["error"] is None:
            assert found == new, f"{what}: it was said to have happened"
        counts["new" if found == new else "old"] += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            CASES[case].repeat(place)
        assert look(case, place) == new, f"{what}, and was repeated"
        # How many segments there are depends on what failed.
        left = {name for name in files(place) if "segment-" not in name} - set(tidy)
        assert not left, f"{what}: {left} is left"
        unlisted = CASES[case].unlisted(place)
        assert not unlisted, f"{what}: {unlisted} is left after another change"
        shutil.rmtree(place)
    return counts


def check_order(log: str, folder: Path) -> None:
    """Files are on disk before they get their names, and names before the work is done."""
    unsynced: set[str] = set()
    renamed: set[str] = set()
    for line in log.splitlines():
        what, path, other = line.split("\t")
        if "sqlite" in path:
            continue
        if what == "write":
            unsynced.add(path)
        elif what == "sync":
            unsynced.discard(path)
            renamed = {name for name in renamed if str(Path(name).parent) != path}
        elif what == "rename":
            assert path not in unsynced, f"{path} got its name before it was on disk"
            renamed.add(other)
        elif what == "unlink":
            unsynced.discard(path)
    renamed = {name for name in renamed if not name.endswith(".jsonl")}
    assert not renamed, f"the names {renamed} are not on disk"
    left = {name for name in unsynced if not name.endswith((".lock", ".jsonl"))}
    assert not left, f"{left} are not on disk"


@pytest.mark.parametrize("case", ["model", "arrays", "growing index"])
def test_some_failures_leave_the_old_or_the_new(case: str, ask: Ask, tmp_path: Path) -> None:
    try_all(case, ask, tmp_path, most=5)


@pytest.mark.faults
@pytest.mark.parametrize("case", list(CASES))
def test_every_failure_leaves_the_old_or_the_new(case: str, ask: Ask, tmp_path: Path) -> None:
    # Training takes seconds each time.
    counts = try_all(case, ask, tmp_path, most=12 if case == "checkpoints" else None)
    print(case, counts)
    assert case == "checkpoints" or min(counts.values())
