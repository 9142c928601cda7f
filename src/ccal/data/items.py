"""Items of one modality from a file or folder, as `ccal encode`, `index` and `search` take them."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ccal.data.arrays import describe_bad_rows, load_array
from ccal.data.records import SUFFIXES as TABLES
from ccal.data.records import read_records
from ccal.data.tables import text_fault
from ccal.errors import InputError
from ccal.features.scan import SUFFIXES as IMAGES
from ccal.features.scan import find_images
from ccal.files import new_file

if TYPE_CHECKING:
    from ccal.model import DualEncoder, Items


_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_ROW = re.compile(r"(?P<file>.+\.np[yz])(:(?P<key>.+))?#(?P<row>\d+)", re.DOTALL)
_CHUNK = 4096


@dataclass(frozen=True)
class SourceItems:
    """Items as `DualEncoder.encode` takes them, and what `Index.build` keeps of each.

    `items` are feature rows (n, ...), n texts, or n names of image files. `notes` are sentences for
    the person who reads the file in, such as how many lines are blank.
    """

    items: NDArray[Any] | list[str]
    ids: list[str] | None = None
    metadata: list[dict[str, Any]] | None = None
    files: list[str] | None = None
    notes: tuple[str, ...] = ()


def read_items(
    source: Path,
    *,
    key: str | None = None,
    column: str | None = None,
    id_column: str | None = None,
    metadata: Sequence[str] = (),
    images: bool = False,
) -> SourceItems:
    """Read a .npy or .npz array, lines of a .txt file, images of a folder, or a table's column.

    `source` may be `-` for lines from stdin. `key` names an array of a .npz file. `column` is a
    table's column of texts, or of image files with `images`; `id_column` and `metadata` are further
    columns of it.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "birds.csv").write_text("caption,year\\na robin,1990\\n")
    ...     found = read_items(Path(folder, "birds.csv"), column="caption", metadata=["year"])
    >>> found.items, found.metadata
    (['a robin'], [{'text': 'a robin', 'year': 1990}])
    """
    suffix = source.suffix.lower()
    if column is None and (id_column or metadata):
        raise InputError("--id and --metadata are columns of a table; name its --column, too.")
    if source.is_dir() or suffix in IMAGES:
        return _images(source)
    if key is not None and suffix != ".npz":
        raise InputError("--key names an array of a .npz file.")
    if column is not None:
        return _table(source, column, id_column, metadata, images)
    if suffix in (".npy", ".npz"):
        return _array(source, key)
    if str(source) == "-":
        return _lines(sys.stdin.buffer.read(), "stdin")
    if suffix == ".txt":
        try:
            return _lines(source.read_bytes(), str(source))
        except OSError as error:
            raise InputError(f"{source}: cannot be read ({error.strerror}).") from error
    if suffix in TABLES:
        raise InputError(f"{source} is a table; name the column with --column.")
    raise InputError(
        f"{source}: expected .npy, .npz, .txt, - for stdin, or a table with --column; "
        f"got {suffix or 'no suffix'}."
    )


def can_read_again(file: str) -> bool:
    """Whether the file of an indexed item, or the array that holds its row, is still there."""
    row = _ROW.fullmatch(file)
    return Path(row["file"] if row else file).is_file()


def read_again(
    files: Sequence[str], load: Callable[[str, str | None], NDArray[Any]] = load_array
) -> NDArray[Any] | list[str]:
    """Items by the `files` of `SourceItems`: rows of arrays, or the names of files themselves.

    `load` opens an array; one that caches serves several calls.

    >>> read_again(["photos/robin.jpg"])
    ['photos/robin.jpg']
    """
    rows = [_ROW.fullmatch(file) for file in files]
    if not any(rows):
        return list(files)
    found = []
    for file, row in zip(files, rows, strict=True):
        if row is None:
            raise InputError(
                f"{file} is no row of an array, but other items are; one model cannot take both."
            )
        array, number = load(row["file"], row["key"]), int(row["row"])
        if number >= len(array):
            raise InputError(
                f"{row['file']} has {len(array):,} rows; row {number} was indexed from it."
            )
        found.append(array[number])
    return np.stack(found)


def write_embeddings(
    path: Path,
    model: DualEncoder,
    modality: str,
    items: Items,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[int, int]:
    """Embed items into a .npy file, some thousand at a time; returns its shape.

    The file gets its name when it is complete.
    """
    features = 0
    # Written instead of memory-mapped: on a full disk a mapped page kills the process.
    with new_file(path) as file:
        for start in range(0, len(items), _CHUNK):
            chunk: Any = items[start : start + _CHUNK]
            if isinstance(chunk, np.ndarray):
                chunk = np.array(chunk)  # torch wants memory that it may write to
            part = model.encode(modality, chunk).numpy()
            if start == 0:
                features = part.shape[1]
                about = {"descr": "<f4", "fortran_order": False, "shape": (len(items), features)}
                np.lib.format.write_array_header_1_0(file, about)
            file.write(np.ascontiguousarray(part, "<f4").data)
            if progress is not None:
                progress(start + len(part), len(items))
    return len(items), features


def _images(source: Path) -> SourceItems:
    """One image, or all images of a folder."""
    if not source.is_dir():
        return SourceItems([str(source)], ids=[str(source)], files=[str(source)])
    found = find_images(source)
    note = f"{len(found):,} images, in the order of their names: {found[0]} ... {found[-1]}"
    return SourceItems(found, ids=found, files=found, notes=(note,))


def _array(source: Path, key: str | None) -> SourceItems:
    array = load_array(source, key)
    rows, text = describe_bad_rows(array, source)
    if len(rows):
        raise InputError(f"{text}; remove these rows.")
    name = f"{source}:{key}" if key else str(source)
    return SourceItems(array, files=[f"{name}#{row}" for row in range(len(array))])


def _lines(content: bytes, name: str) -> SourceItems:
    """Texts, one a line; a blank line is an item, so that row i of the output is line i."""
    try:
        # `str.splitlines` would also split at form feeds and other separators within a text.
        text = io.StringIO(content.decode("utf-8-sig"), newline=None)
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: not UTF-8 text ({error}).") from error
    lines = [line.removesuffix("\n") for line in text]
    if not lines:
        raise InputError(f"{name}: there are no lines.")
    blank = sum(not line.strip() for line in lines)
    notes = (f"warning: {blank:,} of {len(lines):,} lines are blank.",) if blank else ()
    return SourceItems(lines, metadata=[{"text": line} for line in lines], notes=notes)


def _table(
    source: Path, column: str, id_column: str | None, metadata: Sequence[str], images: bool
) -> SourceItems:
    """A table's texts or image files, with the columns that describe them."""
    typed = source.suffix.lower() in (".jsonl", ".parquet")
    wanted = dict.fromkeys([column, *([id_column] if id_column else []), *metadata])
    texts: list[str] = []
    ids: list[str] = []
    facts: list[dict[str, Any]] = []
    for line, record in read_records(source, wanted):
        if isinstance(record, str):
            raise InputError(f"{source}, line {line}: {record}.")
        cell = record.get(column)
        # Several captions in one cell are an item each.
        cells: list[Any] = cell if isinstance(cell, list) and not images else [cell]
        checked = [(column, text) for text in cells] + [(name, record.get(name)) for name in wanted]
        for name, value in checked:
            if isinstance(value, str) and value.strip() and (fault := text_fault(value, name)):
                raise InputError(f"{source}, line {line}: {fault}; save the file as UTF-8.")
        if wrong := [value for value in cells if not isinstance(value, str)]:
            raise InputError(
                f"{source}, line {line}: {column} must be text, got {type(wrong[0]).__name__}."
            )
        if id_column and record.get(id_column) in (None, ""):
            raise InputError(f"{source}, line {line}: {id_column} is missing; it has the ids.")
        id = str(record.get(id_column)) if id_column else ""
        values = {name: record.get(name) for name in metadata}
        values = values if typed else {name: _value(v) for name, v in values.items()}
        texts += cells
        ids += [id] if cells is not cell else [f"{id}#{n}" for n in range(1, len(cells) + 1)]
        facts += [values] * len(cells)
    if not texts:
        raise InputError(f"{source}: {column} has empty lists only.")
    blank = sum(not text.strip() for text in texts)
    notes = (f"warning: {blank:,} of {len(texts):,} texts of {column} are empty.",) if blank else ()
    known = ids if id_column else None
    if images:
        files = [str(source.parent / text) for text in texts]
        return SourceItems(files, known, facts, files, notes)
    described = [{"text": text, **fact} for text, fact in zip(texts, facts, strict=True)]
    return SourceItems(texts, known, described, notes=notes)


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
