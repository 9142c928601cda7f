"""What a search sees: the segments, the rows that are in none yet, and those removed."""

from __future__ import annotations

import warnings
import zlib
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ccal.array_files import DamagedFileError
from ccal.retrieval.embedded.approximate import Approximate, is_available
from ccal.retrieval.embedded.codes import CodesFile
from ccal.retrieval.embedded.parts import Part
from ccal.retrieval.embedded.records import Records
from ccal.retrieval.embedded.sealing import Entry, entries
from ccal.retrieval.embedded.segments import ItemsFile, VectorsFile
from ccal.retrieval.embedded.truth import Truth
from ccal.retrieval.items import Binding

__all__ = ["Snapshot"]

# So few numbers of float16 are kept as float32 in memory, as converting them takes longer than
# comparing them.
_SMALL = 1 << 21


@dataclass
class Snapshot:
    """The state after a number of changes.

    `damaged` are files, by their names, that the truth stood in for, with their segments. `version`
    is that of the database, by which one knows that nothing changed.
    """

    changes: int
    version: tuple[int, int]
    parts: dict[str, list[Part]] = field(default_factory=dict)
    damaged: dict[str, Entry] = field(default_factory=dict)
    _segments: dict[str, Part] = field(default_factory=dict)

    @classmethod
    def read(
        cls, truth: Truth, folder: Path, binding: Binding, previous: Snapshot | None
    ) -> Snapshot:
        """The state of now, inside a transaction; segments that were open before stay open."""
        snapshot = cls(int(truth.get("changes")), truth.version())
        for entry in entries(truth):
            part = previous and previous._segments.get(entry.name)
            if part:
                snapshot._segments[entry.name] = part
            else:
                part = snapshot._open(truth, folder, binding, entry)
            part = _as_of_now(part, truth, entry)
            snapshot.parts.setdefault(entry.modality, []).append(part)
        for modality in binding.modalities:
            tail = ("row > ? AND modality = ?", [int(truth.get("sealed")), modality])
            part = _from_truth(truth, binding, modality, *tail)
            if len(part.rows):
                snapshot.parts.setdefault(modality, []).append(part)
        return snapshot

    def _open(self, truth: Truth, folder: Path, binding: Binding, entry: Entry) -> Part:
        """A segment, from the truth where its files are not to be trusted."""
        try:
            file = VectorsFile(folder / entry.vectors)
            file.verify()
        except DamagedFileError:
            self.damaged[entry.vectors] = entry
            return _from_truth(truth, binding, entry.modality, *entry.span)
        part = Part(file.rows, _wide(file.vectors), Records(entry.modality, []))
        part.approximate = _open_approximate(folder, entry, binding)
        try:
            items = ItemsFile(folder / entry.items, entry.count)
            items.verify()
        except DamagedFileError:
            self.damaged[entry.items] = entry
        else:
            # One that was written again since this transaction began lacks what was removed since.
            if items.changes <= self.changes:
                part.records = Records(entry.modality, items)
                self._segments[entry.name] = part
                return part
        part.records = Records(entry.modality, truth.records_of(file.rows, *entry.span))
        return part


def _as_of_now(part: Part, truth: Truth, entry: Entry) -> Part:
    """A segment without what was removed since, and with what was described anew."""
    condition, values = entry.span
    gone = truth.query(f"SELECT row FROM removed WHERE {condition}", values)
    alive = ~np.isin(part.rows, np.array(gone, np.int64)) if gone else None
    rows, records = truth.records(f"row IN (SELECT row FROM described WHERE {condition})", values)
    positions = np.searchsorted(part.rows, rows).tolist()
    changed = dict(zip(positions, records, strict=True))
    return replace(part, alive=alive, records=replace(part.records, changed=changed))


def _from_truth(
    truth: Truth, binding: Binding, modality: str, condition: str, values: list[object]
) -> Part:
    rows, vectors = truth.vectors(condition, values, binding.dim, binding.dtype)
    records = Records(modality, truth.records_of(rows, condition, values))
    return Part(rows, _wide(vectors), records)


def _wide(vectors: NDArray[np.floating]) -> NDArray[np.floating]:
    return vectors.astype(np.float32, copy=False) if vectors.size <= _SMALL else vectors


def _open_approximate(
    folder: Path, entry: Entry, binding: Binding
) -> Approximate | CodesFile | None:
    """The codes of a segment, or its faiss index if faiss is installed; if it is whole."""
    if entry.approximate is None:
        return None
    path = folder / (entry.faiss if binding.codes is None else entry.codes)
    with suppress(DamagedFileError, OSError):
        if binding.codes is not None:
            codes = CodesFile(path)
            codes.verify()
            return codes
        if not is_available():
            return None
        content = path.read_bytes()
        if zlib.crc32(content) == entry.approximate:
            return Approximate(content)
    warnings.warn(f"{path} is missing or damaged: search is exact, and slower.", stacklevel=2)
    return None
