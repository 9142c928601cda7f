"""Leaks: what held-out rows share with training rows, exactly or nearly, in words for people."""

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ccal.columns import short
from ccal.data.duplicates import find_lookalikes, item_numbers
from ccal.data.pairs import Pairs, Rows
from ccal.data.reading import Data
from ccal.data.source import Source

_HELD_OUT = {"test": "test", "valid": "validation"}
_MOST_COMPARISONS = 10**8  # of pictures, which take some seconds


def leak_notes(data: Data, source: Source) -> list[str]:
    """Sentences on rows that stay together, and on what the parts of a split share all the same.

    Those that begin with "warning: " cast doubt on figures. Near-duplicates are counted: texts that
    differ in case, punctuation and spaces only, and pictures that look the same.
    """
    held_out = {part: getattr(data.split, part) for part in _HELD_OUT}
    held_out = {part: rows for part, rows in held_out.items() if len(rows)}
    if not held_out:
        return []
    shared = {name: _shared(data, name, held_out) for name in data.pairs.names}
    notes = [_together(data, shared)] if _keeps_rows_together(data, source) else []
    for name, rows in shared.items():
        if any(map(len, rows.values())):
            notes.append(_leak(data, source, name, rows, held_out))
        notes.append(_near(data, name, rows, held_out))
    return [note for note in notes if note]


def _keeps_rows_together(data: Data, source: Source) -> bool:
    by_class = source.layout is not None and data.pairs.label is not None
    by_label = source.split_by == "label" or (by_class and source.split_by is None)
    return not (source.allow_leaks or source.split_column or by_label or data.listed)


RowsByPart: TypeAlias = Mapping[str, NDArray[np.int64]]


def _shared(data: Data, name: str, held_out: RowsByPart) -> dict[str, NDArray[np.int64]]:
    """The rows of each held-out part whose item of a modality is in training, too."""
    items = data.pairs.items(name)
    return {
        part: rows[np.isin(items[rows], items[_seen(data, part)])]
        for part, rows in held_out.items()
    }


def _seen(data: Data, part: str) -> NDArray[np.int64]:
    """The rows that training has seen when a part is measured; in the end it may see `valid`."""
    train, valid = data.split.train, data.split.valid
    return np.union1d(train, valid) if part == "test" else train


def _together(data: Data, shared: Mapping[str, RowsByPart]) -> str:
    """A sentence on items that several rows show, if these rows stayed together."""
    n, found = len(data.pairs), {}
    for name, rows in shared.items():
        count = len(np.unique(data.pairs.items(name)))
        if count < n and not any(map(len, rows.values())):
            found[name] = f"{count:,} distinct {name}"
    if not found:
        return ""
    return (
        f"{n:,} rows show {' and '.join(found.values())} items; rows of one "
        f"{' or of one '.join(found)} stay together (--allow-leaks splits them)"
    )


def _leak(data: Data, source: Source, name: str, rows: RowsByPart, held_out: RowsByPart) -> str:
    """A sentence on held-out rows that share an item with training: how many, why, what to do."""
    counts = {
        part: f"{len(rows[part]):,} of {len(all_rows):,}" for part, all_rows in held_out.items()
    }
    amounts = _listed(counts, {part: len(found) for part, found in rows.items()})
    example = _item(data.pairs, name, next(found[0] for found in rows.values() if len(found)))
    text = f"{amounts} rows share their {name} with training rows, as {example}"
    if source.allow_leaks:
        return f"{text} (--allow-leaks)"
    if source.split_column:
        return (
            f"warning: {text}; take them out of one part, or leave --split-column out, and "
            f"rows of one {name} stay together"
        )
    if not _keeps_rows_together(data, source):
        return text
    few = 10 * len(np.unique(data.pairs.items(name))) <= len(data.pairs)
    hint = f"; if {name} is a class, see --label and --split-by label" if few else ""
    return f"{text}: too many rows share their {name} to stay together{hint}"


def _near(data: Data, name: str, shared: RowsByPart, held_out: RowsByPart) -> str:
    """A sentence on held-out items that nearly, but not exactly, equal items of training."""
    pairs, items = data.pairs, data.pairs.items(name)
    column = pairs.column(name)
    if not column.is_text or (column.files and not data.looks):
        return ""  # rows of arrays are compared exactly only
    plain = np.empty(0, np.int64) if column.files else _plain_numbers(column, items)
    counts, example, at_least = dict.fromkeys(held_out, 0), ("", ""), ""
    for part, rows in held_out.items():
        train = _one_row_each(items, _seen(data, part))
        own = _one_row_each(items, np.setdiff1d(rows, shared[part]))
        if len(own) == 0:
            continue
        if column.files:
            step = 1 + len(own) * len(train) // _MOST_COMPARISONS
            own, at_least = own[::step], "at least " if step > 1 else at_least
            looks = [np.stack([data.looks[path] for path in column[r]]) for r in (own, train)]
            found = find_lookalikes(looks[0], looks[1])
        else:
            known = {number: place for place, number in enumerate(plain[train].tolist())}
            found = np.array([known.get(number, -1) for number in plain[own].tolist()])
        counts[part] = int((found >= 0).sum())
        if counts[part] and not example[0]:
            at = int(np.argmax(found >= 0))
            example = _item(pairs, name, own[at]), _item(pairs, name, train[found[at]])
    if not any(counts.values()):
        return ""
    amounts = _listed({part: f"{count:,}" for part, count in counts.items()}, counts)
    what = (
        "that look like training ones (the same picture re-encoded or resized?)"
        if column.files
        else "that equal training ones but for case, punctuation and spaces"
    )
    text = f"{name} items {what}: {at_least}{amounts}, as {example[0]} and {example[1]}"
    return f"warning: {text}" if column.files else text


def _plain_numbers(texts: Rows, items: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers (n,) that are equal for texts that are the same but for case and punctuation."""
    _, first, codes = np.unique(items, return_index=True, return_inverse=True)
    return item_numbers([_plain(text) for text in texts[first]], files=False)[codes]


def _one_row_each(items: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first of the rows that hold the same item."""
    return rows[np.sort(np.unique(items[rows], return_index=True)[1])]


def _plain(text: str) -> str:
    """A text without case, punctuation and spaces; a text of punctuation alone as it is.

    >>> _plain("A dog, running!") == _plain("a dog running")
    True
    """
    return re.sub(r"[\W_]+", " ", text.casefold()).strip() or text


def _listed(amounts: Mapping[str, str], counts: Mapping[str, int]) -> str:
    """The parts that have any, as in "3 of 50 test and 2 of 40 validation"."""
    return " and ".join(f"{amounts[part]} {_HELD_OUT[part]}" for part in counts if counts[part])


def _item(pairs: Pairs, name: str, row: int) -> str:
    """An item as a person knows it: the name of a file, a text, or the row of an array."""
    column: Any = pairs.column(name)
    if column.files:
        return str(column[int(row)])
    if column.is_text:
        return f'"{short(str(column[int(row)]), 60)}"'
    return f"row {row if column.index is None else column.index[row]:,} (from 0)"
