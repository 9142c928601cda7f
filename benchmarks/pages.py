"""Which tunes are on this page? Share of pages whose tune is found, by how the page was made.

    python -m benchmarks.pages [--queries 10] [--pages FOLDER ...] [--among FOLDER]

Tunes of the library that comes with the package, which its model has never seen, are engraved as
pages by verovio in random looks, and by LilyPond and abcm2ps where they are installed; verovio's
are also turned, blurred, shaded, photographed and made small. Every FOLDER has pages of your own
(.png, .jpg), and tunes to choose from in ABC or MusicXML files; a page is of the tune whose title
is most like its file name. Finished cells are kept in benchmarks/pages.json and not repeated;
docs/results/pages.md is written from them. What a head is worth and the confidence are chosen on
half of your own pages and measured on the other half, both ways.
"""

from __future__ import annotations

import argparse
import difflib
import io
import json
import re
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter
from sklearn.linear_model import LogisticRegression

from ccal.errors import InputError
from ccal.files import write_atomically
from ccal.model import DualEncoder
from ccal.music import Score, TuneLibrary, parse_abc, read_lines
from ccal.music.book import LibraryTune
from ccal.music.default import default_library, default_model, open_tunes
from ccal.music.engraving import engrave_page
from ccal.music.hearing import KNOWN
from ccal.music.mei import parts_of
from ccal.music.pages import StaffLine, ink_of
from ccal.music.reading import HALF, OTHER, SHARP, USUAL, PageReader, Reading, Worth, sureness
from ccal.music.score import Note
from ccal.music.staves import find_staves
from ccal.retrieval import fingerprint

RESULTS = Path(__file__).with_name("pages.json")
PAGE = Path(__file__).parents[1] / "docs" / "results" / "pages.md"
Grey = NDArray[np.uint8]
Query = tuple[int, Grey | Path]
# Pixels from line to line of an engraved page: about 150 dots per inch.
_SPACE = 12.0
# What heads may be worth: as in the package, and some settings around it.
_WORTHS = [USUAL, replace(USUAL, wrong=-0.3), replace(USUAL, left_out=-0.8)]
_ALTERS = {-2: "eses", -1: "es", 0: "", 1: "is", 2: "isis"}


def turned(page: Grey, rng: np.random.Generator, degrees: float) -> Grey:
    """Turned to one side or the other, on white."""
    by = float(degrees * rng.choice([-1, 1]))
    picture = Image.fromarray(page)
    return np.array(picture.rotate(by, Image.Resampling.BICUBIC, expand=True, fillcolor=255))


def blurred(page: Grey, rng: np.random.Generator) -> Grey:
    """Out of focus by a fifth of the distance from line to line."""
    return np.array(Image.fromarray(page).filter(ImageFilter.GaussianBlur(_SPACE / 5)))


def shaded(page: Grey, rng: np.random.Generator) -> Grey:
    """Three times as dark at one end as at the other."""
    height, width = page.shape
    y, x = np.mgrid[0:height, 0:width]
    angle = rng.uniform(0, 2 * np.pi)
    along = np.cos(angle) * (x / width - 0.5) + np.sin(angle) * (y / height - 0.5) + 0.5
    return np.asarray(page * np.clip(0.3 + 0.65 * along, 0.3, 0.95), dtype=np.uint8)


def photographed(page: Grey, rng: np.random.Generator) -> Grey:
    """From aside, turned by up to 2 degrees, shaded, a little blurred, with noise, as JPEG."""
    height, width = page.shape
    away = rng.uniform(0, 0.04, 8) * np.array([width, height] * 4)
    corners = np.array([0, 0, 0, height, width, height, width, 0]) + away * np.array(
        [-1, -1, -1, 1, 1, 1, 1, -1]
    )
    picture = Image.fromarray(page).transform(
        (width, height),
        Image.Transform.QUAD,
        corners.tolist(),
        Image.Resampling.BICUBIC,
        fillcolor=255,
    )
    seen = shaded(turned(np.asarray(picture), rng, float(rng.uniform(0, 2))), rng)
    soft = Image.fromarray(seen).filter(ImageFilter.GaussianBlur(_SPACE / 10))
    noisy = np.asarray(soft) + rng.normal(0, 6, seen.shape)
    content = io.BytesIO()
    Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(content, "JPEG", quality=75)
    return np.asarray(Image.open(content))


def small(page: Grey, rng: np.random.Generator) -> Grey:
    """At half the size, 6 pixels from line to line."""
    picture = Image.fromarray(page)
    return np.asarray(picture.resize((page.shape[1] // 2, page.shape[0] // 2)))


DISTORTIONS: dict[str, Callable[[Grey, np.random.Generator], Grey]] = {
    "as engraved": lambda page, rng: page,
    "turned by 2 degrees": partial(turned, degrees=2),
    "blurred": blurred,
    "shaded": shaded,
    "photographed": photographed,
    "small": small,
}


def lilypond(score: Score) -> Grey:
    """A page by LilyPond."""
    words, key, metre = [], -99, ""
    for bar in score.bars:
        if bar.fifths is not None and bar.fifths != key:
            key = bar.fifths
            # The major scale of so many fifths.
            tonic = "fcgdaeb"[(key + 1) % 7] + _ALTERS[(key + 1) // 7]
            words.append(f"\\key {tonic} \\major")
        if bar.metre is not None and bar.metre != metre:
            metre = bar.metre
            words.append(f"\\time {({'C': '4/4', 'C|': '2/2'}).get(metre, metre)}")
        total = sum((note.quarters for note in bar.notes), Fraction(0)) / 4
        words.append(f"\\set Timing.measureLength = #(ly:make-moment {total or 1})")
        for tuplet, notes in groupby(bar.notes, key=lambda note: note.tuplet):
            text = " ".join(map(_in_lilypond, notes))
            if tuplet is not None:
                text = f"\\tuplet {tuplet.count}/{tuplet.time_of} {{ {text} }}"
            words.append(text)
    source = (
        '\\version "2.22.0"\n\\paper { indent = 0 tagline = ##f }\n'
        "\\score { { \\clef treble " + " ".join(words) + " } }\n"
    )
    command = ["lilypond", "-s", "--png", "-dresolution=150", "-o", "page", "page.ly"]
    return _made("page.ly", source, [command])


def _in_lilypond(note: Note) -> str:
    heads = [p.step + _ALTERS[p.alter] + "'" * (p.octave - 3) for p in note.pitches]
    name = f"<{' '.join(heads)}>" if heads else "r"
    ties = " ~ " if heads else " "
    return ties.join(f"{name}{unit}{'.' * dots}" for unit, dots in parts_of(note.length))


def abcm2ps(abc: str) -> Grey:
    """A page by abcm2ps."""
    paint = ["gs", "-q", "-dNOPAUSE", "-dBATCH", "-sDEVICE=pnggray", "-r150"]
    paint += ["-dGraphicsAlphaBits=4", "-dTextAlphaBits=4", "-sOutputFile=page.png", "page.ps"]
    return _made("page.abc", abc, [["abcm2ps", "-q", "-O", "page.ps", "page.abc"], paint])


def _made(name: str, content: str, commands: list[list[str]]) -> Grey:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, name).write_text(content)
        for command in commands:
            subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=120)
        pages = sorted(Path(folder).glob("*.png"))
        if not pages:
            raise InputError(f"{commands[0][0]} drew nothing.")
        with Image.open(pages[0]) as picture:
            return np.asarray(picture.convert("L"))


def plain(title: str) -> str:
    """A title without articles, numbers and signs, which differ from book to book."""
    name = re.sub("[-_]", " ", title.split(" LIT.")[0].split(" -- ")[0]).strip(" .")
    name = re.sub(r"^(the|an?) |, (the|an?)$", "", name.lower())
    return re.sub(r"[^a-z]+", " ", re.sub("['’]", "", name)).strip()


def cell(
    library: TuneLibrary, queries: Iterable[Query], worths: Sequence[Worth] = (USUAL,)
) -> dict[str, Any]:
    """What is found for each of some pages (number of the tune, page), with and without its tune.

    A tune of the same title is the same. Of several answers that on most lines counts; without its
    tune, the one that is most sure. `rank` and `votes_rank`, by the model's votes alone, are those
    of the tune; `there` and `gone` are the score of the best answer and that of tunes backwards.
    `rows` are those of the first of the `worths`, `settings` those of all.
    """
    names = np.array([plain(name) for name in library.names])
    rows: list[list[dict[str, Any]]] = [[] for _ in worths]
    took, readers = [], [library.reader.at(worth) for worth in worths]
    for tune, page in queries:
        started = time.process_time()
        try:
            lines = read_lines(page)
        except InputError:
            missing = {"rank": None, "votes_rank": None, "there": None, "gone": None}
            for own in rows:
                own.append(missing)
            continue
        readers[0].identify(lines, 5)
        took.append(time.process_time() - started)
        same = names == names[tune]
        polled = library.reader.poll(lines).mean(axis=0)
        about = {"votes_rank": int((polled > polled[same].max()).sum()), "lines": len(lines)}
        for own, reader in zip(rows, readers, strict=True):
            own.append(_asked(reader, lines, same) | about)
    return {
        "rows": rows[0],
        "settings": rows if len(rows) > 1 else [],
        "candidates": len(library),
        "cpu_seconds": round(float(np.median(took)), 2) if took else 0.0,
    }


def _asked(reader: PageReader, lines: list[StaffLine], same: NDArray[np.bool_]) -> dict[str, Any]:
    found = max(reader.identify(lines, 5), key=lambda best: len(best[0].lines))
    right = [bool(same[reading.tune]) for reading in found]
    others = reader.identify(lines, 1, without=np.flatnonzero(same).tolist())
    wrong = max((best[0] for best in others), key=lambda reading: reading.confidence)
    return {
        "rank": right.index(True) if any(right) else None,
        "there": _evidence(found[0]),
        "gone": _evidence(wrong),
    }


def _evidence(reading: Reading) -> list[float]:
    return [round(reading.score, 3), round(reading.other, 3), len(reading.places)]


def engraved(
    tunes: list[int], draw: Callable[[int], Grey], how: Callable[[Grey, np.random.Generator], Grey]
) -> Iterable[Query]:
    """Pages by verovio, in looks of their own."""
    for tune in tunes:
        yield tune, how(draw(tune), np.random.default_rng(tune))


def drawn(
    library: TuneLibrary, tunes: list[int], draw: Callable[[str], Grey], line: bool
) -> Iterable[Query]:
    """Pages by another engraver; with `line` the second line of each alone."""
    for tune in tunes:
        try:
            page = draw(library.abc(tune))
        except (InputError, subprocess.SubprocessError) as error:
            print(library.names[tune], error)
            continue
        if line:
            staves = find_staves(ink_of(page.astype(np.float32)))
            if len(staves) < 2:
                continue
            middle, reach = float(staves[1].y.mean()), 5 * float(staves[1].space.mean())
            page = page[max(0, round(middle - reach)) : round(middle + reach)]
        yield tune, np.ascontiguousarray(page)


def own_pages(folder: Path, tunes: Sequence[LibraryTune]) -> Iterable[Query]:
    """The pictures of a folder, each with the tune whose title is most like its name."""

    # Titles of MusicXML files are often missing; their file names say what they are.
    titles = [
        plain(Path(tune.source).stem if ".musicxml" in tune.source else tune.name) for tune in tunes
    ]
    for path in sorted([*folder.rglob("*.png"), *folder.rglob("*.jpg")]):
        name = plain(path.stem)
        likeness = [difflib.SequenceMatcher(None, name, title).ratio() for title in titles]
        yield int(np.argmax(likeness)), path


def summary(
    rows: list[dict[str, Any]], constants: tuple[float, float, float] = (SHARP, HALF, OTHER)
) -> dict[str, int]:
    """Counts of pages: found first and among five, also by votes; called known; called unknown.

    `constants` are those of `sureness`.
    """

    def first(key: str, k: int) -> int:
        return sum(row[key] is not None and row[key] < k for row in rows)

    def sure(row: dict[str, Any], key: str) -> bool:
        if row[key] is None:
            return False
        score, other, *_ = row[key]
        return sureness(score, other, *constants) >= KNOWN

    return {
        "pages": len(rows),
        "r1": first("rank", 1),
        "r5": first("rank", 5),
        "votes_r1": first("votes_rank", 1),
        "votes_r5": first("votes_rank", 5),
        "known": sum(row["rank"] == 0 and sure(row, "there") for row in rows),
        "unknown": sum(not sure(row, "gone") for row in rows),
    }


def table(cells: dict[str, Any]) -> str:
    """One row a cell, as Markdown."""
    lines = [
        "| pages | tunes | first | among five | first, by votes alone | among five, by votes alone "
        "| known, if it is there | unknown, if it is not | seconds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, one in cells.items():
        found = summary(one["rows"])
        counts = " | ".join(f"{found[key]} of {found['pages']}" for key in list(found)[1:])
        lines.append(f"| {name} | {one['candidates']:,} | {counts} | {one['cpu_seconds']:.1f} |")
    return "\n".join(lines)


def fit(rows: list[dict[str, Any]]) -> tuple[tuple[float, float, float], float]:
    """Constants of `sureness` (sharp, half, other) by logistic regression, and the likelihood."""
    x, y = [], []
    for row in [row for row in rows if row["there"]]:
        for known, evidence in ((row["rank"] == 0, row["there"]), (False, row["gone"])):
            x.append([evidence[0], max(evidence[1], 0.0)])
            y.append(int(known))
    found = LogisticRegression(C=100.0, class_weight="balanced").fit(np.array(x), np.array(y))
    sharp, other = found.coef_[0].tolist()
    likelihood = found.predict_log_proba(x)[np.arange(len(y)), y].mean()
    constants = sharp, -float(found.intercept_[0]) / sharp, -other / sharp
    return constants, float(likelihood)


def held_out(cells: Sequence[dict[str, Any]]) -> dict[str, int]:
    """The `summary` of pages of books, each with settings that were chosen on the other half.

    What a head is worth is the setting with most pages first and, among these, with the best
    likelihood of the confidence that is fitted to them.
    """
    total: Counter[str] = Counter()
    for half in (0, 1):
        best, chosen = (-1, -np.inf), None
        for number in range(len(_WORTHS)):
            own, others = (
                [row for one in cells for row in one["settings"][number][part::2]]
                for part in (half, 1 - half)
            )
            constants, likelihood = fit(own)
            value = sum(row["rank"] == 0 for row in own), likelihood
            if value > best:
                best, chosen = value, (others, constants)
        assert chosen is not None
        total.update(summary(*chosen))
    return dict(total)


def page(results: dict[str, Any]) -> str:
    """The results as a page of the documentation."""
    cells = results["cells"]
    drawn = [f"{name}, {kind}" for name in ("LilyPond", "abcm2ps") for kind in ("page", "line")]
    wanted = [*(f"verovio, {name}" for name in DISTORTIONS), *drawn]
    missing = "; ".join(name for name in wanted if name not in cells)
    unmeasured = f"Not measured yet: {missing}.\n\n" if missing else ""
    return f"""# Which tunes are on this page? Measured

Whole pages of one tune, or the second line of each alone, searched among the tunes of a library.
Verovio draws the tunes of the bundled library, which the model has never seen, in random looks:
five fonts, widths of lines and stems, spacing, line breaks, slurs and ornaments, 12 pixels from
line to line. The library has the same tunes in one plain look. LilyPond and abcm2ps had no part in
any training.

- "By votes alone" ranks tunes by the model: the mean cosine of the best snippets of all lines,
  without note heads.
- "Known": the right tune comes first with a confidence of {KNOWN:.1f} or more. "Unknown": every
  answer to the page has less, when its tune is not in the library.
- Seconds of one core for a page, the median: to find its lines and to search.

{table(cells)}

{unmeasured}{_halves(cells)}

Model `{results["about"]["model"][:12]}`. `python -m benchmarks.pages
--queries {results["about"]["queries"]}` repeats it; `--pages FOLDER` adds a row for a book of your
own, `--among FOLDER` searches among more tunes.
"""


def books(cells: dict[str, Any]) -> list[dict[str, Any]]:
    """The cells of pages of real books."""
    return [one for one in cells.values() if one.get("settings")]


def _halves(cells: dict[str, Any]) -> str:
    own = books(cells)
    if not own:
        return ""
    found = held_out(own)
    n = found["pages"]
    return f"""Scans and exported pages of real books are searched among the tunes of their book by
`--pages FOLDER`. Staff finding, note heads and search were developed on such pages: their rows in
the table are **development figures**. **Held out**: what a head is worth ({len(_WORTHS)} settings)
and the confidence, a logistic regression, were chosen on one half of these pages and measured on
the other, both ways. {found["r1"]} of {n} came first, {found["r5"]} among five; {found["known"]}
were known, and {found["unknown"]} unknown without their tune."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Tunes of pages.")
    parser.add_argument("--queries", type=int, default=10, help="pages a cell")
    parser.add_argument("--pages", type=Path, nargs="*", default=[], help="folders of own pages")
    parser.add_argument("--among", type=Path, help="a folder of more tunes to search among")
    arguments = parser.parse_args()
    model = default_model()
    about = {"model": fingerprint(model), "queries": arguments.queries}
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if results.get("about") != about:
        results = {"about": about, "cells": {}}
    library = default_library(model)
    tunes = np.random.default_rng(0).permutation(len(library))[: arguments.queries].tolist()

    @cache
    def verovio(tune: int) -> Grey:
        return engrave_page(parse_abc(library.abc(tune)), look=tune, space=_SPACE)

    jobs: dict[str, Callable[[], tuple[TuneLibrary, Iterable[Query], *tuple[Any, ...]]]] = {
        f"verovio, {name}": partial(lambda how: (library, engraved(tunes, verovio, how)), how)
        for name, how in DISTORTIONS.items()
    }
    engravers: dict[str, Callable[[str], Grey]] = {
        "LilyPond": lambda abc: lilypond(parse_abc(abc)),
        "abcm2ps": abcm2ps,
    }
    for name, draw in engravers.items():
        if shutil.which(name.lower()):
            draw = cache(draw)
            for kind in ("page", "line"):
                jobs[f"{name}, {kind}"] = partial(
                    lambda d, line: (library, drawn(library, tunes, d, line)), draw, kind == "line"
                )
    for folder in arguments.pages:
        name = folder.resolve().name
        jobs[f"of a book, {name}"] = partial(lambda where: (*_own(where, model), _WORTHS), folder)
        if arguments.among:
            more = partial(_own, folder, model, arguments.among)
            jobs[f"of a book, {name}, more tunes"] = more
    if arguments.among:
        for name in ("as engraved", "photographed"):
            jobs[f"verovio, {name}, more tunes"] = partial(
                lambda how: (
                    open_tunes(None, model, add=[arguments.among]),
                    engraved(tunes, verovio, how),
                ),
                DISTORTIONS[name],
            )
    for name, job in jobs.items():
        if name not in results["cells"]:
            results["cells"][name] = cell(*job())
            write_atomically(RESULTS, (json.dumps(results) + "\n").encode())
            print(name, summary(results["cells"][name]["rows"]), flush=True)
    print(table(results["cells"]))
    own = [row for one in books(results["cells"]) for row in one["rows"][::2]]
    if own:
        print("fitted to one half:", *(round(value, 2) for value in fit(own)[0]))
    write_atomically(PAGE, page(results).encode())


def _own(folder: Path, model: DualEncoder, *more: Path) -> tuple[TuneLibrary, Iterable[Query]]:
    book = open_tunes(folder, model)
    # The tunes of the book come first.
    return open_tunes(folder, model, add=more), own_pages(folder, book.tunes)


if __name__ == "__main__":
    main()
