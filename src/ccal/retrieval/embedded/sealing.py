"""From the truth to segments: new rows become one, small ones become larger ones.

A segment holds the rows of one modality between two numbers. Sealing writes the file first and then
tells the truth of it, so that a process that dies between the two leaves a file nobody looks at.
"""

from __future__ import annotations

import secrets
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ccal.errors import CcalError
from ccal.retrieval.embedded.segments import write_file, write_segment
from ccal.retrieval.errors import DamagedIndexError
from ccal.retrieval.items import Binding

if TYPE_CHECKING:
    from ccal.retrieval.embedded.truth import Truth

__all__ = [
    "Entry",
    "approximate_path",
    "entries",
    "numbers",
    "rewrite",
    "seal_if_due",
    "tidy",
]

TAIL = 4096
"""Rows that may wait outside of segments; reading them takes milliseconds when an index opens."""


@dataclass(frozen=True)
class Entry:
    """What the truth knows of a segment; `approximate` is the CRC-32 of its faiss file, if any."""

    name: str
    modality: str
    first: int
    last: int
    count: int
    approximate: int | None


def entries(truth: Truth) -> list[Entry]:
    """All segments, in the order of their rows."""
    sql = "SELECT name, modality, first, last, count, approximate FROM segments ORDER BY first"
    return [Entry(*row) for row in truth.query(sql)]


def is_due(truth: Truth) -> bool:
    """Whether so much is new or removed that sealing pays."""
    if truth.last_row() - int(truth.get("sealed")) > TAIL:
        return True
    ((removed,),) = truth.query("SELECT count(*) FROM removed")
    return removed > TAIL // 4 and any(_is_sparse(truth, entry) for entry in entries(truth))


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
    """Segments, those with a faiss index, rows outside of any, rows removed from one."""
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
            if entry not in merged and _is_sparse(truth, entry):
                old.append(entry)
                made.append((modality, entry.first, entry.last))
    _replace(truth, folder, binding, old, made, sealed=last)


def rewrite(truth: Truth, folder: Path, binding: Binding, entry: Entry) -> None:
    """Write a segment again that is damaged, for the writer only."""
    span = (entry.modality, entry.first, entry.last)
    _replace(truth, folder, binding, [entry], [span], sealed=int(truth.get("sealed")))


def tidy(truth: Truth, folder: Path) -> None:
    """Remove files that a process left which died while sealing, for the writer only."""
    known = {entry.name for entry in entries(truth)}
    for path in [*folder.glob("segment-*"), *folder.glob(".segment-*")]:
        if path.stem not in known:
            path.unlink(missing_ok=True)


def approximate_path(folder: Path, name: str) -> Path:
    """The faiss file of a segment."""
    return folder / f"{name}.faiss"


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


def _is_sparse(truth: Truth, entry: Entry) -> bool:
    """Whether more than a quarter of a segment was removed."""
    sql = "SELECT count(*) FROM removed WHERE modality = ? AND row BETWEEN ? AND ?"
    ((gone,),) = truth.query(sql, [entry.modality, entry.first, entry.last])
    return bool(4 * gone > entry.count)


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
        for modality, first, last in spans:
            sql = "DELETE FROM removed WHERE modality = ? AND row BETWEEN ? AND ?"
            truth.query(sql, [modality, first, last])
        for new in filter(None, made):
            values = [new.name, new.modality, new.first, new.last, new.count, new.approximate]
            truth.query("INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?)", values)
        truth.set("sealed", sealed)
    # A search that has not opened them yet falls back to the truth, as it was for it.
    for entry in old:
        (folder / f"{entry.name}.vectors").unlink(missing_ok=True)
        approximate_path(folder, entry.name).unlink(missing_ok=True)


def _write(
    truth: Truth, folder: Path, binding: Binding, modality: str, first: int, last: int
) -> Entry | None:
    """The rows of a modality between two numbers as a file; None if there are none."""
    span = "modality = ? AND row BETWEEN ? AND ?"
    rows, vectors = truth.vectors(span, [modality, first, last], binding.dim, binding.dtype)
    if not len(rows):
        return None
    name = f"segment-{secrets.token_hex(6)}"
    write_segment(folder / f"{name}.vectors", rows, vectors)
    crc = None
    if len(rows) >= binding.approximate_from:
        from ccal.retrieval.embedded import approximate

        if approximate.is_available():
            content = approximate.build(vectors)
            write_file(approximate_path(folder, name), [content])
            crc = zlib.crc32(content)
    return Entry(name, modality, first, last, len(rows), crc)
