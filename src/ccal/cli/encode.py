"""`ccal encode`: items in, embeddings out."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccal.cli import options as o
from ccal.cli.console import note, progress_line
from ccal.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ccal.model import DualEncoder

__all__ = ["NAME", "check_texts", "command", "read_items", "warn_of_empty"]

NAME = "encode"
_CHUNK = 4096


def command(
    run: o.RunFolder,
    modality: Annotated[
        str, typer.Argument(help="Which of the run's two modalities the input is of.")
    ],
    source: Annotated[
        Path,
        typer.Argument(
            metavar="INPUT",
            help="A .npy or .npz file, a .txt file with one text a line, `-` for lines from "
            "stdin, an image or a folder of images, or a table with `--column`.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE.npy", help="Where the embeddings go.")
    ],
    column: Annotated[
        str | None, typer.Option(help="Column of a .csv, .tsv, .jsonl or .parquet table.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Array of a .npz file that has several.")] = None,
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
    from ccal.runs import Run

    if out.suffix != ".npy":
        raise InputError(f"--out {out}: expected a file that ends in .npy.")
    if out.exists() and not force:
        raise InputError(f"{out} exists; overwrite it with --force, or name another file.")
    if not out.parent.is_dir():
        raise InputError(f"{out}: there is no folder {out.parent}.")
    opened = Run.open(run)
    names = opened.found["modalities"]
    if modality not in names:
        raise InputError(f"{opened.path} joins {' and '.join(names)}; it has no {modality!r}.")
    items = read_items(source, column, key)
    model = opened.model()
    rows, features = _write(model, modality, items, out)
    more = features - model.dim
    hubs = f" ({model.dim} and {more} that correct for hubs)" if more > 0 else ""
    note(f"Wrote {out}: {rows:,} embeddings of {features} features{hubs}")


def read_items(source: Path, column: str | None, key: str | None) -> NDArray[Any] | list[str]:
    """Feature rows or texts."""
    from ccal.data import find_bad_rows, load_array
    from ccal.data.reading import check_range
    from ccal.features.scan import SUFFIXES

    suffix = source.suffix.lower()
    if source.is_dir() or suffix in SUFFIXES:
        return _images(source)
    if key is not None and suffix != ".npz":
        raise InputError("--key names an array of a .npz file.")
    if column is not None:
        return _column(source, column)
    if suffix in (".npy", ".npz"):
        array = load_array(source, key)
        rows, count = find_bad_rows(array)
        if count:
            raise InputError(
                f"{source}: {count:,} NaN or infinite values in {len(rows):,} rows, first in row "
                f"{rows[0]} (counted from 0)."
            )
        check_range(array, str(source))
        return array
    if str(source) == "-":
        return _lines(sys.stdin.buffer.read(), "stdin")
    if suffix == ".txt":
        try:
            return _lines(source.read_bytes(), str(source))
        except OSError as error:
            raise InputError(f"{source}: cannot be read ({error.strerror}).") from error
    if suffix in (".csv", ".tsv", ".jsonl", ".parquet"):
        raise InputError(f"{source} is a table; name the column with --column.")
    raise InputError(
        f"{source}: expected .npy, .npz, .txt, - for stdin, or a table with --column; "
        f"got {suffix or 'no suffix'}."
    )


def _images(source: Path) -> list[str]:
    """One image, or all of a folder in the order of their names, which is said."""
    if not source.is_dir():
        return [str(source)]
    from ccal.features import find_images

    found = [str(path) for path in find_images(source)]
    note(f"{len(found):,} images, in the order of their names: {found[0]} ... {found[-1]}")
    return found


def _lines(content: bytes, name: str) -> list[str]:
    """Texts, one a line; an empty line stays, so that rows and lines agree."""
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: not UTF-8 text ({error}).") from error
    if not lines:
        raise InputError(f"{name}: there are no lines.")
    if blank := sum(not line.strip() for line in lines):
        note(f"warning: {blank} of {len(lines)} lines are blank.")
    return lines


def _column(source: Path, column: str) -> list[str]:
    from ccal.data.records import read_records

    texts = []
    for line, record in read_records(source, [column]):
        if isinstance(record, str):
            raise InputError(f"{source}, line {line}: {record}.")
        value = record.get(column)
        if not isinstance(value, str):
            raise InputError(
                f"{source}, line {line}: {column} must be text, got {type(value).__name__}."
            )
        check_texts(f"{source}, line {line}", {column: value})
        texts.append(value)
    warn_of_empty(texts, column)
    return texts


def check_texts(place: str, values: Mapping[str, Any]) -> None:
    """Refuse texts, by column, that hold bytes which were not UTF-8, as `ccal train` does."""
    for column, value in values.items():
        if isinstance(value, str) and not value.isascii() and re.search("[\ud800-\udfff]", value):
            raise InputError(f"{place}: {column} is not UTF-8 text; save the file as UTF-8.")


def warn_of_empty(texts: Sequence[str], column: str) -> None:
    """Say how many texts of a column are blank; they stay, so that rows agree."""
    if blank := sum(not text.strip() for text in texts):
        note(f"warning: {blank:,} of {len(texts):,} texts of {column} are empty.")


def _write(
    model: DualEncoder, modality: str, items: NDArray[Any] | Sequence[str], out: Path
) -> tuple[int, int]:
    """Encode a chunk at a time into a file that gets its name when it is whole."""
    import numpy as np

    from ccal.files import new_file

    progress = progress_line(f"encoding {modality}")
    features = 0
    # Written, not mapped: on a full disk a map dies by a signal, without a word.
    with new_file(out) as file:
        for start in range(0, len(items), _CHUNK):
            chunk: Any = items[start : start + _CHUNK]
            if isinstance(chunk, np.ndarray):
                chunk = np.array(chunk)  # read from the disk once; torch wants to own its memory
            part = model.encode(modality, chunk).numpy()
            if start == 0:
                features = part.shape[1]
                about = {"descr": "<f4", "fortran_order": False, "shape": (len(items), features)}
                np.lib.format.write_array_header_1_0(file, about)
            file.write(np.ascontiguousarray(part, "<f4").data)
            progress(start + len(part), len(items))
    return len(items), features
