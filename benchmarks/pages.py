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
from ccal.files import write_atomically
from ccal.music import Score, TuneLibrary, build_store, parse_abc, read_tunes
from ccal.music.default import default_library, default_model, library_of
from ccal.music.engraving import engrave_page
from ccal.music.mei import parts_of
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
    turned = picture.rotate(by, Image.Resampling.BICUBIC, expand=True, fillcolor=255)
    return np.asarray(turned)


def blurred(page: Grey, rng: np.random.Generator) -> Grey:
    """Out of focus by a fifth of the distance from line to line."""
    return np.asarray(Image.fromarray(page).filter(ImageFilter.GaussianBlur(_SPACE / 5)))


def shaded(page: Grey, rng: np.random.Generator) -> Grey:
    """Three times as dark at one end as at the other."""
    height, width = page.shape
    y, x = np.mgrid[0:height, 0:width]
    angle = rng.uniform(0, 2 * np.pi)
    along = np.cos(angle) * (x / width - 0.5) + np.sin(angle) * (y / height - 0.5) + 0.5
    return (page * np.clip(0.3 + 0.65 * along, 0.3, 0.95)).astype(np.uint8)


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
    """R@1 and R@5 in per cent of pages (number of the tune, page), whole and by the model alone."""
    ranks, alone, refused, took = [], [], 0, []
    for tune, page in queries:
        started = time.process_time()
        try:
            found = library.identify_page(page, k=5)
        except InputError:
            found, refused = [], refused + 1
        took.append(time.process_time() - started)
        names = library.names
        # What was found on most lines; a tune of the same name is the same.
        matches = max(found, key=lambda one: len(one.lines)).matches if found else []
        right = [names[match.tune] == names[tune] for match in matches]
        ranks.append(right.index(True) if any(right) else 99)
        alone.append(library.reader.rank_by_votes(page, tune) if found else 99)
    share = {f"r{k}": 100 * float(np.mean(np.array(ranks) < k)) for k in (1, 5)}
    share |= {f"votes_r{k}": 100 * float(np.mean(np.array(alone) < k)) for k in (1, 5)}
    about = {"queries": len(ranks), "refused": refused, "candidates": len(library)}
    return share | about | {"cpu_seconds": float(np.median(took)) if took else 0.0}
