"""Pairs from a table with a column per modality; all bad rows are reported together, by line."""

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from ccal.data.pairs import Pairs, Rows
from ccal.data.records import read_records
from ccal.data.splits import split_name
from ccal.errors import Faults, InputError


@dataclass(kw_only=True)
class BadRows(Faults):
    """The bad rows of a table of `rows` rows.

    >>> bad = BadRows(path=Path("pairs.csv"), limit=1, rows=4000)
    >>> bad.add("line 7: text is empty")
    >>> print(bad)
    pairs.csv: 1 bad rows of 4,000
      line 7: text is empty
    """

    path: Path
    rows: int = 0

    def __str__(self) -> str:
        return self.listed(f"{self.path}: {self.total:,} bad rows of {self.rows:,}")


@dataclass(frozen=True)
class Table:
    """What `read_table` found: n pairs and what the table says about them.

    `split` (n,) holds "train", "valid" or "test"; `rows` (n,) the table's row of each pair, from 0
    and without the header; `bad` the rows that were left out.
    """

    pairs: Pairs
    split: NDArray[np.str_] | None
    rows: NDArray[np.int64]
    bad: BadRows


class _BadRowError(Exception):
    """The reason why a row cannot be used."""


@dataclass(frozen=True)
class _Layout:
    """Which columns to read, and how."""

    modalities: dict[str, str]
    keys: dict[str, str]
    files: frozenset[str]
    root: Path
    concatenate: bool


def read_table(
    path: str | PathLike[str],
    modalities: Mapping[str, str | NDArray[Any]],
    *,
    files: Collection[str] = (),
    root: str | PathLike[str] | None = None,
    label: str | None = None,
    group: str | None = None,
    split: str | None = None,
    captions: Literal["separate", "concatenate"] = "separate",
    strict: bool = True,
) -> Table:
    """Read the pairs of a `.csv`, `.tsv`, `.jsonl` or `.parquet` file.

    `modalities` names the two modalities and the column of each; instead of a column, one may be
    an array whose row i belongs to the table's row i. Modalities in `files` hold paths, relative to
    `root` (default: the table's folder); they must exist and stay paths. `label`, `group` and
    `split` name further columns. Several captions in one row (a list, in JSONL or Parquet) become
    pairs of one group, or one text of several lines with `captions="concatenate"`.

    Bad rows raise `InputError` with a report of the first 20 by line number; with `strict=False`
    they are left out and the report is `Table.bad`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     table = Path(folder, "pairs.jsonl")
    ...     _ = table.write_text('{"file": "a.jpg", "captions": ["a dog", "a brown dog"]}\\n')
    ...     pairs = read_table(table, {"image": "file", "text": "captions"}).pairs
    >>> pairs.column("text")[:], pairs.group
    (['a dog', 'a brown dog'], array([0, 0]))
    """
    path = Path(path)
    if captions not in ("separate", "concatenate"):
        raise InputError(f"captions must be 'separate' or 'concatenate', got {captions!r}.")
    arrays = {name: given for name, given in modalities.items() if isinstance(given, np.ndarray)}
    columns = {name: given for name, given in modalities.items() if isinstance(given, str)}
    if len(modalities) != 2 or len(arrays) + len(columns) != 2 or not columns:
        raise InputError("modalities must be two, each a column of the table or (one) an array.")
    if unknown := set(files) - set(columns):
        raise InputError(f"files names {sorted(unknown)}, but the columns are of {list(columns)}.")
    keys = {"label": label, "group": group, "split": split}
    layout = _Layout(
        columns,
        {key: column for key, column in keys.items() if column is not None},
        frozenset(files),
        path.parent if root is None else Path(root),
        captions == "concatenate",
    )
    bad = BadRows(path=path)
    found = _collect(path, layout, bad)
    if bad and (strict or not found.rows):
        raise InputError(str(bad))
    for name, array in arrays.items():
        if len(array) != bad.rows:
            raise InputError(f"{path} has {bad.rows} rows, but {name} has {len(array)}.")
    rows = np.array(found.rows, dtype=np.int64)
    if found.several and group is None:
        found.keys["group"] = found.rows
    pairs = Pairs(
        {
            name: Rows(arrays[name], rows)
            if name in arrays
            else Rows(found.texts[name], files=name in layout.files)
            for name in modalities
        },
        label=_as_keys(found.keys.get("label")),
        group=_as_keys(found.keys.get("group")),
    )
    return Table(pairs, np.array(found.keys["split"]) if split else None, rows, bad)


@dataclass
class _Found:
    """One entry a pair in every list; `several` says whether any row gave more than one."""

    texts: dict[str, list[str]]
    keys: dict[str, list[Any]]
    rows: list[int]
    several: bool = False


def _collect(path: Path, layout: _Layout, bad: BadRows) -> _Found:
    """Gather the good rows, and report the others to `bad`."""
    found = _Found({name: [] for name in layout.modalities}, {key: [] for key in layout.keys}, [])
    unit = "row" if path.suffix.lower() == ".parquet" else "line"
    wanted = [*layout.modalities.values(), *layout.keys.values()]
    for row, (line, record) in enumerate(read_records(path, dict.fromkeys(wanted))):
        bad.rows += 1
        try:
            if isinstance(record, str):
                raise _BadRowError(record)
            texts = {name: _texts(record, name, layout) for name in layout.modalities}
            keys = {key: _key(record, key, column) for key, column in layout.keys.items()}
            if sum(len(column) > 1 for column in texts.values()) > 1:
                both = " and ".join(layout.modalities.values())
                raise _BadRowError(f"{both} are both lists; only one of them may be")
        except _BadRowError as reason:
            bad.add(f"{unit} {line}: {reason}")
            continue
        count = max(map(len, texts.values()))
        found.several = found.several or count > 1
        found.rows += [row] * count
        for key, value in keys.items():
            found.keys[key] += [value] * count
        for name, column in texts.items():
            found.texts[name] += column * (count // len(column))
    return found


def _texts(record: dict[str, Any], name: str, layout: _Layout) -> list[str]:
    """The texts of one cell, or its one path."""
    column = layout.modalities[name]
    value = record.get(column)
    if name in layout.files:
        text = os.path.join(layout.root, _text(value, column))
        if not os.path.isfile(text):
            raise _BadRowError(f"{column}: file not found: {text}")
        return [text]
    if not isinstance(value, list):
        return [_text(value, column)]
    if not value:
        raise _BadRowError(f"{column} is an empty list")
    texts = [_text(v, f"{column} {i} of {len(value)}") for i, v in enumerate(value, start=1)]
    return ["\n".join(texts)] if layout.concatenate else texts


def _text(value: object, what: str) -> str:
    if fault := text_fault(value, what):
        raise _BadRowError(fault)
    return cast(str, value)


def text_fault(value: object, what: str) -> str | None:
    """Why a value is not text to work with; None if it is."""
    if value is None:
        return f"{what} is missing"
    if not isinstance(value, str):
        return f"{what} must be text, got {type(value).__name__}"
    if not value.strip():
        return f"{what} is empty"
    if not value.isascii() and re.search("[\ud800-\udfff]", value):
        return f"{what} is not UTF-8 text"
    return None


def _key(record: dict[str, Any], key: str, column: str) -> str | int:
    value = record.get(column)
    if key != "split" and type(value) is int:
        return value
    text = _text(value, column)
    if key != "split":
        return text
    name = split_name(text)
    if name is None:
        raise _BadRowError(f"{column} is {text!r}; expected train, valid or test")
    return name


def _as_keys(values: list[Any] | None) -> NDArray[Any] | None:
    """Whole numbers if all are, else texts; None if the table has no such column."""
    if values is None:
        return None
    if all(type(value) is int and abs(value) < 2**63 for value in values):
        return np.array(values, dtype=np.int64)
    return np.array([str(value) for value in values])
