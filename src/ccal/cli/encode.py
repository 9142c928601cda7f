"""`ccal encode`: items in, embeddings out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ccal.cli import options as o
from ccal.cli.console import note
from ccal.errors import InputError
from ccal.progress import counting


def command(
    run: o.RunFolder,
    modality: Annotated[
        str,
        typer.Argument(metavar="MODALITY", help="Which of the run's two modalities INPUT is of."),
    ],
    source: Annotated[Path, typer.Argument(metavar="INPUT", help=o.INPUT)],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE.npy", help="Where the embeddings go.")
    ],
    column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Column of a .csv, .tsv, .jsonl or .parquet table."),
    ] = None,
    key: o.Key = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output file.")] = False,
) -> None:
    """Turn items of one modality into embeddings: row i of the output is item i of the input.

    Needs a RUN and items as it was trained on: feature rows, texts, or images. Embeddings of both
    modalities are compared by cosine; the closest are the counterparts.

    Examples:

    `ccal encode runs/first image photos.npy -o photos-embedded.npy`

    `ccal encode runs/first image photos/ -o photos-embedded.npy`

    `echo "a small yellow bird" | ccal encode runs/first text - -o query.npy`
    """
    if out.suffix != ".npy":
        raise InputError(f"--out {out}: expected a file that ends in .npy.")
    if out.exists() and not force:
        raise InputError(f"{out} exists; overwrite it with --force, or name another file.")
    if not out.parent.is_dir():
        raise InputError(f"{out}: there is no folder {out.parent}.")
    from ccal.data.items import read_items, write_embeddings
    from ccal.runs import load_model

    model = load_model(run)
    if modality not in model.modalities:
        raise InputError(f"{run} joins {' and '.join(model.modalities)}; it has no {modality!r}.")
    given = read_items(source, column=column, key=key)
    for text in given.notes:
        note(text)
    progress = counting(f"encoding {modality}")
    rows, features = write_embeddings(out, model, modality, given.items, progress=progress)
    said = f"Wrote {out}: {rows:,} embedding{'' if rows == 1 else 's'} of {model.dim} dimensions"
    if (more := features - model.dim) > 0:
        said += f", and {more} more that correct for hubs (items that turn up in too many answers)"
    note(said + ".")
