"""Views: what a search sees of a folder, unchanged while it searches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ccal.array_files import DamagedFileError
from ccal.files import FileLock
from ccal.retrieval.backends.base import Vectors
from ccal.retrieval.backends.folder.candidates import Cells, CodesFile, open_candidates
from ccal.retrieval.backends.folder.compaction import repair, segments_of
from ccal.retrieval.backends.folder.item_store import ItemStore
from ccal.retrieval.backends.folder.ranking import ShardRecords
from ccal.retrieval.backends.folder.segments import ItemsFile, Segment, VectorsFile
from ccal.retrieval.exact import Found, descending, nearest, score
from ccal.retrieval.filters import Condition
from ccal.retrieval.items import Binding

# Filters that leave less than this share are searched exactly, among what they leave.
_SELECTIVE = 0.25
# Fewer numbers of float16 than this are kept as float32, as converting takes longer than comparing.
_SMALL = 1 << 21


@dataclass
class Shard:
    """Vectors (n, d) of one modality that are searched together: a segment, or rows in none yet.

    `rows` (n,) are their row numbers, ascending. `alive` (n,) says which still exist, None that
    all do.
    """

    rows: NDArray[np.int64]
    vectors: NDArray[np.floating]
    records: ShardRecords
    alive: NDArray[np.bool_] | None = None
    approximate: Cells | CodesFile | None = None

    def nearest(
        self, queries: Vectors, k: int, matching: NDArray[np.int64] | None, exact: bool
    ) -> Found:
        """Cosines and positions of candidates, only among `matching` rows (m,) if given."""
        allowed = self.alive
        if matching is not None:
            allowed = np.zeros(len(self.rows), np.bool_)
            positions = np.searchsorted(self.rows, matching)
            inside = positions < len(self.rows)
            positions, matching = positions[inside], matching[inside]
            allowed[positions[self.rows[positions] == matching]] = True
            if (chosen := np.flatnonzero(allowed)).size < _SELECTIVE * len(allowed):
                if not chosen.size:
                    return Found.nothing(len(queries))
                return nearest(queries, self.vectors[chosen], k).through(chosen)
        found: Found | None = None
        if self.approximate is not None and not exact:
            found = self._approximate(self.approximate, queries, k, allowed)
        return nearest(queries, self.vectors, k, allowed) if found is None else found

    def _approximate(
        self, index: Cells | CodesFile, queries: Vectors, k: int, allowed: NDArray[np.bool_] | None
    ) -> Found | None:
        """None if there are not enough candidates for one of the queries."""
        at = index.candidates(queries, k, allowed)
        missing = at < 0
        if not missing.any():
            return Found(*descending(score(queries, self.vectors, at), at))
        wanted = min(k, len(self.rows) if allowed is None else int(allowed.sum()))
        if (missing.sum(1) > at.shape[1] - wanted).any():
            return None
        at = at.clip(0)
        cosines = score(queries, self.vectors, at)
        cosines[missing] = -np.inf
        return Found(*descending(cosines, at))


@dataclass
class View:
    """The index after a number of changes, as shards by modality.

    `version` is that of the database, equal as long as nothing changes. `damaged` has the segments
    of damaged files by the files' names; the rows of these come from the item store.
    """

    changes: int
    version: tuple[int, int]
    shards: dict[str, list[Shard]] = field(default_factory=dict)
    damaged: dict[str, Segment] = field(default_factory=dict)
    _opened: dict[str, Shard] = field(default_factory=dict)

    @classmethod
    def read(cls, store: ItemStore, folder: Path, binding: Binding, previous: View | None) -> View:
        """The view inside a transaction; segments of the previous view stay open."""
        view = cls(int(store.get("changes")), store.version())
        for segment in segments_of(store):
            shard = previous and previous._opened.get(segment.name)
            if shard:
                view._opened[segment.name] = shard
            else:
                shard = view._open(store, folder, binding, segment)
            shard = _up_to_date(shard, store, segment)
            view.shards.setdefault(segment.modality, []).append(shard)
        for modality in binding.modalities:
            tail = ("row > ? AND modality = ?", [store.compacted, modality])
            shard = _from_store(store, binding, modality, *tail)
            if len(shard.rows):
                view.shards.setdefault(modality, []).append(shard)
        return view

    def _open(self, store: ItemStore, folder: Path, binding: Binding, segment: Segment) -> Shard:
        """A segment; what its files cannot give comes from the item store."""
        try:
            file = VectorsFile(folder / segment.vectors)
            file.verify()
        except DamagedFileError:
            self.damaged[segment.vectors] = segment
            return _from_store(store, binding, segment.modality, *segment.span)
        shard = Shard(file.rows, _wide(file.vectors), ShardRecords(segment.modality, []))
        shard.approximate = open_candidates(folder, segment, binding)
        try:
            items = ItemsFile(folder / segment.items, segment.count)
            items.verify()
        except DamagedFileError:
            self.damaged[segment.items] = segment
        else:
            # A file that was repaired after this transaction began lacks rows removed since.
            if items.changes <= self.changes:
                shard.records = ShardRecords(segment.modality, items)
                self._opened[segment.name] = shard
                return shard
        records = store.records_of(file.rows, *segment.span)
        shard.records = ShardRecords(segment.modality, records)
        return shard


class CurrentView:
    """The latest view, read again when the index has changed.

    `bind` reads the binding, and refuses one of another model.
    """

    def __init__(
        self, store: ItemStore, folder: Path, lock: FileLock, bind: Callable[[], Binding]
    ) -> None:
        self._store, self._folder, self._lock, self._bind = store, folder, lock, bind
        self._view: View | None = None

    def state(
        self, modalities: Sequence[str], where: Sequence[Condition]
    ) -> tuple[View, dict[str, NDArray[np.int64]]]:
        """The view of now, and under conditions the rows of each modality that meet them."""
        # Damage that appears later is answered by the item store, and repaired the next time.
        if self._view is None or self._view.damaged:
            self.repair()
        if not where and self._view and self._view.version == self._store.version():
            return self._view, {}
        with self._store.reading():
            view = self._read()
            return view, {n: self._store.matching(n, where) for n in modalities if where}

    def check_headers(self) -> None:
        """Look at the headers of all files, which takes no time, and repair them if need be."""
        for segment in segments_of(self._store):
            try:
                VectorsFile(self._folder / segment.vectors)
                ItemsFile(self._folder / segment.items, segment.count)
            except DamagedFileError:
                self.repair()
                return

    def repair(self) -> None:
        """Write damaged files again, unless another process writes."""
        with self._store.reading():
            damaged = self._read().damaged
        if not damaged or self._store.changing:
            return
        if repair(self._store, self._folder, self._bind(), damaged, self._lock):
            with self._store.reading():
                self._view = self._anew()

    def forget(self) -> None:
        """Read everything anew the next time."""
        self._view = None

    def _read(self) -> View:
        """The view of this transaction."""
        known, version = self._view, self._store.version()
        if known and known.changes == int(self._store.get("changes")):
            known.version = version
            return known
        fresh = self._anew()
        # A search in the middle of a change sees rows that may yet be undone.
        if not self._store.changing:
            self._view = fresh
        return fresh

    def _anew(self) -> View:
        return View.read(self._store, self._folder, self._bind(), self._view)


def _up_to_date(shard: Shard, store: ItemStore, segment: Segment) -> Shard:
    """A segment without rows removed since it was written, and with records changed since."""
    condition, values = segment.span
    gone = store.query(f"SELECT row FROM removed WHERE {condition}", values)
    alive = ~np.isin(shard.rows, np.array(gone, np.int64)) if gone else None
    rows, records = store.records(f"row IN (SELECT row FROM described WHERE {condition})", values)
    positions = np.searchsorted(shard.rows, rows).tolist()
    changed = dict(zip(positions, records, strict=True))
    return replace(shard, alive=alive, records=replace(shard.records, changed=changed))


def _from_store(
    store: ItemStore, binding: Binding, modality: str, condition: str, values: list[object]
) -> Shard:
    rows, vectors = store.vectors(condition, values, binding.dim, binding.dtype)
    records = ShardRecords(modality, store.records_of(rows, condition, values))
    return Shard(rows, _wide(vectors), records)


def _wide(vectors: NDArray[np.floating]) -> NDArray[np.floating]:
    return vectors.astype(np.float32, copy=False) if vectors.size <= _SMALL else vectors
