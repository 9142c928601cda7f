"""Bytes that change in the files of a folder: every answer is right, or an error names the file."""

from __future__ import annotations

import os
import random
import shutil
import signal
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ccal import DualEncoder
from ccal.errors import CcalError
from ccal.retrieval import Index
from tests.retrieval.backends.test_kill import CONTEXT
from tests.retrieval.conftest import DIM, rows


def answers(location: Path) -> dict[str, Any]:
    """All that an index can be asked."""
    with Index.open(location) as index:
        ids, queries = index.ids(), rows(2, seed=5, width=DIM)
        found: dict[str, Any] = {
            "ids": ids,
            "items": index.get(ids),
            "vectors": index.vectors(ids[::-1]).tolist(),
            "count": index.count(),
            "all": [list(hits) for hits in index.search_vectors(queries, k=100)],
        }
        for name in ("colour", "n"):
            where: dict[str, Any] = {name: "red"} if name == "colour" else {name: [3, 9]}
            found[name] = [list(hits) for hits in index.search_vectors(queries, k=9, where=where)]
        # The second search of a process sees what the first has read.
        index.check()
        assert found["all"] == [list(hits) for hits in index.search_vectors(queries, k=100)]
        return found


@pytest.fixture(scope="module")
def original(model: DualEncoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with items in segments and outside, removed and changed ones."""
    location = tmp_path_factory.mktemp("original") / "index"
    facts = [{"colour": "red" if n % 3 else "blue", "n": n} for n in range(40)]
    files = [f"pictures/{n}.png" for n in range(40)]
    index = Index.build(
        location, model, rows(40), modality="image", metadata=facts, files=files, model_folder="run"
    )
    with index:
        index.add("text", rows(9, seed=1), metadata=[{"colour": "red", "n": n} for n in range(9)])
        index.remove(["image-4", "text-42"])
        index.update(["image-5", "image-6"], metadata=[{"n": 3}, {"n": "three"}])
        index.update(["image-7"], rows(1, seed=2))
    return location


def outcomes(original: Path, tmp_path: Path, seeds: range) -> dict[str, int]:
    """How often a changed byte gave right answers and errors; a wrong answer fails."""
    expected, counts = answers(original), {"right": 0, "named": 0}
    files = {path.name: path.read_bytes() for path in original.iterdir() if path.suffix != ".lock"}
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for seed in seeds:
        choice = random.Random(seed)
        for path in damaged.iterdir():
            path.unlink()
        for name, content in files.items():
            (damaged / name).write_bytes(content)
        name = "items.sqlite" if seed % 4 else choice.choice(sorted(files))
        changed = bytearray(files[name])
        # Most bytes of a database are free space, in which a change does nothing.
        used = [at for at, byte in enumerate(changed) if byte]
        at = choice.choice(used)
        changed[at] ^= choice.randrange(1, 256)
        (damaged / name).write_bytes(changed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = answers(damaged)
        except CcalError as error:
            counts["named"] += len(str(error).splitlines())
        else:
            assert found == expected, f"byte {at} of {name}, seed {seed}"
            counts["right"] += 1
    assert sum(counts.values()) == len(seeds)
    return counts


def test_a_changed_byte_never_changes_an_answer(original: Path, tmp_path: Path) -> None:
    assert outcomes(original, tmp_path, range(60))["named"] > 10


@pytest.mark.slow
def test_many_changed_bytes_never_change_an_answer(original: Path, tmp_path: Path) -> None:
    assert outcomes(original, tmp_path, range(1000, 3000))["named"] > 500


def add_and_die(location: str) -> None:
    with Index.open(location) as index:
        for number in range(12):
            index.add_vectors(
                "text", rows(2, seed=number, width=DIM), ids=[f"{number}a", f"{number}b"]
            )
        os.kill(os.getpid(), signal.SIGKILL)


def after_a_kill(original: Path, tmp_path: Path, seeds: range) -> Counter[str]:
    """How often a changed byte in the log of a killed process was named, or changed nothing."""
    location, counts = tmp_path / "killed", Counter[str]()
    shutil.copytree(original, location)
    writer = CONTEXT.Process(target=add_and_die, args=(str(location),))
    writer.start()
    writer.join()
    assert writer.exitcode == -signal.SIGKILL
    files = {path: path.read_bytes() for path in location.iterdir()}
    log = location / "items.sqlite-wal"
    assert len(files[log]) > 10_000
    expected = answers(location)
    assert len(expected["ids"]) == 47 + 24
    for seed in seeds:
        for path in location.iterdir():
            path.unlink()
        for path, content in files.items():
            path.write_bytes(content)
        choice, changed = random.Random(seed), bytearray(files[log])
        at = choice.randrange(len(changed))
        changed[at] ^= choice.randrange(1, 256)
        log.write_bytes(changed[:at] if seed % 5 == 0 else changed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = answers(location)
        except CcalError:
            counts["named"] += 1
        else:
            assert found == expected, f"byte {at} of the log, seed {seed}"
            counts["right"] += 1
    return counts


def test_lost_changes_are_noticed(original: Path, tmp_path: Path) -> None:
    assert after_a_kill(original, tmp_path, range(10))["named"] > 4


@pytest.mark.faults
def test_lost_changes_are_always_noticed(original: Path, tmp_path: Path) -> None:
    assert after_a_kill(original, tmp_path, range(100, 700))["named"] > 300
