"""Views: what a search sees of a folder, unchanged while it searches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ccal.array_files import DamagedFileError
from ccal.retrieval.answers import ShardRecords
from ccal.retrieval.backends.base import Vectors
from ccal.retrieval.backends.folder.candidates import Cells, CodesFile, open_candidates
from ccal.retrieval.backends.folder.compaction import segments_of
from ccal.retrieval.backends.folder.item_store import ItemStore
from ccal.retrieval.backends.folder.segments import SPAN, ItemsFile, Segment, VectorsFile
from ccal.retrieval.exact import Bools, Candidates, Floats, Ints, descending, nearest, score
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

    rows: Ints
    vectors: Floats
    records: ShardRecords
    alive: Bools | None = None
    approximate: Cells | CodesFile | None = None

    @property
    def count(self) -> int:
        """Items that still exist."""
        return len(self.rows) if self.alive is None else int(self.alive.sum())

    def nearest(self, queries: Vectors, k: int, matching: Ints | None, exact: bool) -> Candidates:
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
                    return Candidates.nothing(len(queries))
                return nearest(queries, self.vectors[chosen], k).through(chosen)
        found: Candidates | None = None
        if self.approximate is not None and not exact:
            found = self._approximate(self.approximate, queries, k, allowed)
        return nearest(queries, self.vectors, k, allowed) if found is None else found

    def _approximate(
        self, index: Cells | CodesFile, queries: Vectors, k: int, allowed: Bools | None
    ) -> Candidates | None:
        """None if there are not enough candidates for one of the queries."""
        at = index.candidates(queries, k, allowed)
        missing = at < 0
        if not missing.any():
            return Candidates(*descending(score(queries, self.vectors, at), at))
        wanted = min(k, len(self.rows) if allowed is None else int(allowed.sum()))
        if (missing.sum(1) > at.shape[1] - wanted).any():
            return None
        at = at.clip(0)
        cosines = score(queries, self.vectors, at)
        cosines[missing] = -np.inf
        return Candidates(*descending(cosines, at))


@dataclass
class FolderView:
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
    def read(cls, store: ItemStore, binding: Binding, previous: FolderView | None) -> FolderView:
        """The view inside a transaction; segments of the previous view stay open."""
        view = cls(int(store.get("changes")), store.version())
        for segment in segments_of(store):
            shard = previous and previous._opened.get(segment.name)
            if shard:
                view._opened[segment.name] = shard
            else:
                shard = view._open(store, binding, segment)
            shard = _up_to_date(shard, store, segment)
            view.shards.setdefault(segment.modality, []).append(shard)
        for modality in binding.modalities:
            values = (store.compacted, modality)
            shard = _from_store(store, binding, modality, "row > ? AND modality = ?", values)
            if len(shard.rows):
                view.shards.setdefault(modality, []).append(shard)
        counts = {
            name: sum(shard.count for shard in shards) for name, shards in view.shards.items()
        }
        if {name: count for name, count in counts.items() if count} != store.counts():
            raise store.damaged("items are lost")
        return view

    def _open(self, store: ItemStore, binding: Binding, segment: Segment) -> Shard:
        """A segment; if one of its files is damaged, its rows come from the item store."""
        name = segment.file("vectors")
        try:
            file = VectorsFile(store.folder / name)
            file.verify()
            name = segment.file("items")
            items = ItemsFile(store.folder / name, segment.count)
            items.verify()
        except DamagedFileError:
            self.damaged[name] = segment
            return _from_store(store, binding, segment.modality, SPAN, segment.span)
        shard = Shard(file.rows, _wide(file.vectors), ShardRecords(segment.modality, items))
        shard.approximate = open_candidates(store.folder, segment, binding)
        self._opened[segment.name] = shard
        return shard


def _up_to_date(shard: Shard, store: ItemStore, segment: Segment) -> Shard:
    """A segment without rows removed since it was written, and with records changed since."""
    gone = store.query(f"SELECT row FROM removed WHERE {SPAN}", segment.span)
    alive = ~np.isin(shard.rows, np.array(gone, np.int64)) if gone else None
    described = f"row IN (SELECT row FROM described WHERE {SPAN})"
    rows, records = store.records(described, segment.span)
    positions = np.searchsorted(shard.rows, rows).tolist()
    changed = dict(zip(positions, records, strict=True))
    return replace(shard, alive=alive, records=replace(shard.records, changed=changed))


def _from_store(
    store: ItemStore, binding: Binding, modality: str, condition: str, values: Sequence[object]
) -> Shard:
    rows, vectors = store.vectors(condition, values, binding)
    _, records = store.records(condition, values)
    return Shard(rows, _wide(vectors), ShardRecords(modality, records))


def _wide(vectors: Floats) -> Floats:
    return vectors.astype(np.float32, copy=False) if vectors.size <= _SMALL else vectors
