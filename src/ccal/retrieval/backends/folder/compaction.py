"""Compaction: new rows of the item store become segments, small segments become larger ones.

The files of a segment are written first; the item store lists it afterwards, in one transaction. A
process that dies between the two leaves files that nobody looks at. Files that are missing or
damaged are written again from the item store.
"""

import secrets
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from ccal.errors import CcalError, InputError
from ccal.files import FileLock, LockedError
from ccal.retrieval.backends.folder.candidates import QUERIES, write_candidates
from ccal.retrieval.backends.folder.item_store import ItemStore
from ccal.retrieval.backends.folder.segments import SPAN, Segment, Span, write_items, write_vectors
from ccal.retrieval.items import Binding, DamagedIndexError

TAIL = 4096
"""Rows that may wait outside of segments; reading them takes milliseconds when an index opens."""


def segments_of(store: ItemStore) -> list[Segment]:
    """All segments, in the order of their rows."""
    sql = "SELECT name, modality, first, last, count, approximate FROM segments ORDER BY first"
    return [Segment(*row) for row in store.query(sql)]


def compact_if_due(store: ItemStore, binding: Binding, *, always: bool = False) -> None:
    """Compact after a change; the change is safe even if compaction fails. For the writer only."""
    try:
        if always or _is_due(store):
            _compact(store, binding)
    except (OSError, CcalError) as error:
        if isinstance(error, DamagedIndexError):
            raise
        warnings.warn(
            f"{store.folder}: the change is safe, but files for faster search could not be written "
            f"({error}).",
            stacklevel=2,
        )


def remove_orphans(store: ItemStore) -> None:
    """Remove files of segments that are not listed. For the writer only."""
    known = {segment.name for segment in segments_of(store)}
    for path in [*store.folder.glob("segment-*"), *store.folder.glob(".segment-*")]:
        if path.stem not in known:
            path.unlink(missing_ok=True)


def repair(
    store: ItemStore, binding: Binding, damaged: Mapping[str, Segment], lock: FileLock
) -> bool:
    """Write segments again, given by the names of damaged files.

    False if that must wait, as another process writes or the disk is full.
    """
    held = lock.held
    try:
        lock.acquire()
    except (LockedError, InputError):
        return False
    try:
        known = segments_of(store)
        for name, segment in damaged.items():
            if segment in known:
                _replace(store, binding, [segment], [segment.span], store.compacted)
                warnings.warn(
                    f"{store.folder / name} was missing or damaged; it was written again from "
                    f"{store.path.name}.",
                    stacklevel=2,
                )
    except OSError as error:
        warnings.warn(
            f"{store.folder} has files that are missing or damaged and cannot be written again "
            f"({error}); {store.path.name} answers in their place, slower.",
            stacklevel=2,
        )
        return False
    finally:
        if not held:
            lock.release()
    return True


def _is_due(store: ItemStore) -> bool:
    """Whether enough rows are new or outdated."""
    if store.last_row() - store.compacted > TAIL:
        return True
    sql = "SELECT (SELECT count(*) FROM removed) + (SELECT count(*) FROM described)"
    ((stale,),) = store.query(sql)
    return stale > TAIL // 4 and any(_is_stale(store, segment) for segment in segments_of(store))


def _compact(store: ItemStore, binding: Binding) -> None:
    """Bring all rows into segments."""
    done, last = store.compacted, store.last_row()
    sql = "SELECT modality, count(*) FROM items WHERE row > ? GROUP BY modality"
    new: dict[str, int] = dict(store.query(sql, [done]))
    known = segments_of(store)
    old, spans = [], []
    for modality in dict.fromkeys([*new, *(segment.modality for segment in known)]):
        own = [segment for segment in known if segment.modality == modality]
        merged = _to_merge(own, new.get(modality, 0))
        if new.get(modality) or merged:
            first = merged[0].first if merged else done + 1
            old += merged
            spans.append((modality, first, last))
        for segment in own:
            if segment not in merged and _is_stale(store, segment):
                old.append(segment)
                spans.append(segment.span)
    _replace(store, binding, old, spans, last)


def _to_merge(own: list[Segment], new: int) -> list[Segment]:
    """The last segments that have at most twice as many rows as those after them.

    Sizes then fall steeply from one segment to the next: n rows make about log n segments, and
    each row is written about log n times.
    """
    merged: list[Segment] = []
    while new and len(merged) < len(own) and own[-1 - len(merged)].count <= 2 * new:
        merged.insert(0, own[-1 - len(merged)])
        new += merged[0].count
    return merged


def _is_stale(store: ItemStore, segment: Segment) -> bool:
    """Whether more than a quarter of a segment was removed or changed."""
    counts = (
        store.query(f"SELECT count(*) FROM {table} WHERE {SPAN}", segment.span)[0][0]
        for table in ("removed", "described")
    )
    return bool(4 * sum(counts) > segment.count)


def _replace(
    store: ItemStore, binding: Binding, old: list[Segment], spans: list[Span], compacted: int
) -> None:
    """Write a segment for each span of rows of a modality, and list them instead of the old."""
    try:
        made = [_write(store, binding, *span) for span in spans]
        with store.writing():
            for segment in old:
                store.query("DELETE FROM segments WHERE name = ?", [segment.name])
            for span in spans:
                store.query(f"DELETE FROM removed WHERE {SPAN}", span)
                store.query(f"DELETE FROM described WHERE {SPAN}", span)
            for new in filter(None, made):
                values = [new.name, new.modality, new.first, new.last, new.count, new.approximate]
                store.query("INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?)", values)
            store.compacted = compacted
    except BaseException:
        # On a full disk each attempt would leave its files, and fill the rest.
        with suppress(OSError, CcalError):
            remove_orphans(store)
        raise
    # A reader that has not opened the old ones reads these rows from its view of the item store.
    remove_orphans(store)


def _write(
    store: ItemStore, binding: Binding, modality: str, first: int, last: int
) -> Segment | None:
    """The rows of a modality between two numbers as files; None if there are none."""
    segment = Segment(f"segment-{secrets.token_hex(6)}", modality, first, last)
    rows, vectors = store.vectors(SPAN, segment.span, binding)
    if not len(rows):
        return None
    write_vectors(store.folder / segment.file("vectors"), rows, vectors)
    write_items(store.folder / segment.file("items"), store.records(SPAN, segment.span)[1])
    crc = None
    if len(rows) >= binding.approximate_from:
        # The order of checksums is as good as a random one.
        some = "SELECT row FROM items WHERE modality != ? ORDER BY crc LIMIT ?"
        _, others = store.vectors(f"row IN ({some})", [modality, QUERIES], binding)
        crc = write_candidates(store.folder, segment, vectors, binding.codes, others)
    return replace(segment, count=len(rows), approximate=crc)
