"""Recordings as people have them: which tune they are, and whether an unknown tune is called so.

    python -m benchmarks.recordings [--real FOLDER] [--tunes 24]

Tunes that the model has never seen are played by other programs (`benchmarks.played`) in many ways,
15 seconds each, and searched among the 184 tunes of the bundled library. FOLDER holds real
recordings: `recordings.json`, a list of {"file", "tune", "instruments"}, and `tunes.abc`. Each
query is asked twice: with its tune in the library, and as if it were missing. Then follow noise, a
tone, and something like speech. What was found is kept in benchmarks/recordings.json, and the
tables are written to docs/results/recordings.md.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.played import PLAYINGS, RATE, record, talk
from ccal.files import write_atomically
from ccal.music import TuneLibrary, TuneMatch, build_store, melody_groups, read_tunes
from ccal.music.audio import read_audio
from ccal.music.default import default_library, default_model

RESULTS = Path(__file__).with_name("recordings.json")
PAGE = Path(__file__).parents[1] / "docs" / "results" / "recordings.md"
_LENGTHS = {20: (0, 20), 10: (5, 30)}

Samples = tuple[Any, int]
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", type=Path, help="folder of real recordings")
    parser.add_argument("--tunes", type=int, default=24, help="tunes that are played in each way")
    arguments = parser.parse_args()
    rows = [*_played(arguments.tunes), *_no_music()]
    if arguments.real:
        rows += _real(arguments.real)
    write_atomically(RESULTS, ("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n").encode())
    write_atomically(PAGE, page(rows).encode())


def _played(count: int) -> Iterator[Row]:
    library = default_library(default_model())
    notes = [library.notes(tune) for tune in range(len(library))]
    groups = melody_groups([(n["pitch"].copy(), n["tick"].copy()) for n in notes])
    for name, how in PLAYINGS.items():
        done = 0
        for tune in np.random.default_rng(1).permutation(len(library)).tolist():
            sound = record(library.abc(tune), how, 15, [0, tune])
            # abc2midi cannot read every tune.
            if len(sound) < 8 * RATE or float(sound.std()) < 1e-4:
                continue
            same = {other for other, group in enumerate(groups) if group == groups[tune]}
            yield _asked(library, (sound, RATE), name, 15, same)
            done += 1
            if done == count:
                break


def _real(folder: Path) -> Iterator[Row]:
    recordings = json.loads((folder / "recordings.json").read_text())
    with tempfile.TemporaryDirectory() as place:
        store = build_store(read_tunes(folder / "tunes.abc"), Path(place) / "store")
        library = TuneLibrary.build(Path(place) / "library", default_model(), store)
        names = library.names
        for number, entry in enumerate(recordings):
            samples, rate = read_audio(folder / entry["file"])
            right = names.index(entry["tune"])
            for seconds, starts in _LENGTHS.items():
                for start in starts:
                    piece = samples[start * rate : (start + seconds) * rate]
                    kind = f"real: {entry['instruments']}"
                    row = _asked(library, (piece, rate), kind, seconds, {right})
                    yield {**row, "half": "AB"[number % 2]}


def _no_music() -> Iterator[Row]:
    library = default_library(default_model())
    rng, length = np.random.default_rng(0), 15 * RATE
    sounds = {
        "white noise": rng.normal(size=length),
        "a tone of 440 Hz": np.sin(2 * np.pi * 440 * np.arange(length) / RATE),
        "talk": talk(rng, 15),
    }
    for name, sound in sounds.items():
        yield _asked(library, (sound.astype(np.float32), RATE), name, 15, set())


def _asked(library: TuneLibrary, sound: Samples, kind: str, seconds: int, right: set[int]) -> Row:
    """One query: the rank of its tune, and the confidence in it and in the best other tune."""
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
        "confidence": _confidence(found[ranks[0] :]) if ranks else None,
        "other": _confidence(wrong),
        "cpu": round(took, 3),
    }
    print(row, flush=True)
    return row


def _confidence(matches: list[TuneMatch]) -> float:
    return round(matches[0].confidence, 4) if matches else 0.0


def table(rows: list[Row]) -> str:
    """R@1, R@5, and the unknown tunes that are said to be unknown, by kind, as Markdown."""
    kinds = defaultdict(list)
    for row in rows:
        kinds[f"{row['kind']}, {row['seconds']} s"].append(row)
    lines = ["| recording | R@1 | R@5 | known, if it is there | unknown, if it is not |"]
    lines.append("| --- " * 5 + "|")
    for name, own in kinds.items():
        n = len(own)
        first, five = (sum(row["rank"] < k for row in own) for k in (1, 5))
        known = sum(row["rank"] == 0 and row["confidence"] >= 0.5 for row in own)
        unknown = sum(row["other"] < 0.5 for row in own)
        counts = (first, five, known)
        found = [f"{count} of {n}" if own[0]["there"] else "" for count in counts]
        lines.append(f"| {name} | {' | '.join(found)} | {unknown} of {n} |")
    return "\n".join(lines)


def page(rows: list[Row]) -> str:
    """The results as a page of the documentation."""
    real = [row for row in rows if row["kind"].startswith("real")]
    rest = [row for row in rows if not row["kind"].startswith("real")]
    return f"""# Recordings as people have them

{_share(rest)}

Tunes of the bundled library, which the model has never seen, played by abc2midi and the sound font
FluidR3 by fluidsynth: neither is used in training. 15 seconds with random starts, among 184 tunes.

{table(rest)}

Pieces of real recordings of traditional music, 45 seconds each, among 68 tunes. The model was
trained on synthetic sound alone, but the settings of the alignment were chosen on these
recordings: development figures. By halves of the files: {_halves(real)}.
Of the 34 pieces of 20 seconds, the votes of the model alone put 20 first, 31 among five and 33
among the proposals; alignment put 33 first.

{table(real)}

`python -m benchmarks.recordings --real FOLDER` repeats it.
"""


def _share(rows: list[Row]) -> str:
    first = 100 * np.mean([row["rank"] == 0 for row in rows if row["there"]])
    unknown = 100 * np.mean([row["other"] < 0.5 for row in rows])
    cpu = float(np.median([row["cpu"] for row in rows]))
    return (
        f"Of the tunes below, {first:.0f}% came first; {unknown:.0f}% of the queries without their "
        f"tune were said to be unknown. An answer took {cpu:.1f} seconds of one core."
    )


def _halves(rows: list[Row]) -> str:
    parts = []
    for half in "AB":
        own = [row for row in rows if row["half"] == half and row["seconds"] == 20]
        parts.append(f"{sum(row['rank'] == 0 for row in own)} of {len(own)} first ({half})")
    return ", ".join(parts)


if __name__ == "__main__":
    main()
