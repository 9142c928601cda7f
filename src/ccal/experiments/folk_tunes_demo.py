"""`ccal demo`: sheet music and sound learn to find each other, and a recording finds its score.

Tunes from two old collections are engraved and played. Two networks learn from some of them for a
minute with the CCA layer, and for a minute with learned projections in its place. Other tunes show
how well they do, beside the model that comes with the package, which has seen none of these. That
model then listens to recordings and finds their position in the score.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ccal.bundled import pretrained
from ccal.evaluation import correlation_structure, evaluate_embeddings
from ccal.experiments.folk_tunes import SETTINGS
from ccal.experiments.sheet_audio import train_sheet_audio
from ccal.music import (
    SheetAudioPairs,
    TuneLibrary,
    build_store,
    parse_abc,
    split_tunes_by_melody,
    synthesise,
)
from ccal.music.default import held_out_tunes
from ccal.music.sound import RENDER_RATE
from ccal.runs import Comparison
from ccal.training import embed
from ccal.training.hardware import keep_freed_memory

if TYPE_CHECKING:
    from ccal.reports import Example


_TUNES, _VALID, _TEST = 90, 8, 20
_EPOCHS, _EPOCH_PAIRS = 4, 2_000
_METHODS = {"CCA layer": "ccal", "learned projections": "learned"}
_PRETRAINED = "folk-tunes (pretrained)"
_SECONDS, _HITS = 8.0, 3
# Name, instrument of General MIDI, tempo, noise in decibels below the sound.
_KINDS = (
    ("piano", 0, 120.0, None),
    ("violin", 40, 120.0, None),
    ("piano, 10% faster", 0, 132.0, None),
    ("flute, with noise", 73, 120.0, 10.0),
)


def main(
    folder: Path,
    *,
    say: Callable[[str], None] = print,
    progress: Callable[[str], Callable[[int, int], None]] | None = None,
) -> Comparison:
    """Render, train, evaluate and listen; returns the table of all methods.

    Rendered tunes, the library and report.html are kept in `folder`. `say` gets a line about each
    step; `progress(task)` returns the function that is called with the steps done and their total.
    """
    from ccal.reports import write_report

    started = time.perf_counter()
    keep_freed_memory()
    bar = progress or (lambda _: lambda *_: None)
    tunes = held_out_tunes()[:_TUNES]
    say(f"1. Engraving and playing {len(tunes)} tunes of 1883 and 1903")
    workers = os.cpu_count() or 1
    store = build_store(tunes, folder / "tunes", processes=workers, progress=bar("rendering tunes"))
    split = split_tunes_by_melody(store.groups, valid=_VALID, test=_TEST)
    seen, held, test = (
        SheetAudioPairs(store, part, centred=True)
        for part in (split.train, split.valid, split.test)
    )
    say(
        f"\n2. Learning from {len(seen):,} pairs of {len(split.train)} tunes: "
        "the CCA layer, then learned projections"
    )
    sizes = {"epoch_pairs": _EPOCH_PAIRS, "refit_pairs": 1000, "max_epochs": _EPOCHS}
    settings = SETTINGS.changed(averaging=0.0, refinements=3, **sizes)
    trained = {
        name: train_sheet_audio(settings.changed(method=method), seen, held)
        for name, method in _METHODS.items()
    }
    models = {name: model for name, (model, _) in trained.items()}
    models[_PRETRAINED] = pretrained("folk-tunes")
    say(f"\n3. Sheet and sound of {len(test):,} positions in {len(split.test)} other tunes")
    views = {name: embed(model, test, batch_size=256) for name, model in models.items()}
    names = models[_PRETRAINED].modalities
    reports = {n: [evaluate_embeddings(*v, names=names, bootstrap=0)] for n, v in views.items()}
    table = Comparison.of(reports)
    say(str(table))
    say("\n4. Every position of every tune into a library, by the model that comes with ccal")
    embedding = bar("embedding snippets")
    library = TuneLibrary.build(folder / "library", models[_PRETRAINED], store, progress=embedding)
    say("\n5. Which tune is this, and where?")
    pictures = folder / "pictures"
    pictures.mkdir(exist_ok=True)
    examples = [_listen(library, *query, pictures, say) for query in _recordings(library)]
    page = write_report(
        folder / "report.html",
        title="Folk tunes: sheet music and sound",
        facts={
            "training pairs": f"{len(seen):,}, of {len(seen.tunes)} tunes",
            "test pairs": f"{len(test):,}, of {len(test.tunes)} other tunes",
            "training": f"{_EPOCHS} epochs of {_EPOCH_PAIRS:,} pairs for each of two methods",
            "tunes": "Ryan's Mammoth Collection (1883), O'Neill's Music of Ireland (1903)",
        },
        report=reports[_PRETRAINED][0],
        records=trained["CCA layer"][1].records,
        structures={name: correlation_structure(*views[name]) for name in _METHODS},
        reports_by_method=reports,
        table=table.to_html(),
        examples=examples,
    )
    minutes, seconds = divmod(round(time.perf_counter() - started), 60)
    say(f"\n{minutes}:{seconds:02d} min. With staves and plots: {page}")
    return table


def _recordings(library: TuneLibrary) -> Iterator[tuple[int, str, NDArray[np.float32]]]:
    """One recording of each kind, some seconds of a tune: its number, how it is played, the sound.

    The sound is (n,), of 44,100 samples a second.
    """
    rng = np.random.default_rng(0)
    numbers = rng.choice(len(library), len(_KINDS), replace=False).tolist()
    for number, (how, program, tempo, noise) in zip(numbers, _KINDS, strict=True):
        score = parse_abc(library.abc(number))
        sound = synthesise(score, program=program, tempo=tempo)
        length = round(_SECONDS * RENDER_RATE)
        start = int(rng.integers(max(1, len(sound) - length)))
        piece = sound[start : start + length]
        if noise is not None:
            level = float(np.sqrt(np.mean(piece**2))) * 10 ** (-noise / 20)
            piece = piece + level * rng.standard_normal(len(piece)).astype(np.float32)
        yield number, f"{len(piece) / RENDER_RATE:.0f} s, {how}", piece


def _listen(
    library: TuneLibrary,
    tune: int,
    how: str,
    sound: NDArray[np.float32],
    pictures: Path,
    say: Callable[[str], None],
) -> Example:
    """Identify one recording; the first tunes with a picture of their staff, for the report."""
    from ccal.reports import Example, Hit

    matches = library.identify((sound, RENDER_RATE), k=_HITS)
    name, best = library.names[tune], matches[0]
    right = "right" if best.tune == tune else f"wrong, it is {name!r}"
    first, last = best.seconds
    say(f"   {how:<24} {best.name!r}, {first:.0f} to {last:.0f} s: {right}")
    hits = []
    for rank, match in enumerate(matches, start=1):
        around = (max(0.0, match.columns[0] - 60), match.columns[1] + 60)
        picture = pictures / f"{tune}-{rank}.png"
        picture.write_bytes(library.staff_png(match.tune, around, mark=match.columns))
        hits.append(Hit(picture, rank, match.score, match.tune == tune, match.name))
    true = next((hit for hit in hits if hit.right), hits[0])
    way, title = "recording -> score", f"{name}: {how}"
    return Example(way, "typical", title, true.rank, tuple(hits), true, "a recording", strips=True)
