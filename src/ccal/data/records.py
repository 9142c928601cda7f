"""The rows of a CSV, TSV, JSONL or Parquet file, one at a time, with their line numbers."""

import csv
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from ccal.errors import InputError
from ccal.optional import require

# The line a row starts at, and its values by column, or what is wrong with it.
Record = tuple[int, "dict[str, Any] | str"]

SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")


def read_records(path: Path, columns: Collection[str]) -> Iterator[Record]:
    """Yield `(line, values)` for every row, or `(line, reason)` for a row that cannot be read.

    Lines count from 1 and include the header; Parquet rows count from 1. Blank lines are passed
    over. A file without rows, or one that lacks one of `columns`, is refused; the message lists
    the columns that exist.
    """
    if not path.is_file():
        raise InputError(f"{path}: {'is a folder' if path.is_dir() else 'no such file'}.")
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: expected one of {', '.join(SUFFIXES)}, got {suffix or 'none'}.")
    if path.stat().st_size == 0:
        raise InputError(f"{path}: the file is empty.")
    if suffix == ".parquet":
        return _parquet(path, columns)
    if suffix == ".jsonl":
        return _jsonl(path, columns)
    return _csv(path, columns, "\t" if suffix == ".tsv" else ",")


def _csv(path: Path, columns: Collection[str], delimiter: str) -> Iterator[Record]:
    # surrogateescape: a byte that is not UTF-8 spoils its own row, not the whole file.
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        try:
            header = [name.strip() for name in next(filter(None, reader), [])]
        except csv.Error as error:
            raise InputError(f"{path}: the header cannot be read ({error}).") from error
        if not header:
            raise InputError(f"{path}: no header, only blank lines.")
        _check_columns(path, columns, header)
        empty = True
        while True:
            line = reader.line_num + 1
            try:
                cells = next(reader)
            except StopIteration:
                break
            except csv.Error as error:
                cells = []
                yield line, _csv_reason(error)
                empty = False
            if not cells:
                continue
            empty = False
            if len(cells) != len(header):
                yield line, f"{len(cells)} cells, but the header has {len(header)}"
            else:
                yield line, dict(zip(header, cells, strict=True))
    if empty:
        raise InputError(f"{path}: a header, but no rows.")


def _csv_reason(error: csv.Error) -> str:
    if "end of data" in str(error):
        return "a quote is opened but never closed, so the rest of the file is one cell"
    if "field limit" in str(error):
        return f"a cell of more than {csv.field_size_limit():,} characters; is a quote not closed?"
    return f"quotes do not match ({error})"


def _jsonl(path: Path, columns: Collection[str]) -> Iterator[Record]:
    seen: dict[str, None] = {}
    rows = objects = 0
    with path.open(encoding="utf-8-sig", errors="surrogateescape") as file:
        for line, text in enumerate(file, start=1):
            if not text.strip():
                continue
            rows += 1
            try:
                value = json.loads(text)
            except (ValueError, RecursionError) as error:
                yield line, f"not JSON ({error})"
                continue
            if isinstance(value, dict):
                objects += 1
                seen.update(dict.fromkeys(value))
                yield line, value
            else:
                yield line, f"not a JSON object but a {type(value).__name__}"
    if rows == 0:
        raise InputError(f"{path}: no rows, only blank lines.")
    if objects:
        _check_columns(path, columns, list(seen))


def _parquet(path: Path, columns: Collection[str]) -> Iterator[Record]:
    parquet = require("pyarrow.parquet", package="pyarrow", purpose="Reading Parquet")
    try:
        with parquet.ParquetFile(path) as file:
            _check_columns(path, columns, file.schema_arrow.names)
            if file.metadata.num_rows == 0:
                raise InputError(f"{path}: a header, but no rows.")
            batches = file.iter_batches(batch_size=4096, columns=sorted(columns))
            yield from enumerate((row for batch in batches for row in batch.to_pylist()), start=1)
    except (OSError, ValueError) as error:  # pyarrow's own errors are children of these
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not a readable Parquet file ({error}).") from error


def _check_columns(path: Path, columns: Collection[str], existing: list[str]) -> None:
    if any("\udc80" <= char <= "\udcff" for name in existing for char in name):
        raise InputError(f"{path}: the header is not UTF-8 text; save the file as UTF-8.")
    missing = [name for name in columns if name not in existing]
    if missing:
        raise InputError(
            f"{path}: no column {', '.join(map(repr, missing))}; "
            f"the columns are {', '.join(map(repr, existing))}."
        )
    doubled = [name for name in columns if existing.count(name) > 1]
    if doubled:
        raise InputError(f"{path}: more than one column is called {doubled[0]!r}.")
