"""Processes that are killed while they write: what was acknowledged is there, answers are right."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccal import DualEncoder, InputError
from ccal.retrieval import Index, IndexInUseError
from ccal.retrieval.backends import exists
from ccal.retrieval.backends.folder import compaction
from tests.retrieval.conftest import DIM, Place, assert_same, brute_force, rows

# Processes come from one that never spoke to a server: connections do not survive a fork.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.retrieval.backends.test_kill"])


def vector_of(id: str) -> Any:
    """The vector an item was last given, by its name."""
    return np.random.default_rng(list(id.encode())).normal(size=DIM)


def write(location: str, log: Path, seed: int) -> None:
    """Change the index until killed; a line in the log before and after every change."""
    compaction.TAIL = 50  # so that segments are written and merged all the time
    rng = random.Random(seed)
    with Index.open(location) as index, log.open("a") as file:
        known = index.ids()
        number = 0
        while True:
            if len(known) > 400 or (len(known) > 1 and rng.random() < 0.4):
                ids = rng.sample(known, min(len(known) // 2, rng.randint(1, 60)))
                action = "remove"
            else:
                ids = [f"{seed}.{number + n}" for n in range(rng.randint(1, 60))]
                number += len(ids)
                action = "add"
            file.write(f"begin {action} {','.join(ids)}\n")
            file.flush()
            if action == "add":
                index.add_vectors("image", [vector_of(id) for id in ids], ids=ids)
                known += ids
            else:
                index.remove(ids)
                known = [id for id in known if id not in set(ids)]
            file.write(f"done {action} {','.join(ids)}\n")
            file.flush()


def replay(log: Path) -> tuple[set[str], set[str] | None]:
    """What must be there, and what may be there if the last change got through."""
    sure: set[str] = set()
    perhaps = None
    for line in log.read_text().splitlines():
        stage, action, names = line.split(" ")
        ids = set(names.split(","))
        after = sure | ids if action == "add" else sure - ids
        sure, perhaps = (after, None) if stage == "done" else (sure, after)
    return sure, perhaps


def kill_once(location: str, folder: Path, seed: int, seconds: float, promises: set[str]) -> int:
    """One life of a writer; returns how many changes it was told are safe."""
    log = folder / f"{seed}.log"
    with Index.open(location) as index:
        before = index.ids()
    log.write_text(f"done add {','.join(before)}\n" if before else "")
    process = CONTEXT.Process(target=write, args=(location, log, seed))
    process.start()
    assert process.pid is not None
    while process.is_alive() and log.read_text().count("done") < 3:
        time.sleep(0.002)
    time.sleep(seconds)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    sure, perhaps = replay(log)
    with Index.open(location) as index:
        wait_for_the_lock(index)
        there = set(index.ids())
        if "whole changes" in promises:
            assert there in (sure, perhaps), (there ^ sure, perhaps and there ^ perhaps)
        else:
            # Of the last change, any part may have happened.
            other = sure if perhaps is None else perhaps
            assert sure & other <= there <= sure | other
        assert index.count() == len(there)
        ids = sorted(there)
        stored, expected = index.vectors(ids), np.array([vector_of(id) for id in ids])
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose(stored, expected, atol=1e-6)
        for query in rows(3, seed=seed, width=DIM):
            assert_same(index.search_vectors(query, k=20), brute_force(index, query, 20, ids))
        index.check()
    return log.read_text().count("done")


def wait_for_the_lock(index: Index) -> None:
    """A database takes a moment to notice that a client is gone; a folder does not."""
    for _ in range(500):
        try:
            return index.remove([])
        except IndexInUseError:
            time.sleep(0.01)
    raise AssertionError("the lock of a dead process is still there")


def rounds(model: DualEncoder, folder: Path, location: str, count: int, promises: set[str]) -> int:
    """Lives and deaths of writers; how many changes they were told are safe."""
    first = [vector_of("first")]
    with Index.build(location, model, rows(0), modality="image") as index:
        index.add_vectors("image", first, ids=["first"])
    rng = random.Random(count)
    return sum(
        kill_once(location, folder, seed, 0.15 * rng.random(), promises) for seed in range(count)
    )


def test_kills_during_add_and_remove(
    model: DualEncoder, tmp_path: Path, place: Place, promises: set[str]
) -> None:
    location = place()
    # A server takes longer than a folder, for the same number of ways to die.
    count = 4 if location.startswith("milvus") else 10
    assert rounds(model, tmp_path, location, count, promises) >= 3 * count


@pytest.mark.slow
def test_many_kills(model: DualEncoder, tmp_path: Path, place: Place, promises: set[str]) -> None:
    location = place()
    count = 40 if location.startswith("milvus") else 150
    assert rounds(model, tmp_path, location, count, promises) >= 3 * count


def build(location: Path, model: DualEncoder, begun: Any) -> None:
    begun.set()
    Index.build(location, model, rows(60_000), modality="image", batch_size=64)


def test_kills_while_building(model: DualEncoder, tmp_path: Path) -> None:
    rng = random.Random(0)
    for number in range(4):
        location, begun = tmp_path / str(number), CONTEXT.Event()
        process = CONTEXT.Process(target=build, args=(location, model, begun))
        process.start()
        begun.wait()
        time.sleep(0.02 + 0.3 * rng.random())
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        if exists(location):
            with Index.open(location) as index:
                assert index.count() == 60_000
            continue
        with pytest.raises(InputError, match=r"half-written|no index"):
            Index.open(location)
        with Index.build(location, model, rows(3), modality="image") as index:
            assert index.count() == 3


def add_slowly(location: str, model: DualEncoder, done: Any) -> None:
    """Add 20 chunks in one change, which takes seconds."""
    with Index.open(location, model) as index:
        index.add("image", rows(20 * 4096, seed=1), progress=lambda n, _: done.put(n))


@pytest.mark.parametrize("chunks", [1, 3])
def test_a_kill_within_one_change(
    model: DualEncoder, place: Place, chunks: int, promises: set[str]
) -> None:
    if "whole changes" not in promises:
        pytest.skip("this backend promises no whole changes; see test_milvus")
    location, done = place(), CONTEXT.Queue()
    before = [f"image-{n}" for n in range(1, 31)]
    vector = rows(1, seed=2, width=DIM)[0]
    with Index.build(location, model, rows(30), modality="image") as index:
        expected = index.search_vectors(vector, k=40)
    process = CONTEXT.Process(target=add_slowly, args=(location, model, done))
    process.start()
    with Index.open(location) as reader:
        while done.get(timeout=120) < chunks * 4096:
            assert reader.search_vectors(vector, k=40) == expected
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert reader.search_vectors(vector, k=40) == expected
        assert reader.ids() == before
        assert reader.count() == 30
    with Index.open(location, model) as index:
        wait_for_the_lock(index)
        index.add("image", rows(5, seed=3))
        index.remove(before[:1])
        assert (index.count(), len(index.ids())) == (34, 34)
        ids = index.ids()
        assert_same(index.search_vectors(vector, k=40), brute_force(index, vector, 40, ids))
        index.check()
