"""From the truth to segments: new rows become one, small ones become larger ones.

A segment holds the rows of one modality between two numbers. Sealing writes its files first and
then tells the truth of them, so that a process that dies between the two leaves files nobody looks
at.
"""

from __future__ import annotations

import secrets
import warnings
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ccal.errors import CcalError
from ccal.files import write_atomically
from ccal.retrieval.embedded.segments import write_items, write_vectors
from ccal.retrieval.errors import DamagedIndexError
from ccal.retrieval.items import Binding

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ccal.retrieval.embedded.truth import Truth

__all__ = ["Entry", "describe", "entries", "numbers", "rewrite", "seal_if_due", "tidy"]

TAIL = 4096
"""Rows that may wait outside of segments; reading them takes milliseconds when an index opens."""

_SPAN = "modality = ? AND row BETWEEN ? AND ?"


@dataclass(frozen=True)
class Entry:
    """What the truth knows of a segment.

    `approximate` is the CRC-32 of its faiss file, 0 if it has codes instead, None if neither.
    """

    name: str
    modality: str
    first: int
    last: int
    count: int
    approximate: int | None

    @property
    def vectors(self) -> str:
        """The file of vectors."""
        return f"{self.name}.vectors"

    @property
    def items(self) -> str:
        """The file of records."""
        return f"{self.name}.items"

    @property
    def faiss(self) -> str:
        """The file for approximate search by cells."""
        return f"{self.name}.faiss"

    @property
    def codes(self) -> str:
        """The file for approximate search by binary codes."""
        return f"{self.name}.codes"

    @property
    def span(self) -> tuple[str, list[object]]:
        """The rows it may hold, as a condition and its values."""
        return _SPAN, [self.modality, self.first, self.last]


def entries(truth: Truth) -> list[Entry]:
    """All segments, in the order of their rows."""
    sql = "SELECT name, modality, first, last, count, approximate FROM segments ORDER BY first"
    return [Entry(*row) for row in truth.query(sql)]


def is_due(truth: Truth) -> bool:
    """Whether so much is new or removed that sealing pays."""
    if truth.last_row() - int(truth.get("sealed")) > TAIL:
        return True
    sql = "SELECT (SELECT count(*) FROM removed) + (SELECT count(*) FROM described)"
    ((stale,),) = truth.query(sql)
    return stale > TAIL // 4 and any(_is_stale(truth, entry) for entry in entries(truth))


def seal_if_due(truth: Truth, folder: Path, binding: Binding, always: bool = False) -> None:
    """Seal after a change, which has happened, whatever becomes of this."""
    try:
        if always or is_due(truth):
            seal(truth, folder, binding)
            tidy(truth, folder)
    except (OSError, CcalError) as error:
        if isinstance(error, DamagedIndexError):
            raise
        warnings.warn(
            f"{folder}: the change is safe, but files for faster search could not be written "
            f"({error}).",
            stacklevel=2,
        )


def numbers(truth: Truth) -> dict[str, int]:
    """Segments, those searched approximately, rows outside of any, rows removed from one."""
    known = entries(truth)
    sealed = int(truth.get("sealed"))
    ((waiting,),) = truth.query("SELECT count(*) FROM items WHERE row > ?", [sealed])
    ((removed,),) = truth.query("SELECT count(*) FROM removed")
    return {
        "segments": len(known),
        "approximate": sum(entry.approximate is not None for entry in known),
        "waiting": waiting,
        "removed": removed,
    }


def seal(truth: Truth, folder: Path, binding: Binding) -> None:
    """Bring all rows into segments, for the writer only."""
    sealed, last = int(truth.get("sealed")), truth.last_row()
    sql = "SELECT modality, count(*) FROM items WHERE row > ? GROUP BY modality"
    new: dict[str, int] = dict(truth.query(sql, [sealed]))
    known = entries(truth)
    old, made = [], []
    for modality in dict.fromkeys([*new, *(entry.modality for entry in known)]):
        own = [entry for entry in known if entry.modality == modality]
        merged = _to_merge(own, new.get(modality, 0))
        if new.get(modality) or merged:
            first = merged[0].first if merged else sealed + 1
            old += merged
            made.append((modality, first, last))
        for entry in own:
            if entry not in merged and _is_stale(truth, entry):
                old.append(entry)
                made.append((modality, entry.first, entry.last))
    _replace(truth, folder, binding, old, made, sealed=last)


def rewrite(truth: Truth, folder: Path, binding: Binding, entry: Entry) -> None:
    """Write a segment again that is damaged, for the writer only."""
    span = (entry.modality, entry.first, entry.last)
    _replace(truth, folder, binding, [entry], [span], sealed=int(truth.get("sealed")))


def describe(truth: Truth, folder: Path, entry: Entry, rows: NDArray[np.int64]) -> None:
    """Write the records of a segment, whose rows (n,) these are, for the writer only."""
    records = truth.records_of(rows, *entry.span)
    write_items(folder / entry.items, records, int(truth.get("changes")))


def tidy(truth: Truth, folder: Path) -> None:
    """Remove files that a process left which died while sealing, for the writer only."""
    known = {entry.name for entry in entries(truth)}
    for path in [*folder.glob("segment-*"), *folder.glob(".segment-*")]:
        if path.stem not in known:
            path.unlink(missing_ok=True)


def _to_merge(own: list[Entry], new: int) -> list[Entry]:
    """The last segments that are not much larger than what follows them.

    So sizes fall steeply from one to the next: n rows make about log n segments, and a row is
    written about log n times.
    """
    merged: list[Entry] = []
    while new and len(merged) < len(own) and own[-1 - len(merged)].count <= 2 * new:
        merged.insert(0, own[-1 - len(merged)])
        new += merged[0].count
    return merged


def _is_stale(truth: Truth, entry: Entry) -> bool:
    """Whether more than a quarter of a segment was removed, or described anew."""
    condition, values = entry.span
    counts = (
        truth.query(f"SELECT count(*) FROM {table} WHERE {condition}", values)[0][0]
        for table in ("removed", "described")
    )
    return bool(4 * sum(counts) > entry.count)


def _replace(
    truth: Truth,
    folder: Path,
    binding: Binding,
    old: list[Entry],
    spans: list[tuple[str, int, int]],
    sealed: int,
) -> None:
    """Write a segment for each span of rows of a modality, and let them stand for the old ones."""
    made = [_write(truth, folder, binding, *span) for span in spans]
    with truth.writing():
        for entry in old:
            truth.query("DELETE FROM segments WHERE name = ?", [entry.name])
        for span in spans:
            truth.query(f"DELETE FROM removed WHERE {_SPAN}", span)
            truth.query(f"DELETE FROM described WHERE {_SPAN}", span)
        for new in filter(None, made):
            values = [new.name, new.modality, new.first, new.last, new.count, new.approximate]
            truth.query("INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?)", values)
        truth.set("sealed", sealed)
    # A search that has not opened them yet falls back to the truth, as it was for it.
    for entry in old:
        for name in (entry.vectors, entry.items, entry.faiss, entry.codes):
            (folder / name).unlink(missing_ok=True)


def _write(
    truth: Truth, folder: Path, binding: Binding, modality: str, first: int, last: int
) -> Entry | None:
    """The rows of a modality between two numbers as files; None if there are none."""
    name = f"segment-{secrets.token_hex(6)}"
    entry = Entry(name, modality, first, last, 0, None)
    rows, vectors = truth.vectors(*entry.span, binding.dim, binding.dtype)
    if not len(rows):
        return None
    write_vectors(folder / entry.vectors, rows, vectors)
    describe(truth, folder, entry, rows)
    crc = None
    if len(rows) >= binding.approximate_from:
        crc = _write_approximate(folder, entry, vectors, binding.codes)
    return replace(entry, count=len(rows), approximate=crc)


def _write_approximate(
    folder: Path, entry: Entry, vectors: NDArray[np.floating], codes: int | None
) -> int | None:
    """The file for approximate search, by codes of so many bits if given; see `Entry`."""
    from ccal.retrieval.embedded.approximate import build, is_available
    from ccal.retrieval.embedded.codes import write_codes

    if codes is not None:
        write_codes(folder / entry.codes, vectors, codes)
        return 0
    if not is_available():
        return None
    content = build(vectors)
    write_atomically(folder / entry.faiss, content)
    return zlib.crc32(content)
