"""Which tunes are on this page? Share of pages whose tune is found, by how the page was made.

    python -m benchmarks.pages [--queries 40] [--pages FOLDER ...]

Tunes of the library that comes with the package, which its model has never seen, are engraved as
pages by verovio in random looks, and by LilyPond and abcm2ps where they are installed; verovio's
are also turned, blurred, shaded, photographed and made small. Every FOLDER has pages of your own
(.png, .jpg), and tunes to choose from in ABC or MusicXML files; a page is of the tune whose title
is most like its file name. Finished cells are kept in benchmarks/pages.json and not repeated;
docs/results/pages.md is written from them.
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
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from ccal.errors import InputError
from ccal.features import user_cache
from ccal.files import write_atomically
from ccal.music import Score, TuneLibrary, build_store, parse_abc, read_lines, read_tunes
from ccal.music.default import default_library, default_model, library_of
from ccal.music.engraving import engrave_page
from ccal.music.hearing import KNOWN
from ccal.music.mei import parts_of
from ccal.music.staves import find_staves, ink_of
from ccal.retrieval import fingerprint

RESULTS = Path(__file__).with_name("pages.json")
PAGE = Path(__file__).parents[1] / "docs" / "results" / "pages.md"
Grey = NDArray[np.uint8]
Query = tuple[int, Grey | Path]
# Pixels from line to line of an engraved page: about 150 dots per inch.
_SPACE = 12.0


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
    "turned by 5 degrees": partial(turned, degrees=5),
    "blurred": blurred,
    "shaded": shaded,
    "photographed": photographed,
    "small": small,
}


def lilypond(score: Score) -> Grey:
    """A page by LilyPond."""
    alters = {-2: "eses", -1: "es", 0: "", 1: "is", 2: "isis"}
    words, key, metre = [], -99, ""
    for bar in score.bars:
        if bar.fifths is not None and bar.fifths != key:
            key = bar.fifths
            # The major scale of so many fifths.
            tonic = "fcgdaeb"[(key + 1) % 7] + alters[(key + 1) // 7]
            words.append(f"\\key {tonic} \\major")
        if bar.metre is not None and bar.metre != metre:
            metre = bar.metre
            words.append(f"\\time {({'C': '4/4', 'C|': '2/2'}).get(metre, metre)}")
        total = sum((note.quarters for note in bar.notes), Fraction(0)) / 4
        words.append(f"\\set Timing.measureLength = #(ly:make-moment {total or 1})")
        for note in bar.notes:
            heads = [
                p.step + alters[p.alter] + ("'" * (p.octave - 3) if p.octave > 3 else "")
                for p in note.pitches
            ]
            parts = parts_of(note.length)
            name = f"<{' '.join(heads)}>" if heads else "r"
            text = (" ~ " if heads else " ").join(f"{name}{u}{'.' * d}" for u, d in parts)
            if note.tuplet is not None:
                text = f"\\tuplet {note.tuplet.count}/{note.tuplet.time_of} {{ {text} }}"
            words.append(text)
    source = (
        '\\version "2.22.0"\n\\paper { indent = 0 tagline = ##f }\n'
        "\\score { { \\clef treble " + " ".join(words) + " } }\n"
    )
    command = ["lilypond", "-s", "--png", "-dresolution=150", "-o", "page", "page.ly"]
    return _made("page.ly", source, [command])


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


def cell(library: TuneLibrary, queries: Iterable[Query]) -> dict[str, Any]:
    """R@1 and R@5 in per cent of pages (number of the tune, page), and of the model's votes alone.

    A tune of the same name is the same. Of several answers that on most lines counts.
    """
    names = np.array(library.names)
    ranks, alone, sure, took, refused = [], [], [], [], 0
    for tune, page in queries:
        started = time.process_time()
        try:
            lines = read_lines(page)
        except InputError:
            refused += 1
            ranks.append(99)
            alone.append(99)
            continue
        found = max(library.reader.identify(lines, 5), key=lambda best: len(best[0].lines))
        took.append(time.process_time() - started)
        right = [names[reading.tune] == names[tune] for reading in found]
        ranks.append(right.index(True) if any(right) else 99)
        polled = library.reader.poll(lines).mean(axis=0)
        best = polled[names == names[tune]].max()
        alone.append(int((polled > best).sum()))
        sure.append(found[0].confidence)
    return {
        **{f"r{k}": 100 * float(np.mean(np.array(ranks) < k)) for k in (1, 5)},
        **{f"votes_r{k}": 100 * float(np.mean(np.array(alone) < k)) for k in (1, 5)},
        "known": 100 * float(np.mean(np.array(sure) >= KNOWN)) if sure else 0.0,
        "queries": len(ranks),
        "refused": refused,
        "candidates": len(library),
        "cpu_seconds": float(np.median(took)) if took else 0.0,
    }


def engraved(
    library: TuneLibrary, tunes: list[int], how: Callable[[Grey, np.random.Generator], Grey]
) -> Iterable[Query]:
    """Pages by verovio, in looks of their own."""
    for tune in tunes:
        page = engrave_page(parse_abc(library.abc(tune)), look=tune, space=_SPACE)
        yield tune, how(page, np.random.default_rng(tune))


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


def own_pages(folder: Path, library: TuneLibrary) -> Iterable[Query]:
    """The pictures of a folder, each with the tune whose title is most like its name."""

    def plain(title: str) -> str:
        title = re.sub(r"^(.*), (The|A|An)$", r"\2 \1", title.split(" LIT.")[0].strip(" ."))
        return re.sub(r"[^a-z]+", " ", title.lower().replace("'", "").replace("’", "")).strip()

    # Titles of MusicXML files are often missing; their file names say what they are.
    titles = [
        plain(Path(tune.source).stem if ".musicxml" in tune.source else tune.name)
        for tune in library.tunes
    ]
    for path in sorted([*folder.rglob("*.png"), *folder.rglob("*.jpg")]):
        name = plain(path.stem)
        likeness = [difflib.SequenceMatcher(None, name, title).ratio() for title in titles]
        yield int(np.argmax(likeness)), path


def table(cells: dict[str, Any]) -> str:
    """One row a cell, as Markdown."""
    lines = [
        "| pages | number | tunes | R@1 (R@5) | by the model's votes alone | called known |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, one in cells.items():
        lines.append(
            f"| {name} | {one['queries']} | {one['candidates']:,} | {one['r1']:.0f} "
            f"({one['r5']:.0f}) | {one['votes_r1']:.0f} ({one['votes_r5']:.0f}) | "
            f"{one['known']:.0f} |"
        )
    return "\n".join(lines)


def page(results: dict[str, Any]) -> str:
    """The results as a page of the documentation."""
    cells = results["cells"]
    seconds = max(one["cpu_seconds"] for one in cells.values())
    return f"""# Which tunes are on this page? Measured

Whole pages of one tune (or the second line of each alone), searched among the tunes of a library.
In brackets: among the first five. "By the model's votes alone" ranks tunes by the mean cosine of
the best snippets of all lines, without note heads. "Called known": how many first answers have a
confidence of at least {KNOWN:.1f}; of tunes that are not in the library, this is the share of false
alarms. Model `{results["about"]["model"][:12]}`.

In %:

{table(cells)}

Verovio draws the pages in random looks: five fonts, widths of lines and stems, spacing, line
breaks, slurs and ornaments. The library has the same tunes in one plain look. LilyPond and abcm2ps
had no part in any training. A page takes {seconds:.1f} seconds of one core (the slowest row's
median).

`python -m benchmarks.pages --queries {results["about"]["queries"]}` repeats it;
`--pages FOLDER` adds a row for pages and tunes of your own.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Tunes of pages.")
    parser.add_argument("--queries", type=int, default=40, help="pages a cell")
    parser.add_argument("--pages", type=Path, nargs="*", default=[], help="folders of own pages")
    arguments = parser.parse_args()
    model = default_model()
    about = {"model": fingerprint(model), "queries": arguments.queries}
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if results.get("about") != about:
        results = {"about": about, "cells": {}}
    library = default_library(model)
    tunes = np.random.default_rng(0).permutation(len(library))[: arguments.queries].tolist()
    jobs: dict[str, Callable[[], tuple[TuneLibrary, Iterable[Query]]]] = {
        f"verovio, {name}": partial(lambda how: (library, engraved(library, tunes, how)), how)
        for name, how in DISTORTIONS.items()
    }
    engravers: dict[str, Callable[[str], Grey]] = {
        "LilyPond": lambda abc: lilypond(parse_abc(abc)),
        "abcm2ps": abcm2ps,
    }
    for name, draw in engravers.items():
        if shutil.which(name.lower()):
            for kind in ("page", "line"):
                jobs[f"{name}, {kind}"] = partial(
                    lambda d, line: (library, drawn(library, tunes, d, line)), draw, kind == "line"
                )
    for folder in arguments.pages:
        jobs[f"{folder.name}"] = partial(_own, folder, library, known=True)
        jobs[f"{folder.name}, not in the library"] = partial(_own, folder, library, known=False)
    for name, job in jobs.items():
        if name not in results["cells"]:
            results["cells"][name] = cell(*job())
            write_atomically(RESULTS, (json.dumps(results, indent=1) + "\n").encode())
            print(name, results["cells"][name], flush=True)
    print(table(results["cells"]))
    write_atomically(PAGE, page(results).encode())


def _own(folder: Path, other: TuneLibrary, known: bool) -> tuple[TuneLibrary, Iterable[Query]]:
    """The pages of a folder, and their own tunes or those of another library."""
    tunes = read_tunes(folder)
    store = build_store(tunes, user_cache("benchmark") / folder.name)
    own = library_of(store, default_model())
    queries = list(own_pages(folder, own))
    return (own, queries) if known else (other, [(0, page) for _, page in queries])


if __name__ == "__main__":
    main()
