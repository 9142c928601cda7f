"""`ccal identify`: a recording or a picture of a staff in, the tune and the position in it out."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccal.cli.console import note
from ccal.columns import align
from ccal.errors import InputError
from ccal.progress import counting

if TYPE_CHECKING:
    from ccal.music import TuneLibrary, TuneMatch


# Columns of staff that are shown before and after the match.
_AROUND = 150


def command(
    query: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A recording (WAV, FLAC, Ogg, MP3), or a picture of a line of staff (PNG, JPEG).",
        ),
    ],
    library: Annotated[
        Path | None,
        typer.Option(
            metavar="STORE",
            show_default="184 tunes of Ryan's and O'Neill's collections",
            help="Tunes to search among: a folder that `ccal data build` wrote.",
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            show_default="the one that comes with ccal",
            help="A model of sheet and audio.",
        ),
    ] = None,
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="How many tunes to name.")] = 5,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FOLDER",
            help="Write the passage that matches in each tune, as staff (.png) and sound (.wav).",
        ),
    ] = None,
    show: Annotated[
        bool, typer.Option("--open", help="Open the picture of the best, as your desktop does.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Name the tune of a recording, or of a picture of a staff, and the passage that matches.

    The first search among new tunes embeds them, which takes minutes; later ones take a second.

    Examples:

    `ccal identify recording.wav`

    `ccal identify staff.png --library tunes --out found`
    """
    from ccal.features.scan import SUFFIXES

    if query.is_dir():
        raise InputError(f"{query} is a folder; expected a file, one recording or picture.")
    if not query.is_file():
        raise InputError(f"{query}: there is no such file.")
    if out is not None and out.exists() and not out.is_dir():
        raise InputError(f"--out {out}: expected a folder, and this is a file.")
    found = _library(library, model)
    is_picture = query.suffix.lower() in SUFFIXES
    matches = found.identify_sheet(query, k) if is_picture else found.identify(query, k)
    if as_json:
        kind = "sheet" if is_picture else "audio"
        answer = {"query": str(query), "kind": kind, "matches": [m.as_dict() for m in matches]}
        print(json.dumps(answer, indent=1))
    else:
        print("\n".join(_table(matches)))
    if out is None and show:
        out = Path(tempfile.mkdtemp(prefix="ccal-"))
    if out is not None:
        first = _write(found, matches, out)
        note(f"Wrote {out}: the passage of each tune as staff (.png) and as sound (.wav)")
        if show:
            typer.launch(str(first))


def _library(folder: Path | None, run: Path | None) -> TuneLibrary:
    """The library of a store, or the one that comes with ccal; made if there is none yet."""
    from ccal.music import SheetAudioStore
    from ccal.music.default import default_folder, default_library, default_model, library_of
    from ccal.runs import load_model

    chosen = load_model(run) if run else default_model()
    embedding = counting("embedding tunes")
    if folder is None:
        if not default_folder().is_dir():
            note("The tunes are rendered and embedded once, which takes some minutes.")
        return default_library(chosen, rendering=counting("rendering tunes"), embedding=embedding)
    return library_of(SheetAudioStore(folder), chosen, progress=embedding)


def _table(matches: list[TuneMatch]) -> list[str]:
    """Rank, score, seconds in the tune, columns of its staff, and its name, below a header."""
    rows = [["rank", "score", "time", "columns", "tune"]]
    for rank, match in enumerate(matches, start=1):
        when = "-".join(_clock(second) for second in match.seconds)
        where = "-".join(f"{column:.0f}" for column in match.columns)
        name = f"{match.name}  ({match.source})"
        rows.append([str(rank), f"{match.score:.3f}", when, where, name])
    return align(rows, left=(4,))


def _clock(seconds: float) -> str:
    """Minutes and seconds.

    >>> _clock(83.4)
    '1:23'
    """
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _write(library: TuneLibrary, matches: list[TuneMatch], folder: Path) -> Path:
    """Write a picture and a sound for each match; returns the first picture."""
    from ccal.files import write_atomically

    folder.mkdir(parents=True, exist_ok=True)
    pictures = []
    for rank, match in enumerate(matches, start=1):
        name = re.sub(r"[^\w]+", "-", match.name).strip("-")[:60] or "tune"
        first, last = match.columns
        shown = (first - _AROUND, last + _AROUND)
        picture = library.staff_png(match.tune, shown, mark=match.columns)
        pictures.append(folder / f"{rank}-{name}.png")
        write_atomically(pictures[-1], picture)
        begin, end = match.seconds
        sound = library.wav(match.tune, (begin, max(end, begin + 1.0)))
        write_atomically(folder / f"{rank}-{name}.wav", sound)
    return pictures[0]
