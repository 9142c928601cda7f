"""`ccal data`: render tunes as sheet music and sound, and draw some of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ccal.cli.console import note, note_skipped
from ccal.errors import InputError
from ccal.progress import counting

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Render tunes, in ABC, MusicXML or MIDI, as sheet music and sound, and look at them.\n\n"
    "Example:\n\n`ccal data build tunes.abc -o tunes`",
)


@app.command()
def build(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A file of ABC (.abc), MusicXML (.musicxml, .mxl, .xml) or MIDI (.mid, .midi), a "
            "folder of them, or `ryan` or `oneill`: collections from 1883 and 1903 that are "
            "installed with the extra `music`.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="STORE", help="Folder for the rendered tunes.")
    ],
    tempo: Annotated[float, typer.Option(help="Quarter notes a minute.")] = 120.0,
    program: Annotated[int, typer.Option(help="Instrument of General MIDI; 0 is a piano.")] = 0,
    melody: Annotated[
        str | None,
        typer.Option(
            metavar="VOICE",
            show_default="the highest that plays single notes",
            help="Voice of MIDI files that is the melody, by number or name; the others are only "
            "heard.",
        ),
    ] = None,
    sound_font: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.sf2",
            show_default="the one that comes with the extra music",
            help="Sounds of the instruments.",
        ),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, show_default="one a core", help="Tunes at a time.")
    ] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Drop tunes of STORE that are not in SOURCE, or that other settings rendered.",
        ),
    ] = False,
) -> None:
    """Engrave and play tunes, and keep staff lines, spectrograms and note onsets in a folder.

    A tune that cannot be rendered is named and left out. After a stop, give the same command again:
    it renders the tunes that are still missing. A STORE belongs to one SOURCE; `--replace` drops
    the tunes of another.

    Examples:

    `ccal data build tunes.abc -o tunes`

    `ccal data build ryan -o ryan`

    `ccal data build scores/ -o tunes --replace`

    `ccal data build midi/ -o tunes --melody 1`
    """
    from ccal.music import MusicSettings, build_store, collection, read_tunes
    from ccal.music.tunes import COLLECTIONS

    # A file or folder of the same name comes before a collection.
    named = source in COLLECTIONS and not Path(source).exists()
    font = None if sound_font is None else str(sound_font)
    settings = MusicSettings(tempo=tempo, program=program, sound_font=font)
    reading = counting("reading tunes")
    store = build_store(
        collection(source) if named else read_tunes(source, melody=melody, progress=reading),
        out,
        settings,
        processes=processes or os.cpu_count() or 1,
        replace=replace,
        progress=counting("rendering tunes"),
    )
    note_skipped(store.skipped, most=len(store.skipped))
    seconds = len(store.audio) / 31.25
    note(
        f"{out}: {len(store):,} tunes, {len(store.onsets):,} onsets, "
        f"{seconds / 60:,.0f} minutes of sound"
        + (f"; {len(store.skipped)} left out" if store.skipped else "")
    )


@app.command()
def preview(
    store: Annotated[
        Path, typer.Argument(metavar="STORE", help="Folder that `ccal data build` wrote.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE.png", help="Where the picture goes.")
    ],
    tunes: Annotated[int, typer.Option(min=1, help="How many tunes to show.")] = 3,
    centred: Annotated[
        bool, typer.Option("--centred", help="Pairs with their note in the middle.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Which pairs are drawn.")] = 0,
) -> None:
    """Draw the beginnings of some tunes, with red lines at note heads and onsets, and six pairs.

    Example:

    `ccal data preview tunes -o preview.png`
    """
    from ccal.music import SheetAudioPairs, SheetAudioStore, write_preview

    if out.suffix.lower() != ".png":
        raise InputError(f"--out {out}: expected a file that ends in .png.")
    if not out.absolute().parent.is_dir():
        raise InputError(f"--out {out}: there is no folder {out.absolute().parent}.")
    opened = SheetAudioStore(store)
    write_preview(SheetAudioPairs(opened, centred=centred), out, tunes=tunes, seed=seed)
    note(f"Wrote {out}")
