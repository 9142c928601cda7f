"""Recordings as people have them: which tune they are, and whether an unknown tune is called so.

    python -m benchmarks.recordings [--real FOLDER] [--tunes 24]

Tunes that the model has never seen are played by other programs (`benchmarks.played`) in many ways,
15 seconds each, and searched among the 184 tunes of the bundled library. FOLDER holds real
recordings: `recordings.json`, a list of {"file", "tune", "instruments"}, and `tunes.abc`. Each
query is asked twice: with its tune in the library, and as if it were missing. Then follow noise, a
tone, and something like speech. The settings of the alignment and of the confidence are chosen on
half of the real recordings and measured on the other half, both ways. What was found is kept in
benchmarks/recordings.json, and not asked again as long as it is there; the tables are written to
docs/results/recordings.md and to the card of the model.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

import ccal
from benchmarks.played import PLAYINGS, RATE, record, talk
from ccal.files import write_atomically
from ccal.music import TuneLibrary, TuneMatch, melody_groups
from ccal.music.alignment import USUAL
from ccal.music.audio import read_audio
from ccal.music.default import default_library, default_model, open_tunes
from ccal.music.hearing import OFFSET, SCALE

RESULTS = Path(__file__).with_name("recordings.json")
PAGE = Path(__file__).parents[1] / "docs" / "results" / "recordings.md"
CARD = Path(ccal.__file__).with_name("models") / "folk-tunes.md"
_TABLE = "<!-- written by benchmarks.recordings -->"
_NO_MUSIC = ("white noise", "a tone of 440 Hz", "talk")
_LENGTHS = {20: (0, 20), 10: (5, 30)}
# What the alignment may cost: the settings of the package, and some around them.
_COSTS = [
    USUAL,
    *(replace(USUAL, unclear=unclear) for unclear in (0.2, 0.55)),
    *(replace(USUAL, bend=bend) for bend in (1.5, 5.0)),
]

Samples = tuple[Any, int]
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", type=Path, help="folder of real recordings")
    parser.add_argument("--tunes", type=int, default=24, help="tunes that are played in each way")
    arguments = parser.parse_args()
    rows: list[Row] = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    jobs: dict[str, Callable[[], Iterator[Row]]] = {}
    if arguments.real:
        entries = json.loads((arguments.real / "recordings.json").read_text())
        library = open_tunes(arguments.real / "tunes.abc", default_model())
        for number, entry in enumerate(entries):
            path, half = arguments.real / entry["file"], "AB"[number % 2]
            jobs[entry["file"]] = partial(_real, library, path, entry, half)
    jobs[_NO_MUSIC[0]] = _no_music
    jobs |= {name: partial(_played, name, arguments.tunes) for name in PLAYINGS}
    done = {row.get("file", row["kind"]) for row in rows}
    for name, ask in jobs.items():
        if name not in done:
            rows += ask()
            content = "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n"
            write_atomically(RESULTS, content.encode())
    write_atomically(PAGE, page(rows).encode())
    write_atomically(CARD, card(CARD.read_text(), rows).encode())


def _played(name: str, count: int) -> Iterator[Row]:
    library = default_library(default_model())
    notes = [library.notes(tune) for tune in range(len(library))]
    groups = melody_groups([(n["pitch"].copy(), n["tick"].copy()) for n in notes])
    done = 0
    for tune in np.random.default_rng(1).permutation(len(library)).tolist():
        sound = record(library.abc(tune), PLAYINGS[name], 15, [0, tune])
        # abc2midi cannot read every tune.
        if len(sound) < 8 * RATE or float(sound.std()) < 1e-4:
            continue
        same = {other for other, group in enumerate(groups) if group == groups[tune]}
        yield _asked(library, (sound, RATE), name, 15, same)
        done += 1
        if done == count:
            break


def _real(library: TuneLibrary, path: Path, entry: dict[str, str], half: str) -> Iterator[Row]:
    samples, rate = read_audio(path)
    right, usual = library.names.index(entry["tune"]), library.listener
    for seconds, starts in _LENGTHS.items():
        for start in starts:
            piece = samples[start * rate : (start + seconds) * rate]
            kind = f"real: {entry['instruments']}"
            for costs in _COSTS if seconds == 20 else [USUAL]:
                library.listener = usual.at(costs)
                row = _asked(library, (piece, rate), kind, seconds, {right})
                yield {**row, "file": entry["file"], "half": half, "costs": asdict(costs)}


def _no_music() -> Iterator[Row]:
    library = default_library(default_model())
    rng, length = np.random.default_rng(0), 15 * RATE
    tone = np.sin(2 * np.pi * 440 * np.arange(length) / RATE)
    sounds = (rng.normal(size=length), tone, talk(rng, 15))
    for name, sound in zip(_NO_MUSIC, sounds, strict=True):
        yield _asked(library, (sound.astype(np.float32), RATE), name, 15, set())


def _asked(library: TuneLibrary, sound: Samples, kind: str, seconds: int, right: set[int]) -> Row:
    """One query: the rank of its tune; its margin over backwards melodies, and the best other's."""
    started = time.process_time()
    found = library.identify(sound, k=10)
    took = time.process_time() - started
    ranks = [rank for rank, match in enumerate(found) if match.tune in right]
    wrong = [match for match in found if match.tune not in right]
    row = {
        "kind": kind,
        "seconds": seconds,
        "there": bool(right),
        "rank": ranks[0] if ranks else 99,
        "margin": _margin(found[ranks[0]]) if ranks else None,
        "other": _margin(wrong[0]),
        "cpu": round(took, 3),
    }
    print(row, flush=True)
    return row


def _margin(match: TuneMatch) -> float:
    """The margin over backwards melodies for which `ccal.music.hearing.confidence` is so sure."""
    sure = min(max(match.confidence, 1e-9), 1 - 1e-9)
    return round((math.log(sure / (1 - sure)) - OFFSET) / SCALE, 4)


def _usual(row: Row) -> bool:
    """Whether a row has the settings of the package."""
    return bool(row.get("costs", asdict(USUAL)) == asdict(USUAL))


def held_out(rows: list[Row]) -> dict[str, int]:
    """The counts of `counted` with settings of the other half of real pieces of 20 seconds.

    Those of the alignment are the ones with most tunes first and, among these, with the best
    likelihood of the confidence that is fitted to their rows.
    """
    total: dict[str, int] = defaultdict(int)
    for half in "AB":
        best, chosen = (-1, -math.inf), None
        for costs in map(asdict, _COSTS):
            own = [row for row in rows if row["seconds"] == 20 and row.get("costs") == costs]
            fitted = [row for row in own if row["half"] == half]
            curve, likelihood = _fit(fitted)
            value = counted(fitted)["first"], likelihood
            if value > best:
                best = value
                chosen = curve, [row for row in own if row["half"] != half]
        assert chosen is not None
        for name, count in counted(chosen[1], chosen[0]).items():
            total[name] += count
    return total


def _fit(rows: list[Row]) -> tuple[tuple[float, float], float]:
    """A logistic curve (scale, offset) of the margins of right and wrong answers."""
    margins = [[row["margin"]] for row in rows if row["rank"] == 0]
    right = len(margins)
    margins += [[row["other"]] for row in rows]
    known = np.arange(len(margins)) < right
    found = LogisticRegression(C=10.0, class_weight="balanced").fit(margins, known)
    likely = found.predict_proba(margins)[np.arange(len(margins)), known.astype(int)]
    curve = float(found.coef_[0, 0]), float(found.intercept_[0])
    return curve, float(np.log(np.maximum(likely, 1e-12)).mean())


def counted(rows: list[Row], curve: tuple[float, float] = (SCALE, OFFSET)) -> dict[str, int]:
    """How many of some queries are first, among five, known, and unknown without their tune."""

    def known(margin: float) -> bool:
        return curve[0] * margin + curve[1] >= 0

    return {
        "n": len(rows),
        "first": sum(row["rank"] == 0 for row in rows),
        "five": sum(row["rank"] < 5 for row in rows),
        "known": sum(row["rank"] == 0 and known(row["margin"]) for row in rows),
        "unknown": sum(not known(row["other"]) for row in rows),
    }


def table(rows: list[Row], by: Callable[[Row], str], what: str = "recording") -> str:
    """R@1, R@5, and the unknown tunes that are said to be unknown, by kind, as Markdown."""
    kinds = defaultdict(list)
    for row in rows:
        kinds[by(row)].append(row)
    lines = [f"| {what} | R@1 | R@5 | known, if it is there | unknown, if it is not |"]
    lines.append("| --- " * 5 + "|")
    for name, own in kinds.items():
        found = counted(own)
        cells = [f"{found[key]} of {found['n']}" for key in ("first", "five", "known", "unknown")]
        if not own[0]["there"]:
            cells[:3] = [""] * 3
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def card(text: str, rows: list[Row]) -> str:
    """The text of the model's card with a new table of instruments between its two marks."""
    before, _, after = text.split(_TABLE)
    own = [row for row in rows if row["there"] and _usual(row)]
    own.sort(key=lambda row: "real" in row["kind"])

    def instrument(row: Row) -> str:
        kind = str(row["kind"])
        if "real" in kind:
            return f"{kind}, {row['seconds']} s"
        return PLAYINGS[kind].instruments

    return f"{before}{_TABLE}\n\n{table(own, instrument, 'instrument')}\n\n{_TABLE}{after}"


def page(rows: list[Row]) -> str:
    """The results as a page of the documentation."""
    real = [row for row in rows if "half" in row]
    usual = [row for row in real if _usual(row)]
    rest = [row for row in rows if "half" not in row]

    def kind(row: Row) -> str:
        return f"{row['kind']}, {row['seconds']} s"

    return f"""# Recordings as people have them

{_share(rest)}

Tunes of the bundled library, which the model has never seen, played by abc2midi and the sound fonts
FluidR3 and MuseScore_General by fluidsynth: none is used in training. 15 seconds with random
starts, among 184 tunes.

{table(rest, kind)}

Pieces of real recordings of traditional music, 45 seconds each, among 68 tunes. The model was
trained on synthetic sound alone. The front end and the number of proposals were chosen while
looking at some of these pieces, the rest as follows.

{_halves(real)}

In the table below the settings are those of the package, which were chosen on these recordings:
**development figures**.

{table(usual, kind)}

`python -m benchmarks.recordings --real FOLDER` repeats it.
"""


def _share(rows: list[Row]) -> str:
    first = 100 * np.mean([row["rank"] == 0 for row in rows if row["there"]])
    unknown = 100 * counted(rows)["unknown"] / len(rows)
    cpu = float(np.median([row["cpu"] for row in rows]))
    return (
        f"Of the tunes below, {first:.0f}% came first; {unknown:.0f}% of the queries without their "
        f"tune were said to be unknown. An answer took {cpu:.1f} seconds of one core."
    )


def _halves(rows: list[Row]) -> str:
    found = held_out(rows)
    return (
        "**Held out**, pieces of 20 seconds: the costs of the alignment (one of "
        f"{len(_COSTS)} settings)\nand the curve of the confidence were chosen on one half of the "
        f"files and measured on the other,\nboth ways. {found['first']} of {found['n']} came "
        f"first, {found['five']} among five; {found['known']} were known, and {found['unknown']} "
        "unknown\nwithout their tune."
    )


if __name__ == "__main__":
    main()
