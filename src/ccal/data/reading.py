"""The pairs of a `Source` and their split, with hashes that notice changed data."""

import difflib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ccal.data.arrays import describe_bad_rows, load_array
from ccal.data.pairs import Pairs, Rows
from ccal.data.published import match_features, read_reed
from ccal.data.records import read_records
from ccal.data.source import LAYOUTS, Source, View, layout_kind
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
        step = 1024 if rows.is_text else _rows_of_16_mb(rows)
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


def _rows_of_16_mb(rows: Rows) -> int:
    source = cast("NDArray[Any]", rows.source)
    return max(1, (1 << 24) * len(source) // max(1, source.nbytes))


@dataclass(frozen=True)
class Data:
    """All pairs of a `Source`, their split, and warnings for the user (`notes`).

    `looks` has a small picture of each image file; see `ImageScan`.
    """

    pairs: Pairs
    split: Split
    notes: tuple[str, ...] = ()
    looks: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict, repr=False)

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
    pairs, parts, notes, looks = (_from_arrays if source.table is None else _from_table)(source)
    # Published data with classes are split by class, for zero-shot retrieval.
    by = source.split_by or (None if source.layout is None else "label")
    split_rows = partial(
        split_pairs,
        by=by,
        valid=source.valid,
        seed=source.split_seed,
        allow_leaks=source.allow_leaks,
    )
    if parts is None:
        return Data(pairs, split_rows(pairs, test=source.test), notes, looks)
    split = column_split(parts)
    if len(split.valid) == 0:
        # Tables often know train and test only; the validation pairs come from train.
        inner = split_rows(pairs[split.train], test=0)
        split = Split(split.train[inner.train], split.train[inner.valid], split.test)
    return Data(pairs, split, notes, looks)


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
    if source.layout is not None:
        table = _read_layout(source, {name: array for name, (array, _) in arrays.items()})
    else:
        table = _read_table(source, path, {name: array for name, (array, _) in arrays.items()})
    bad, notes = _bad(source, arrays)
    if table.bad:
        notes = (str(table.bad), *notes)
    keep = ~np.isin(table.rows, bad)
    looks: _Looks = {}
    for name in table.pairs.names:
        if (rows := table.pairs.column(name)).files:
            scan = scan_images(rows[:], strict=not source.skip_bad_rows)
            notes = (*notes, str(scan.bad)) if scan.bad else notes
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


def _read_layout(source: Source, arrays: dict[str, NDArray[Any]]) -> Table:
    """The pairs of a folder, under the names that the source gives them.

    Features in `arrays`, by modality, stand for the images, in the order of the data set.
    """
    folder = source.path(str(source.table))
    texts = folder / "text_c10" if (folder / "text_c10").is_dir() else folder
    root = texts.parent if texts.name == "text_c10" else texts
    listed = _class_lists(root) if source.split_by is None else None
    table = read_reed(
        texts,
        images=None if arrays else _image_folder(source, root),
        classes=listed,
        captions=source.captions,
        strict=not source.skip_bad_rows,
    )
    for features in arrays.values():
        table = match_features(table, features)
    named = {
        view.name: table.pairs.column(layout_kind(source, place))
        for place, view in enumerate(source.views)
    }
    pairs = Pairs(named, label=table.pairs.label, group=table.pairs.group)
    return Table(pairs, table.split, table.rows, table.bad)


def _class_lists(root: Path) -> dict[str, Path] | None:
    """The published lists by part; a list `trainval` stands for train and validation classes."""
    there = {name: root / f"{name}classes.txt" for name in ("train", "trainval", "val", "test")}
    there = {name: path for name, path in there.items() if path.is_file()}
    if "train" in there and "val" in there:
        there.pop("trainval", None)
    elif "trainval" in there:
        there["train"] = there.pop("trainval")
        there.pop("val", None)
    return there if "train" in there else None


def _image_folder(source: Source, root: Path) -> Path:
    if source.files is not None:
        return source.path(source.files)
    for name in ("images", "jpg"):
        # The archive of the captions has features in torch7 format in `images`.
        if any(next((root / name).glob(pattern), None) for pattern in ("*.jpg", "*/*.jpg")):
            return root / name
    raise InputError(
        f"{root} has no images/CLASS/IMAGE.jpg and no jpg/IMAGE.jpg; say where the image files "
        "are (--files FOLDER), or give their features (--x image=features.npy)."
    )
