"""FolderBackend: an index in a folder."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import numpy as np

from ccal.errors import CcalError, InputError
from ccal.files import FileLock
from ccal.retrieval.answers import Answers
from ccal.retrieval.backends.base import Backend, Batches, Vectors
from ccal.retrieval.backends.folder import compaction, layout
from ccal.retrieval.backends.folder.item_store import ItemStore
from ccal.retrieval.backends.folder.ranking import Catalogue, ranked
from ccal.retrieval.backends.folder.view import CurrentView
from ccal.retrieval.filters import Condition
from ccal.retrieval.items import Binding, Change, DamagedIndexError, Item, is_an_index, no_index


class FolderBackend(Backend):
    """A folder with items.sqlite, writer.lock and segment files.

    A change is one SQLite transaction; compaction may follow it. The first change takes the
    writer's lock, `close` gives it back. Threads may share one backend.
    """

    kind = "folder"

    def __init__(self, folder: Path, lock: FileLock | None = None) -> None:
        self.folder, self.location = folder, str(folder)
        self._guard = threading.RLock()
        self._lock = lock or FileLock(folder / layout.LOCK)
        self._store = ItemStore(layout.database_of(folder))
        self._current = CurrentView(self._store, folder, self._lock, self._read_binding)

    @classmethod
    def exists(cls, location: str) -> bool:
        """Whether there is an index that was built to its end, or a damaged one."""
        path = layout.database_of(Path(location))
        if not path.is_file():
            return False
        try:
            store = ItemStore(path)
            try:
                return store.is_complete()
            finally:
                store.close()
        except DamagedIndexError:
            return True

    @classmethod
    def open(cls, location: str) -> Self:
        """Open an index; looks at the headers of its files, which takes no time."""
        folder = Path(location)
        if not layout.database_of(folder).is_file():
            missing = not folder.exists()
            problem = "there is no such folder" if missing else f"no {layout.DATABASE} in it"
            raise no_index(folder, problem)
        backend = cls(folder)
        with backend._closing_on_error():
            if not backend._store.is_complete():
                raise InputError(
                    f"{folder} is a half-written index: building it was interrupted, and nothing "
                    "of it counts. Build it again."
                )
            backend._read_binding()
            backend._store.upgrade()
            backend._current.check_headers()
        return backend

    @classmethod
    def create(cls, location: str, binding: Binding, batches: Batches, *, replace: bool) -> Self:
        """Build an index in one transaction, in a folder that is new, empty, or to be replaced."""
        folder = Path(location)
        fresh = layout.prepare(folder)
        backend = cls._begin(folder, replace)
        store = backend._store
        try:
            with store.writing():
                if store.is_complete():
                    if not replace:
                        raise is_an_index(folder)
                    store.upgrade()
                    store.clear()
                else:
                    store.create()
                store.set("binding", binding.to_json())
                for items, vectors in batches:
                    store.insert(items, vectors.astype(binding.dtype))
            backend._bind(binding)
            compaction.compact_if_due(store, folder, binding, always=True)
        except BaseException:
            # Before the lock is free, so that nobody else's index is discarded.
            with suppress(CcalError):
                if not store.is_complete():
                    layout.discard(folder, fresh)
            backend.close()
            raise
        return backend

    def insert(self, batches: Batches) -> int:
        """Add items, all or none."""
        count = 0
        with self._changing():
            for items, vectors in batches:
                self._store.insert(items, vectors.astype(self.binding.dtype))
                count += len(items)
        return count

    def remove(self, ids: Sequence[str]) -> None:
        """Remove items, all or none."""
        with self._changing():
            self._store.delete(self._store.rows(ids))

    def change(self, changes: Sequence[Change], vectors: Vectors | None) -> None:
        """Give items new content, all or none."""
        with self._changing():
            rows = self._store.rows([change.id for change in changes])
            self._store.describe(rows, changes)
            if vectors is not None:
                self._store.move(rows, vectors.astype(self.binding.dtype))

    def search(
        self,
        queries: Vectors,
        modalities: Sequence[str],
        k: int,
        where: Sequence[Condition],
        exact: bool,
    ) -> Answers:
        """The k nearest of each query, from one state of the index."""
        with self._guard:
            view, matching = self._current.state(modalities, where)
        # A view never changes, so that threads can search it side by side.
        shards = [(shard, name) for name in modalities for shard in view.shards.get(name, ())]
        found = [shard.nearest(queries, k, matching.get(name), exact) for shard, name in shards]
        catalogue = Catalogue([shard.records for shard, _ in shards])
        return ranked(found, catalogue, len(queries), k)

    def items(self, ids: Sequence[str]) -> list[Item]:
        """Items by id."""
        with self._guard, self._store.reading():
            rows = self._store.rows(ids)
            known = self._store.items(rows)
            return [known[row] for row in rows]

    def vectors(self, ids: Sequence[str]) -> Vectors:
        """Vectors by id, as the item store has them."""
        with self._guard, self._store.reading():
            wanted = self._store.rows(ids)
            rows, vectors = self._store.vectors_of(wanted, self.binding.dim, self.binding.dtype)
            return vectors[np.searchsorted(rows, wanted)].astype(np.float32)

    def ids(self, modality: str | None) -> list[str]:
        """All ids, in the order in which they were added."""
        sql = "SELECT id FROM items WHERE coalesce(modality = ?, 1) ORDER BY row"
        with self._guard:
            return [id for (id,) in self._store.query(sql, [modality])]

    def counts(self) -> dict[str, int]:
        """Items of each modality."""
        with self._guard:
            return self._store.counts()

    def next_number(self) -> int:
        """A number that no item had before."""
        with self._guard:
            return self._store.last_row() + 1

    def details(self) -> dict[str, Any]:
        """Segments, rows outside of them, rows removed from them, bytes on disk."""
        with self._guard, self._store.reading():
            numbers = compaction.numbers(self._store)
        size = sum(path.stat().st_size for path in self.folder.iterdir() if path.is_file())
        return {**numbers, "bytes": size}

    def check(self) -> None:
        """Read the item store and all segments; damaged segments are written again."""
        with self._guard:
            ((verdict,), *_) = self._store.query("PRAGMA integrity_check")
            if verdict != "ok":
                raise DamagedIndexError(f"{self._store.path} is damaged: {verdict}.")
            with self._store.reading():
                self._store.vectors("1", [], self.binding.dim, self.binding.dtype)
            self._current.forget()
            self._current.repair()

    def close(self) -> None:
        """Close the files and give the writer's lock back."""
        with self._guard:
            self._current.forget()
            self._store.close()
            self._lock.release()

    @classmethod
    def _begin(cls, folder: Path, replace: bool) -> Self:
        """A backend to be built, with the writer's lock; a damaged database may be replaced."""
        lock = FileLock(folder / layout.LOCK)
        layout.become_writer(lock)
        try:
            try:
                backend = cls(folder, lock)
                backend._store.is_complete()
            except DamagedIndexError:
                if not replace:
                    raise
                layout.remove_database(folder)
                backend = cls(folder, lock)
        except BaseException:
            lock.release()
            raise
        return backend

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """One transaction; compaction follows if it is due."""
        with self._guard:
            if not self._lock.held:
                layout.become_writer(self._lock)
                compaction.remove_orphans(self._store, self.folder)
            with self._store.writing():
                self._read_binding()
                yield
            compaction.compact_if_due(self._store, self.folder, self.binding)

    def _read_binding(self) -> Binding:
        self._bind(Binding.from_json(self._store.get("binding")))
        return self.binding
