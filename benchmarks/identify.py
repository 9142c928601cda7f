"""Which tune is this? Share of recordings whose tune is found, by length and way of playing.

    python -m benchmarks.identify --model FOLDER --store FOLDER [--queries 100] [--part all]

STORE is a folder that `ccal data build` wrote; all its tunes are candidates. Queries are drawn, by
a seed, from all tunes, or from those of one part of the split by melody, so that a model can be
tested on tunes that it has not been trained on. A tune counts as found if the first answer, or one
of five, has the same melody: the store has some tunes under two names. Finished cells are kept in
benchmarks/identify.json and not repeated; docs/results/identify.md shows those that are there.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ccal
from ccal.files import write_atomically
from ccal.music import (
    SheetAudioStore,
    TuneLibrary,
    TuneMatch,
    parse_abc,
    split_tunes_by_melody,
    synthesise,
)
from ccal.music.audio import FRAME_RATE
from ccal.music.default import library_of
from ccal.music.sound import RENDER_RATE
from ccal.retrieval import fingerprint

RESULTS = Path(__file__).with_name("identify.json")
PAGE = Path(__file__).parents[1] / "docs" / "results" / "identify.md"
SECONDS = (3, 5, 10, 20)


@dataclass(frozen=True)
class Condition:
    """How a query is played: tempo in relation to the store's, decibels and colour of noise.

    With `other_font` by the sound font that was named, and not by the one of training.
    """

    tempo: float = 1.0
    noise: float | None = None
    pink: bool = False
    program: int = 0
    other_font: bool = False


CONDITIONS = {
    "clean": Condition(),
    "white noise, 20 dB": Condition(noise=20),
    "white noise, 10 dB": Condition(noise=10),
    "pink noise, 10 dB": Condition(noise=10, pink=True),
    "10% slower": Condition(tempo=0.9),
    "10% faster": Condition(tempo=1.1),
    "violin": Condition(program=40),
    "flute": Condition(program=73),
    "piano of another sound font": Condition(other_font=True),
}


def asked(about: dict[str, Any]) -> dict[str, Condition]:
    """All conditions; without another sound font all but its own."""
    return {n: how for n, how in CONDITIONS.items() if about["font"] or not how.other_font}


def recording(
    store: SheetAudioStore, tune: int, seconds: float, how: Condition, seed: int, font: str | None
) -> tuple[NDArray[np.float32], float]:
    """Samples, and the second of the tune, at the store's tempo, at which they begin."""
    abc = store.tunes[tune].abc
    assert abc is not None, "build the store again: it has no ABC texts"
    tempo = store.settings["tempo"] * how.tempo
    sound_font = font if how.other_font else None
    sound = synthesise(parse_abc(abc), sound_font=sound_font, tempo=tempo, program=how.program)
    rng = np.random.default_rng([seed, tune])
    end = float(store.tune(tune).onsets["frame"][-1]) / FRAME_RATE / how.tempo + 0.5
    begin = float(rng.uniform(0, max(0.0, end - seconds)))
    first = round(begin * RENDER_RATE)
    samples = sound[first : first + round(seconds * RENDER_RATE)]
    if how.noise is not None:
        samples = samples + noise(rng, len(samples), how.pink) * (
            np.sqrt((samples**2).mean()) * 10 ** (-how.noise / 20)
        )
    return samples.astype(np.float32), begin * how.tempo


def noise(rng: np.random.Generator, length: int, pink: bool) -> NDArray[np.float64]:
    """Noise of power 1; that of pink noise falls with the frequency."""
    white = rng.normal(size=length)
    if not pink:
        return white
    spectrum = np.fft.rfft(white)
    spectrum /= np.sqrt(np.maximum(np.arange(len(spectrum)), 1))
    values = np.fft.irfft(spectrum, length)
    return np.asarray(values / np.sqrt((values**2).mean()))


def tally(
    found: list[list[TuneMatch]], wanted: list[int], store: SheetAudioStore
) -> dict[str, Any]:
    """R@1 and R@5 in per cent."""
    groups = store.groups
    ranks = [
        next((r for r, match in enumerate(matches) if groups[match.tune] == groups[tune]), 99)
        for matches, tune in zip(found, wanted, strict=True)
    ]
    share = {f"r{k}": 100 * float(np.mean([rank < k for rank in ranks])) for k in (1, 5)}
    return {**share, "queries": len(ranks)}


def listen(
    library: TuneLibrary,
    store: SheetAudioStore,
    queries: list[tuple[int, int]],
    seconds: float,
    how: Condition,
    font: str | None,
) -> dict[str, Any]:
    """One cell: recordings of so many seconds, played so."""
    found, away, took = [], [], []
    for tune, seed in queries:
        samples, begin = recording(store, tune, seconds, how, seed, font)
        started = time.process_time()
        found.append(library.identify((samples, RENDER_RATE), k=5))
        took.append(time.process_time() - started)
        best = found[-1][0]
        if best.tune == tune:
            query, _, second = np.array(best.path).T
            away.append(float(np.median(np.abs(second - begin - query * how.tempo))))
    right = 100 * float(np.mean([distance < 1 for distance in away])) if away else None
    cell = tally(found, [tune for tune, _ in queries], store)
    return {**cell, "place": right, "cpu_seconds": float(np.median(took))}


def table(found: dict[str, Any]) -> str:
    """R@1 and, in brackets, R@5, in per cent, as Markdown."""
    lines = [
        "| recording | " + " | ".join(f"{s} s" for s in SECONDS) + " |",
        "| --- " * (1 + len(SECONDS)) + "|",
    ]
    for name in CONDITIONS:
        cells = [found.get(f"{name}, {seconds} s") for seconds in SECONDS]
        if not any(cells):
            continue
        lines.append(f"| {name} | " + " | ".join(map(_cell, cells)) + " |")
    return "\n".join(lines)


def _cell(cell: dict[str, Any] | None) -> str:
    return "" if cell is None else f"{cell['r1']:.0f} ({cell['r5']:.0f})"


def page(results: dict[str, Any]) -> str:
    """The results as a page of the documentation."""
    about, cells = results["about"], results["cells"]
    queries = about["queries"]
    places = [cell["place"] for cell in cells.values() if cell.get("place") is not None]
    seconds = max(cell.get("cpu_seconds", 0.0) for cell in cells.values())
    return f"""# Which tune is this? Measured

{about["queries"]} recordings a cell, with random starts, from {about["part"]} tunes of a store,
searched among its {about["candidates"]:,} tunes. In brackets: among the first five. A tune of the
same melody under another name counts as found. Tempo is changed without the pitch; noise is so many
decibels softer than the recording. Model `{about["model"][:12]}`. What is empty was not measured.
[Recordings as people have them](recordings.md) are played in more ways; pages have
[figures of their own](pages.md).

R@1 (R@5) in %:

{table(cells)}

Where the tune itself was found, the position was right to a second in at least
{min(places):.0f}% of the recordings of each cell. The slowest cell took {seconds:.2f} seconds
of one core a recording.

`python -m benchmarks.identify --model FOLDER --store FOLDER --queries {queries}
--sound-font FILE.sf2` repeats it.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Tune identification.")
    parser.add_argument("--model", type=Path, help="folder of a model of sheet and audio")
    parser.add_argument("--store", type=Path, help="folder of rendered tunes")
    parser.add_argument("--queries", type=int, default=100, help="queries a cell")
    parser.add_argument("--part", choices=["train", "valid", "test", "all"], default="all")
    parser.add_argument("--sound-font", help=".sf2 file that the model was not trained on")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    if arguments.output.exists():
        results = json.loads(arguments.output.read_text())
    if arguments.model is not None:
        measure(arguments, results)
    cells = results.get("cells", {})
    print(table(cells))
    if cells:
        write_atomically(arguments.page, page(results).encode())


def measure(arguments: argparse.Namespace, results: dict[str, Any]) -> None:
    """Fill the cells that are missing; all of them, if the model or the queries are others."""
    store, model = SheetAudioStore(arguments.store), ccal.load(arguments.model)
    split = split_tunes_by_melody(store.groups)
    tunes = np.random.default_rng(0).permutation(len(store))
    if arguments.part != "all":
        tunes = getattr(split, arguments.part)
    queries = [
        (int(tunes[number % len(tunes)]), number // len(tunes))
        for number in range(arguments.queries)
    ]
    about = {
        "model": fingerprint(model),
        "store": store.manifest["hash"],
        "part": arguments.part,
        "queries": arguments.queries,
        "candidates": len(store),
        "font": arguments.sound_font and Path(arguments.sound_font).name,
    }
    if results.get("about") != about:
        results.clear()
        results.update({"about": about, "cells": {}})
    library = library_of(store, model, progress=_say)
    jobs: dict[str, Callable[[], dict[str, Any]]] = {}
    for name, how in asked(about).items():
        for seconds in SECONDS:
            jobs[f"{name}, {seconds} s"] = partial(
                listen, library, store, queries, seconds, how, arguments.sound_font
            )
    for name, job in jobs.items():
        if name not in results["cells"]:
            results["cells"][name] = job()
            write_atomically(arguments.output, (json.dumps(results, indent=1) + "\n").encode())
            print(name, results["cells"][name], flush=True)


def _say(done: int, total: int) -> None:
    if done == total or done % 20 == 0:
        print(f"\rembedding {done:,}/{total:,}", end="", flush=True)


if __name__ == "__main__":
    main()
