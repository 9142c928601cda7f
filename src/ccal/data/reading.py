"""The pairs of a `Source` and their split, with hashes that notice changed data."""

import difflib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ccal.data.arrays import describe_bad_rows, load_array, rows_at_once
from ccal.data.pairs import Pairs
from ccal.data.published import read_layout
from ccal.data.published.layouts import PUBLISHED
from ccal.data.published.plain_files import read_lines
from ccal.data.records import read_records
from ccal.data.source import LAYOUTS, SHARE, Source, View, layout_kind
from ccal.data.splits import Split, column_split, split_pairs
from ccal.data.tables import Table, read_table
from ccal.errors import InputError
from ccal.features import scan_images
from ccal.features.scan import SUFFIXES


def content_hash(pairs: Pairs) -> str:
    """SHA-256 of all that pairs hold, read a piece at a time."""
    digest = hashlib.sha256()
    for name in pairs.names:
        rows = pairs.column(name)
        digest.update(f"{name} {rows.shape} {getattr(rows.source, 'dtype', 'text')}\n".encode())
        step = rows_at_once(rows.source) if isinstance(rows.source, np.ndarray) else 1024
        for start in range(0, len(rows), step):
            chunk = rows[start : start + step]
            if rows.is_text:
                # Lengths, so that ["ab", "c"] is not ["a", "bc"].
                texts = (text.encode() for text in chunk)
                digest.update(b"".join(b"%d:%b" % (len(text), text) for text in texts))
            else:
                digest.update(np.ascontiguousarray(chunk).tobytes())
    for keys in (pairs.label, pairs.group):
        digest.update(b"-" if keys is None else "\n".join(map(str, keys.tolist())).encode())
    return digest.hexdigest()


def split_hash(split: Split) -> str:
    """SHA-256 of the rows of each part."""
    parts = (split.train, split.valid, split.test)
    return hashlib.sha256(b"|".join(rows.tobytes() for rows in parts)).hexdigest()


@dataclass(frozen=True)
class Data:
    """All pairs of a `Source`, their split, and warnings for the user (`notes`).

    `looks` has a small picture of each image file; see `ImageScan`. `listed` says that the split is
    that of a published data set.
    """

    pairs: Pairs
    split: Split
    notes: tuple[str, ...] = ()
    looks: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict, repr=False)
    listed: bool = False

    def part(self, name: str) -> Pairs:
        """The pairs of "train", "valid" or "test"."""
        rows: NDArray[np.int64] = getattr(self.split, name)
        return self.pairs[rows]

    def facts(self) -> dict[str, Any]:
        """Sizes, and SHA-256 of content and split, by which a change is noticed."""
        return {
            "modalities": list(self.pairs.names),
            "pairs": len(self.pairs),
            "train": len(self.split.train),
            "valid": len(self.split.valid),
            "test": len(self.split.test),
            "data_sha256": content_hash(self.pairs),
            "split_sha256": split_hash(self.split),
        }


def read_source(source: Source) -> Data:
    """Read, check and split the pairs of a source."""
    for view in source.views:
        view.check_name()
    if source.layout is None and source.train_classes != "train":
        raise InputError("train_classes belongs to the layout 'reed'; leave it out.")
    pairs, parts, notes, looks = (_from_arrays if source.table is None else _from_table)(source)
    # Published data with classes are split by class, for zero-shot retrieval.
    by_class = source.layout is not None and pairs.label is not None
    by = source.split_by or ("label" if by_class else None)
    split_rows = partial(split_pairs, by=by, seed=source.split_seed, allow_leaks=source.allow_leaks)
    valid, test = _held_out(source, pairs)
    if parts is None:
        return Data(pairs, split_rows(pairs, valid=valid, test=test), notes, looks)
    split = column_split(parts)
    if len(split.valid) == 0:
        # Tables often know train and test only; the validation pairs come from train.
        inner = split_rows(pairs[split.train], valid=valid, test=0)
        split = Split(split.train[inner.train], split.train[inner.valid], split.test)
    elif len(split.test) == 0 and source.layout is not None:
        inner = split_rows(pairs[split.valid], valid=0, test=test)
        split = Split(split.train, split.valid[inner.train], split.valid[inner.test])
    return Data(pairs, split, notes, looks, listed=source.layout is not None)


def _held_out(source: Source, pairs: Pairs) -> tuple[float | int, float | int]:
    """The sizes of the validation and the test part.

    Those of a layout are the paper's, if they are at most a fifth of its images.
    """
    sizes: list[float | int] = [SHARE, SHARE]
    if source.layout is not None:
        paper = PUBLISHED[source.layout].held_out
        images = len(pairs) if pairs.group is None else len(np.unique(pairs.group))
        if paper is not None and 5 * sum(paper) <= images:
            sizes = list(paper)
    valid, test = source.valid, source.test
    return sizes[0] if valid is None else valid, sizes[1] if test is None else test


_Looks = dict[str, NDArray[np.uint8]]
_Read = tuple[Pairs, NDArray[np.str_] | None, tuple[str, ...], _Looks]


def _from_arrays(source: Source) -> _Read:
    views = {view.name: _array(source, view) for view in source.views}
    (n, first), (m, second) = ((len(a), p) for a, p in views.values())
    if n != m:
        raise InputError(
            f"{first} has {n:,} rows and {second} has {m:,}; "
            "row i of one must belong to row i of the other."
        )
    bad, notes = _bad(source, views)
    pairs = Pairs({name: array for name, (array, _) in views.items()})
    return (pairs[np.setdiff1d(np.arange(n), bad)] if len(bad) else pairs), None, notes, {}


def _from_table(source: Source) -> _Read:
    path = source.path(cast(str, source.table))
    arrays = {view.name: _array(source, view) for view in source.views if view.file is not None}
    if len(arrays) == 2:
        raise InputError(
            f"x and y are both array files, so {path} has nothing to add; leave the table out, "
            "or let one of them be a column."
        )
    if source.layout is None and path.is_dir():
        raise InputError(
            f"{path} is a folder; expected a table, or a published data set with its layout "
            f"({', '.join(LAYOUTS)})."
        )
    read = _read_table if source.layout is None else _read_layout
    table = read(source, path, {name: array for name, (array, _) in arrays.items()})
    notes: tuple[str, ...] = (str(table.bad),) if table.bad else ()
    keep = np.ones(len(table.pairs), dtype=bool)
    looks: _Looks = {}
    for name in table.pairs.names:
        rows = table.pairs.column(name)
        if isinstance(rows.source, np.ndarray):
            # Features that no view names are files of the data set itself.
            _, file = arrays.get(name, (None, path))
            bad, found = _bad(source, {name: (rows.source, file)})
            keep &= ~np.isin(cast("NDArray[np.int64]", rows.index), bad)
            notes += found
        elif rows.files:
            scan = scan_images(rows[:], strict=not source.skip_bad_rows)
            notes += (str(scan.bad),) if scan.bad else ()
            keep &= np.isin(np.arange(len(rows)), scan.good)
            looks |= scan.looks
    if keep.all():
        return table.pairs, table.split, notes, looks
    if not keep.any():
        raise InputError(f"{path}: no row is left to train on.")
    parts = None if table.split is None else table.split[keep]
    return table.pairs[keep], parts, notes, looks


def _read_table(source: Source, path: Path, arrays: dict[str, NDArray[Any]]) -> Table:
    columns = {view.name: view.column for view in source.views if view.column is not None}
    given = {v.name: arrays.get(v.name, v.column) for v in source.views}
    try:
        return read_table(
            path,
            cast("dict[str, str | NDArray[Any]]", given),
            files=[name for name, column in columns.items() if _names_images(path, column)],
            root=None if source.files is None else source.path(source.files),
            label=source.label,
            group=source.group,
            split=source.split_column,
            captions=source.captions,
            strict=not source.skip_bad_rows,
        )
    except InputError as error:
        keys = (source.label, source.group, source.split_column)
        wanted = [*columns.values(), *(key for key in keys if key)]
        hint = _views_hint(source) if "no column" in str(error) else ""
        hint = hint or _nearest(path, wanted)
        raise InputError(f"{error}{hint}") from error


def _read_layout(source: Source, path: Path, arrays: dict[str, NDArray[Any]]) -> Table:
    """The pairs of a published data set, under the names that the source gives them."""
    assert source.layout is not None
    names = None
    for view in source.views:
        if view.file is not None:
            beside = source.path(view.file).with_suffix(".txt")
            names = [name for _, name in read_lines(beside)] if beside.is_file() else None
    table = read_layout(
        source.layout,
        path,
        files=None if source.files is None else source.path(source.files),
        features=next(iter(arrays.values()), None),
        names=names,
        captions=source.captions,
        listed=source.split_by is None,
        train_classes=source.train_classes,
        strict=not source.skip_bad_rows,
    )
    named = {
        view.name: table.pairs.column(layout_kind(source, place))
        for place, view in enumerate(source.views)
    }
    return replace(table, pairs=Pairs(named, label=table.pairs.label, group=table.pairs.group))


def _views_hint(source: Source) -> str:
    """A hint why the column of a view was not found."""
    return next(filter(None, (view.hint() for view in source.views if view.column)), "")


def _names_images(path: Path, column: str) -> bool:
    """Whether the first entry of a column is the name of an image file."""
    for _, record in islice(read_records(path, (column,)), 100):
        if isinstance(record, dict) and isinstance(value := record.get(column), str):
            return value.lower().endswith(SUFFIXES)
    return False


def _array(source: Source, view: View) -> tuple[NDArray[Any], Path]:
    path = source.path(cast(str, view.file))
    try:
        return load_array(path, view.key), path
    except InputError as error:
        hint = "" if path.is_file() else view.hint()
        raise InputError(f"{error}{hint}") from error


def _bad(
    source: Source, arrays: dict[str, tuple[NDArray[Any], Path]]
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Rows with NaN or infinite values in any of the arrays; refused unless to be skipped."""
    bad, notes = np.empty(0, dtype=np.int64), []
    for array, path in arrays.values():
        rows, text = describe_bad_rows(array, path)
        if not len(rows):
            continue
        if not source.skip_bad_rows:
            raise InputError(f"{text}; remove these rows everywhere, or skip bad rows.")
        bad = np.union1d(bad, rows)
        notes.append(f"{text}; left out")
    if any(len(bad) >= len(array) for array, _ in arrays.values()):
        raise InputError("Every row has NaN or infinite values; there is nothing to train on.")
    return bad, tuple(notes)


def _nearest(path: Path, wanted: list[str]) -> str:
    """A hint if the table has a column whose name is close to the one it lacks."""
    try:
        records = (r for _, r in islice(read_records(path, ()), 100) if isinstance(r, dict))
        known = list(dict.fromkeys(name for record in records for name in record))
    except InputError:
        return ""
    if len(known) == 1 and any(name in known[0].split(";") for name in wanted):
        return " Is the file separated by ';'? Save it with commas, or with tabs as .tsv."
    for name in wanted:
        if known and name not in known and (near := difflib.get_close_matches(name, known, n=1)):
            return f" Did you mean {near[0]!r} for {name!r}?"
    return ""
