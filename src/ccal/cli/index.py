"""`ccal index`: items in, an index out that finds them again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccal.cli import options as o
from ccal.cli.console import note, progress_line
from ccal.cli.encode import check_texts, read_items, warn_of_empty
from ccal.cli.rebuilding import names_of_rows, rebuild_from_files
from ccal.errors import CcalError, InputError

if TYPE_CHECKING:
    from ccal.model import DualEncoder

__all__ = ["NAME", "command", "is_image", "open_model"]

NAME = "index"
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")


@dataclass(frozen=True)
class _Given:
    """What an input holds: items, and what is known of them."""

    items: Any
    ids: list[str] | None = None
    metadata: list[dict[str, Any]] | None = None
    files: list[str] | None = None


def command(
    run: o.RunFolder,
    out: Annotated[
        str,
        typer.Option(
            "--out",
            "-o",
            metavar="LOCATION",
            help="A folder, `postgresql://user@host/database?table=NAME`, or "
            "`milvus://host:19530/NAME` (`http://` and `https://` as well).",
        ),
    ],
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="INPUT",
            show_default=False,
            help="A .npy or .npz file, a .txt file with one text a line, `-` for lines from "
            "stdin, an image or a folder of images, or a table with `--column`.",
        ),
    ] = None,
    modality: Annotated[
        str | None,
        typer.Option("--modality", "-m", help="Which of the run's two modalities INPUT is of."),
    ] = None,
    column: Annotated[
        str | None, typer.Option(help="Column of a table with the texts, or names of image files.")
    ] = None,
    id_column: Annotated[
        str | None, typer.Option("--id", metavar="COLUMN", help="Column of a table with the ids.")
    ] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN", help="Column of a table to keep and filter by; as often as needed."
        ),
    ] = None,
    key: Annotated[str | None, typer.Option(help="Array of a .npz file that has several.")] = None,
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild",
            help="Embed all that the index holds anew, from the files and texts it knows; with an "
            "INPUT, put that in place of all it holds. Either is one step.",
        ),
    ] = False,
    float16: Annotated[
        bool, typer.Option("--float16", help="Half the space, about three digits; for a new one.")
    ] = False,
    dims: Annotated[
        int | None, typer.Option(help="Keep the leading canonical dimensions; for a new one.")
    ] = None,
    codes: Annotated[
        int | None,
        typer.Option(
            metavar="BITS",
            help="Let binary codes choose candidates in large folders, which takes less memory; "
            "for a new one.",
        ),
    ] = None,
) -> None:
    """Put items into an index, a new one or one that exists, for `ccal search` to find.

    Needs a RUN and items of one of its modalities. An index belongs to the model that made it;
    after training again, `--rebuild` embeds what it holds with the newer model.

    Examples:

    `ccal index runs/first photos/ --modality image -o photos.index`

    `ccal index runs/first birds.csv --column caption --metadata year -m text -o photos.index`

    `ccal index runs/second --rebuild -o photos.index`
    """
    from ccal.retrieval import Index

    model = open_model(run)
    if source is None and rebuild:
        _refuse_for_rebuild(modality, column, id_column, metadata, key, float16, dims, codes)
        with rebuild_from_files(out, model, run) as index:
            note(f"Embedded {index.count():,} items of {index.stats().location} anew.")
        return
    if source is None or modality is None:
        raise InputError("Name an INPUT and its --modality, or use --rebuild.")
    if modality not in model.modalities:
        raise InputError(f"{run} joins {' and '.join(model.modalities)}; it has no {modality!r}.")
    if (id_column or metadata) and column is None:
        raise InputError("--id and --metadata are columns of a table; name its --column, too.")
    if column is not None:
        given = _table(source, column, id_column, metadata or [], is_image(model, modality))
    else:
        given = _plain(source, key)
    known: dict[str, Any] = {"ids": given.ids, "metadata": given.metadata, "files": given.files}
    known["progress"] = progress_line(f"indexing {modality}")
    if rebuild or not _exists(out):
        dtype: Any = "float16" if float16 else "float32"
        known |= {"modality": modality, "dtype": dtype, "dims": dims, "codes": codes}
        known["replace"] = rebuild
        with _said_if_stopped(out, 0, modality, rebuild=rebuild):
            index = Index.build(out, model, given.items, model_folder=run, **known)
        with index:
            _report(index, len(given.items), modality)
        return
    if float16 or dims is not None or codes is not None:
        raise InputError(f"{out} exists; --float16, --dims and --codes are for a new index.")
    with Index.open(out, model) as index:
        with _said_if_stopped(out, index.count(modality), modality):
            index.add(modality, given.items, **known)
        _report(index, len(given.items), modality)


@contextmanager
def _said_if_stopped(
    location: str, before: int, modality: str, *, rebuild: bool = False
) -> Iterator[None]:
    """Report items that are in the index already when Ctrl-C comes, as while it is put in order.

    `before` is how many there were; what a rebuilt index holds does not tell the old from the new.
    """
    from ccal.retrieval import Index

    try:
        yield
    except KeyboardInterrupt:
        # What keeps the index from being opened is not what the person wants to hear of now.
        with suppress(CcalError):
            if not rebuild and _exists(location):
                with Index.open(location) as index:
                    if (added := index.count(modality) - before) > 0:
                        _report(index, added, modality)
        raise


def _refuse_for_rebuild(*options: object) -> None:
    if any(option not in (None, False) for option in options):
        raise InputError(
            "--rebuild without an INPUT keeps what the index holds, and its form; it takes no "
            "--modality, --column, --id, --metadata, --key, --float16, --dims or --codes."
        )


def open_model(folder: Path) -> DualEncoder:
    """The model of a run, or of a folder that `DualEncoder.save` wrote."""
    from ccal.model import load
    from ccal.runs import Run

    if (folder / "config.json").is_file():
        return load(folder)
    return Run.open(folder).model()


def is_image(model: DualEncoder, modality: str) -> bool:
    """Whether raw items of a modality are images."""
    from ccal.features import ImageFeatures

    return isinstance(model.front_ends.get(modality), ImageFeatures)


def _exists(location: str) -> bool:
    from ccal.retrieval.backends import exists

    return exists(location)


def _report(index: Any, count: int, modality: str) -> None:
    stats = index.stats()
    held = ", ".join(f"{number:,} {name}" for name, number in stats.counts.items())
    note(f"Added {count:,} {modality} items to {stats.location}, which holds {held or 'none'}.")


def _plain(source: Path, key: str | None) -> _Given:
    """Arrays, lines and images, as `ccal encode` reads them."""
    from ccal.features.scan import SUFFIXES

    items = read_items(source, None, key)
    if source.is_dir() or source.suffix.lower() in SUFFIXES:
        return _Given(items, ids=list(items), files=list(items))
    if isinstance(items, list):
        return _Given(items, metadata=[{"text": text} for text in items])
    return _Given(items, files=names_of_rows(source, key, len(items)))


def _table(
    source: Path, column: str, id_column: str | None, metadata: Sequence[str], images: bool
) -> _Given:
    """A table's texts or image files, with the columns that describe them."""
    from ccal.data.records import read_records

    typed = source.suffix.lower() in (".jsonl", ".parquet")
    wanted = dict.fromkeys([column, *([id_column] if id_column else []), *metadata])
    texts, ids, facts = [], [], []
    for line, record in read_records(source, wanted):
        if isinstance(record, str):
            raise InputError(f"{source}, line {line}: {record}.")
        text = record.get(column)
        if not isinstance(text, str):
            raise InputError(
                f"{source}, line {line}: {column} must be text, got {type(text).__name__}."
            )
        check_texts(f"{source}, line {line}", {name: record.get(name) for name in wanted})
        texts.append(text)
        ids.append(str(record.get(id_column)) if id_column else "")
        values = {name: record.get(name) for name in metadata}
        facts.append(values if typed else {name: _value(v) for name, v in values.items()})
    warn_of_empty(texts, column)
    names = ids if id_column else None
    if images:
        files = [str(source.parent / text) for text in texts]
        return _Given(files, names, facts, files)
    return _Given(texts, names, [{"text": t, **f} for t, f in zip(texts, facts, strict=True)])


def _value(cell: Any) -> Any:
    """A cell of a text table as what it looks like: a number, nothing, or text.

    >>> _value("1990"), _value("007"), _value("")
    (1990, '007', None)
    """
    if not isinstance(cell, str) or not cell:
        return None
    if not _NUMBER.fullmatch(cell):
        return cell
    return int(cell) if cell.lstrip("-").isdigit() else float(cell)
