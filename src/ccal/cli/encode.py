"""`ccal encode`: items in, embeddings out; of shards, by many workers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ccal.cli import options as o
from ccal.cli.console import note
from ccal.errors import InputError
from ccal.progress import counting

FormatName = Literal["npy", "parquet"]


def command(
    run: o.RunFolder,
    modality: Annotated[
        str,
        typer.Argument(metavar="MODALITY", help="Which of the run's two modalities INPUT is of."),
    ],
    source: Annotated[
        str, typer.Argument(metavar="INPUT", help=f"{o.INPUT} Or shards: {o.DATASET}")
    ],
    out: Annotated[
        str,
        typer.Option(
            "--out",
            "-o",
            metavar="PLACE",
            help="Where the embeddings go: a .npy file; for those of shards a folder, or a URL.",
        ),
    ],
    column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Column of a table, or of shards.")
    ] = None,
    key: o.Key = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Column of shards that goes along, such as ids; as often as needed.",
        ),
    ] = None,
    format: Annotated[
        FormatName | None,
        typer.Option(
            metavar="FORMAT",
            show_default="that of INPUT; parquet for archives",
            help="Files that shards become: npy (embeddings only) or parquet.",
        ),
    ] = None,
    engine: o.Engine = "local",
    workers: o.Workers = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output file.")] = False,
) -> None:
    """Turn items of one modality into embeddings: row i of the output is item i of the input.

    Shards become a folder of shards with a manifest, by as many workers as you like. After an
    interruption the same command goes on where it was.

    Needs a RUN and items as it was trained on: feature rows, texts, or images. Embeddings of both
    modalities are compared by cosine; the closest are the counterparts.

    Examples:

    `ccal encode runs/first image photos.npy -o photos-embedded.npy`

    `ccal encode runs/first image photos/ -o photos-embedded.npy`

    `ccal encode linear image "features/*.parquet" --column photos --keep id -o embedded/`

    `ccal encode linear image s3://bucket/features --engine ray -o s3://bucket/embedded`

    `echo "a small yellow bird" | ccal encode runs/first text - -o query.npy`
    """
    from ccal.scale.shards import is_dataset

    if is_dataset(source) and (not out.endswith(".npy") or keep or format):
        if key is not None or force:
            raise InputError("--key and --force are not for shards.")
        _encode_shards(run, modality, source, out, column, keep or (), format, engine, workers)
        return
    if keep or format or workers or engine != "local":
        raise InputError("--keep, --format, --engine and --workers are for a folder of shards.")
    file = Path(out)
    if file.suffix != ".npy":
        raise InputError(f"--out {out}: expected a file that ends in .npy.")
    if file.exists() and not force:
        raise InputError(f"{out} exists; overwrite it with --force, or name another file.")
    if not file.parent.is_dir():
        raise InputError(f"{out}: there is no folder {file.parent}.")
    from ccal.data.items import read_items, write_embeddings
    from ccal.runs import load_model

    model = load_model(run)
    if modality not in model.modalities:
        raise InputError(f"{run} joins {' and '.join(model.modalities)}; it has no {modality!r}.")
    given = read_items(Path(source), column=column, key=key)
    for text in given.notes:
        note(text)
    progress = counting(f"encoding {modality}")
    rows, features = write_embeddings(file, model, modality, given.items, progress=progress)
    summary = f"Wrote {out}: {rows:,} embedding{'' if rows == 1 else 's'} of {model.dim} dimensions"
    if (more := features - model.dim) > 0:
        summary += (
            f", and {more} more that correct for hubs (items that turn up in too many answers)"
        )
    note(summary + ".")


def _encode_shards(
    run: Path,
    modality: str,
    source: str,
    out: str,
    column: str | None,
    keep: Sequence[str],
    format: FormatName | None,
    engine: o.EngineName,
    workers: int | None,
) -> None:
    from ccal.scale.encoding import encode_dataset
    from ccal.scale.engines import make_engine
    from ccal.scale.shards import open_dataset

    dataset = open_dataset(source)
    progress = counting(f"encoding {modality}")
    options: dict[str, Any] = {
        "column": column,
        "keep": keep,
        "format": format,
        "progress": progress,
    }
    found = encode_dataset(dataset, run, modality, out, make_engine(engine, workers), **options)
    note(f"Wrote {out}: {found['rows']:,} embeddings in {len(found['shards']):,} shards.")
