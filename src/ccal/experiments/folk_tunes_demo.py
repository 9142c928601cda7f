"""Folk tunes: sheet music and sound learn to find each other, and a recording finds its score.

Tunes from two old collections are engraved and played. Two networks learn from some of them for a
minute with the CCA layer, and for a minute with learned projections in its place; other tunes show
how well they do, beside the model that comes with the package, which has heard none of these. That
model then listens to recordings and finds the place in the score.

Recordings that a library has never heard, and what it makes of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.bundled import pretrained
from ccal.data.splits import Split
from ccal.evaluation import CorrelationStructure, Report, correlation_structure
from ccal.experiments.sheet_audio import evaluate_pairs, train_sheet_audio
from ccal.model import DualEncoder
from ccal.music import (
    SheetAudioPairs,
    SheetAudioStore,
    TuneLibrary,
    TuneMatch,
    build_store,
    parse_abc,
    split_tunes_by_melody,
    synthesise,
)
from ccal.music.default import held_out_tunes
from ccal.music.sound import RENDER_RATE
from ccal.training import Settings, embed
from ccal.training.hardware import keep_freed_memory
from ccal.training.progress import Record

__all__ = ["Query", "ask", "main", "recordings"]

_SECONDS = 8.0
# Name, instrument of General MIDI, tempo, noise in decibels below the sound.
_KINDS = (
    ("piano", 0, 120.0, None),
    ("violin", 40, 120.0, None),
    ("piano, 10% faster", 0, 132.0, None),
    ("flute, with noise", 73, 120.0, 10.0),
)


@dataclass(frozen=True)
class Query:
    """Some seconds of a tune of the library: its number, how it is played, and the sound (n,)."""

    tune: int
    how: str
    sound: NDArray[np.float32]


def recordings(library: TuneLibrary, *, seed: int = 0) -> Iterator[Query]:
    """One recording of each kind, from the middle of some tune."""
    rng = np.random.default_rng(seed)
    for number, (how, program, tempo, noise) in zip(
        rng.choice(len(library), len(_KINDS), replace=False).tolist(), _KINDS, strict=True
    ):
        abc = library.store.tunes[number].abc
        assert abc is not None
        sound = synthesise(parse_abc(abc), program=program, tempo=tempo)
        length = round(_SECONDS * RENDER_RATE)
        start = int(rng.integers(max(1, len(sound) - length)))
        piece = sound[start : start + length]
        if noise is not None:
            level = float(np.sqrt(np.mean(piece**2))) * 10 ** (-noise / 20)
            piece = piece + level * rng.standard_normal(len(piece)).astype(np.float32)
        yield Query(number, f"{len(piece) / RENDER_RATE:.0f} s, {how}", piece)


def ask(library: TuneLibrary, query: Query, k: int, folder: Path) -> list[tuple[TuneMatch, Path]]:
    """The first k tunes that are found, each with a picture of the place on its staff."""
    found = []
    for rank, match in enumerate(library.identify((query.sound, RENDER_RATE), k=k), start=1):
        first, last = match.columns
        around = (max(0.0, first - 60), last + 60)
        picture = folder / f"{query.tune}-{rank}.png"
        picture.write_bytes(library.staff_png(match.tune, around, mark=match.columns))
        found.append((match, picture))
    return found


_TUNES, _VALID, _TEST = 90, 8, 20
_EPOCHS, _EPOCH_PAIRS, _STRIDE = 4, 2_000, 2
_HITS = 3

Say = Callable[[str], None]
Progress = Callable[[str], Callable[[int, int], None]]


def main(folder: Path, *, say: Say = print, progress: Progress | None = None) -> None:
    """All of it; rendered tunes, the library and report.html are kept in `folder`.

    `progress(what)` gives the function that is told how far `what` is.
    """
    started = time.perf_counter()
    keep_freed_memory()
    bar = progress or (lambda _: lambda *_: None)
    tunes = held_out_tunes()[:_TUNES]
    say(f"1. Engraving and playing {len(tunes)} tunes of 1883 and 1903")
    workers = os.cpu_count() or 1
    store = build_store(tunes, folder / "tunes", processes=workers, progress=bar("rendering tunes"))
    split = split_tunes_by_melody(store.groups, valid=_VALID, test=_TEST)
    test = SheetAudioPairs(store, split.test, centred=True)
    seen = SheetAudioPairs(store, split.train, centred=True)
    say(
        f"\n2. Learning from {len(seen):,} pairs of {len(split.train)} tunes: "
        "the CCA layer, then learned projections"
    )
    trained = {name: _train(method, store, split) for name, method in _METHODS.items()}
    models = {name: model for name, (model, _) in trained.items()}
    models[_PRETRAINED] = pretrained("folk-tunes")
    say(f"\n3. Sheet and sound of {len(test):,} places in {len(split.test)} other tunes")
    reports = {name: evaluate_pairs(model, test, bootstrap=0) for name, model in models.items()}
    for line in _table(reports):
        say(line)
    say("\n4. Every place of every tune into a library, by the model that comes with ccal")
    embedding = bar("embedding snippets")
    library = TuneLibrary.build(folder / "library", models[_PRETRAINED], store, progress=embedding)
    say("\n5. Which tune is this, and where?")
    examples = _listen(library, folder / "pictures", say)
    page = _report(folder, reports, trained, test, seen, examples)
    minutes, seconds = divmod(round(time.perf_counter() - started), 60)
    say(f"\n{minutes}:{seconds:02d} min. With staves and plots: {page}")
    say("Next: ccal identify RECORDING, ccal serve, or your own pairs with ccal train --help")


_METHODS = {"CCA layer": "ccal", "learned projections": "learned"}
_PRETRAINED = "folk-tunes (pretrained)"


def _train(method: str, store: SheetAudioStore, split: Split) -> tuple[DualEncoder, list[Record]]:
    settings = Settings.preset(
        "nottingham",
        method=method,
        direction="both",
        select="both",
        learning_rate=2e-3,
        batch_size=200,
        epoch_pairs=_EPOCH_PAIRS,
        refit_pairs=1000,
        max_epochs=_EPOCHS,
    )
    seen, held = (SheetAudioPairs(store, part, centred=True) for part in (split.train, split.valid))
    model, history = train_sheet_audio(settings, seen, held, stride=_STRIDE)
    return model, history.records


def _table(reports: dict[str, Report]) -> list[str]:
    lines = [f"{'':<26}{'':<16}  R@1    R@5   R@10    MRR   (%)"]
    for name, report in reports.items():
        for way in (report.x_to_y, report.y_to_x):
            m = way.measures
            lines.append(
                f"{name:<26}{way.name:<16}{m.r1:5.1f}  {m.r5:5.1f}  {m.r10:5.1f}  {m.mrr:5.1f}"
            )
    return lines


def _listen(library: TuneLibrary, pictures: Path, say: Say) -> list[Any]:
    from ccal.reports.examples import Example, Hit

    pictures.mkdir(parents=True, exist_ok=True)
    examples = []
    for query in recordings(library):
        found = ask(library, query, _HITS, pictures)
        name = library.names[query.tune]
        best = found[0][0]
        first, last = best.seconds
        right = "right" if best.tune == query.tune else f"wrong, it is {name!r}"
        say(f"   {query.how:<24} {best.name!r}, {first:.0f} to {last:.0f} s: {right}")
        hits = tuple(
            Hit(path, rank, match.score, match.tune == query.tune, match.name)
            for rank, (match, path) in enumerate(found, start=1)
        )
        true = next((hit for hit in hits if hit.right), hits[0])
        examples.append(
            Example(
                "recording -> score",
                "typical",
                f"{name}: {query.how}",
                true.rank,
                hits,
                true,
                note="a recording",
                strips=True,
            )
        )
    return examples


def _report(
    folder: Path,
    reports: dict[str, Report],
    trained: dict[str, tuple[DualEncoder, list[Record]]],
    test: SheetAudioPairs,
    seen: SheetAudioPairs,
    examples: list[Any],
) -> Path:
    from ccal.reports import write_report

    structures: dict[str, CorrelationStructure] = {
        name: correlation_structure(*embed(model, test, batch_size=256))
        for name, (model, _) in trained.items()
    }
    return write_report(
        folder / "report.html",
        title="Folk tunes: sheet music and sound",
        facts={
            "training pairs": f"{len(seen):,}, of {len(seen.tunes)} tunes",
            "test pairs": f"{len(test):,}, of {len(test.tunes)} other tunes",
            "training": f"{_EPOCHS} epochs of {_EPOCH_PAIRS:,} pairs for each of two methods",
            "tunes": "Ryan's Mammoth Collection (1883), O'Neill's Music of Ireland (1903)",
        },
        report=reports[_PRETRAINED],
        records=trained["CCA layer"][1],
        structures=structures,
        reports_by_method={name: [report] for name, report in reports.items()},
        examples=examples,
    )
