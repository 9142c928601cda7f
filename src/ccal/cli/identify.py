"""`ccal identify`: a recording or a page of music in, the tune and the position in it out."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccal.cli import options as o
from ccal.cli.console import note, note_skipped
from ccal.columns import align
from ccal.errors import InputError
from ccal.progress import counting

if TYPE_CHECKING:
    from ccal.music import PageTune, TuneLibrary, TuneMatch


# Columns of staff that are shown before and after the match.
_AROUND = 150


def command(
    query: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A recording (WAV, FLAC, Ogg, Opus, MP3, M4A, AAC, WebM, MP4), a page of music "
            "(PNG, JPEG, PDF), or one tune in ABC, MusicXML or MIDI.",
        ),
    ],
    library: Annotated[
        Path | None,
        typer.Option(
            metavar="BOOK",
            show_default="184 tunes of Ryan's and O'Neill's collections",
            help="Tunes to search among: a file of ABC, MusicXML or MIDI, a folder of such files, "
            "or what `ccal data build` wrote.",
        ),
    ] = None,
    add: Annotated[
        list[Path] | None,
        typer.Option(metavar="BOOK", help="More tunes to search among; may be repeated."),
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
    as_json: o.Json = False,
) -> None:
    """Name the tune of a recording, or the tunes on a page of music, and the passage that matches.

    A page may be a photograph, a scan or an exported file; every tune on it has its own answer.

    The first search among tunes of your own engraves, plays and embeds them: a second or two a
    tune. Later searches only do so for tunes that have changed.

    Examples:

    `ccal identify recording.m4a`

    `ccal identify recording.m4a --add mytunes.abc`

    `ccal identify page.jpg --library tunebook/ --out found`
    """

    if query.is_dir():
        raise InputError(f"{query} is a folder; expected a file, one recording or picture.")
    if not query.is_file():
        raise InputError(f"{query}: there is no such file.")
    if out is not None and out.exists() and not out.is_dir():
        raise InputError(f"--out {out}: expected a folder, and this is a file.")
    kind, content = _query(query)
    found = _library(library, model, add or [])
    answer: dict[str, Any] = {"query": str(query), "kind": kind}
    if kind == "sheet":
        tunes = found.identify_page(content, k)
        matches = max(tunes, key=lambda tune: len(tune.lines)).matches
        answer["tunes"] = [_on_page(tune) for tune in tunes]
        table = [line for tune in tunes for line in (_lines(tune), *_table(tune.matches), "")][:-1]
    else:
        matches = found.identify(content, k)
        table = _table(matches)
    if as_json:
        print(json.dumps(answer | {"matches": [m.as_dict() for m in matches]}, indent=1))
    else:
        print("\n".join(table))
    if out is None and show:
        out = Path(tempfile.mkdtemp(prefix="ccal-"))
    if out is not None:
        first = _write(found, matches, out)
        note(f"Wrote {out}: the passage of each tune as staff (.png) and as sound (.wav)")
        if show:
            typer.launch(str(first))


def _query(file: Path) -> tuple[str, Any]:
    """ "sheet" or "audio", and what to ask with; notation is played."""
    from ccal.media_types import HEAD, IMAGES, MIDI, PDF, sniff
    from ccal.music import play
    from ccal.music.tunes import NOTATION

    with file.open("rb") as content:
        type = sniff(content.read(HEAD))
    if type in IMAGES or type == PDF:
        return "sheet", file
    if type == MIDI or (type is None and file.suffix.lower() in NOTATION):
        return "audio", play(file)
    return "audio", file


def _library(folder: Path | None, run: Path | None, add: list[Path]) -> TuneLibrary:
    """The library to search; what is missing is made."""
    from ccal.music.default import default_model, open_tunes
    from ccal.runs import load_model

    model = load_model(run) if run else default_model()
    library = open_tunes(folder, model, add=add, telling=counting)
    note_skipped(library.skipped)
    return library


def _table(matches: list[TuneMatch]) -> list[str]:
    """A sentence that names the tune, and a table of the matches.

    The columns are rank, score, chance, seconds in the tune, columns of its staff, and its name.
    """
    rows = [["rank", "score", "chance", "time", "columns", "tune"]]
    for rank, match in enumerate(matches, start=1):
        when = "-".join(_clock(second) for second in match.seconds)
        where = "-".join(f"{column:.0f}" for column in match.columns)
        name = f"{match.name}  ({match.source})"
        chance = f"{100 * match.confidence:.0f}%"
        rows.append([str(rank), f"{match.score:.3f}", chance, when, where, name])
    return [_said(matches[0]), *align(rows, left=(5,))]


def _said(best: TuneMatch) -> str:
    """The answer in words."""
    if not best.known:
        return "It is probably none of these tunes; the nearest are:"
    return f"It is {'very likely' if best.confidence >= 0.8 else 'probably'} {best.name!r}:"


def _lines(tune: PageTune) -> str:
    """The staff lines of a tune on its page.

    >>> from types import SimpleNamespace as Line
    >>> _lines(Line(lines=[Line(page=0, number=0), Line(page=0, number=1)]))
    'Lines 1 to 2'
    >>> _lines(Line(lines=[Line(page=1, number=2)]))
    'Line 3 of page 2'
    """
    first, last = tune.lines[0], tune.lines[-1]
    text = f"Line {first.number + 1}"
    if len(tune.lines) > 1:
        text = f"Lines {first.number + 1} to {last.number + 1}"
    if first.page != last.page:
        return (
            f"Line {first.number + 1} of page {first.page + 1} to "
            f"line {last.number + 1} of page {last.page + 1}"
        )
    return text + (f" of page {first.page + 1}" if first.page else "")


def _on_page(tune: PageTune) -> dict[str, Any]:
    """A tune of a page with its lines, for JSON."""
    lines = [
        {"page": line.page, "number": line.number, "outline": line.outline} for line in tune.lines
    ]
    return {"lines": lines, "matches": [match.as_dict() for match in tune.matches]}


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
