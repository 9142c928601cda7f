"""FolderBackend: an index in a folder."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import numpy as np

from ccal.array_files import DamagedFileError
from ccal.errors import CcalError, InputError
from ccal.files import FileLock, LockedError, sync_folder
from ccal.retrieval.answers import Catalogue, Hits, ranked
from ccal.retrieval.backends.base import Backend, Batches, Vectors
from ccal.retrieval.backends.folder import compaction
from ccal.retrieval.backends.folder.item_store import ItemStore
from ccal.retrieval.backends.folder.segments import ItemsFile, VectorsFile
from ccal.retrieval.backends.folder.view import FolderView
from ccal.retrieval.exact import Ints
from ccal.retrieval.filters import Conditions
from ccal.retrieval.items import (
    Binding,
    Change,
    DamagedIndexError,
    Item,
    in_use,
    is_an_index,
    no_index,
)

DATABASE, LOCK = "items.sqlite", "writer.lock"


class FolderBackend(Backend):
    """A folder with items.sqlite, writer.lock and segment files.

    A change is one SQLite transaction; compaction may follow it. The first change takes the
    writer's lock, `close` gives it back. Threads may share one backend.
    """

    kind = "folder"

    def __init__(self, folder: Path, lock: FileLock | None = None) -> None:
        self.folder, self.location = folder, str(folder)
        self._guard = threading.RLock()
        self._lock = lock or FileLock(folder / LOCK)
        self._store = ItemStore(folder / DATABASE)
        self._view: FolderView | None = None

    @classmethod
    def exists(cls, location: str) -> bool:
        path = Path(location) / DATABASE
        try:
            if not path.is_file():
                return False
            with closing(ItemStore(path)) as store:
                return store.is_complete()
        except DamagedIndexError:
            return True

    @classmethod
    def open(cls, location: str) -> Self:
        """Open an index; looks at the headers of its files, which takes no time."""
        folder = Path(location)
        if not (folder / DATABASE).is_file():
            missing = not folder.exists()
            problem = "there is no such folder" if missing else f"no {DATABASE} in it"
            raise no_index(folder, problem)
        backend = cls(folder)
        with backend.closing_on_error():
            if not backend._store.is_complete():
                raise InputError(
                    f"{folder} is a half-written index: building it was interrupted, and nothing "
                    "of it counts. Build it again."
                )
            with backend._store.reading():
                backend._read_binding()
                segments = compaction.segments_of(backend._store)
            try:
                for segment in segments:
                    VectorsFile(folder / segment.file("vectors"))
                    ItemsFile(folder / segment.file("items"), segment.count)
            except DamagedFileError:
                backend._repair()
        return backend

    @classmethod
    def create(cls, location: str, binding: Binding, batches: Batches, *, replace: bool) -> Self:
        """Build an index in one transaction, in a folder that is new, empty, or to be replaced."""
        folder = Path(location)
        fresh = _prepare(folder)
        backend = cls._begin(folder, replace)
        store = backend._store
        try:
            with store.writing():
                if store.is_complete():
                    if not replace:
                        raise is_an_index(folder)
                    store.clear()
                else:
                    store.create()
                store.set("binding", binding.to_json())
                for items, vectors in batches:
                    store.insert(items, vectors.astype(binding.dtype))
            backend._bind(binding)
            compaction.compact_if_due(store, binding, always=True)
        except BaseException:
            # Before the lock is free, so that nobody else's index is discarded.
            with suppress(CcalError):
                if not store.is_complete():
                    _discard(folder, fresh)
            backend.close()
            raise
        return backend

    def insert(self, batches: Batches) -> None:
        """Add items, all or none."""
        with self._changing():
            for items, vectors in batches:
                self._store.insert(items, vectors.astype(self.binding.dtype))

    def upsert(self, items: Sequence[Item], vectors: Vectors, first: int) -> None:
        with self._changing(compact=False):
            known = self._store.known([item.id for item in items])
            self._store.delete(self._store.rows(known))
            self._store.insert(items, vectors.astype(self.binding.dtype))

    def reserve(self, count: int) -> int:
        return self.next_number()

    def finish_load(self) -> None:
        with self._guard:
            compaction.compact_if_due(self._store, self.binding, always=True)

    def recall(self, key: str) -> str | None:
        with self._guard, self._store.reading():
            found = self._store.query("SELECT value FROM about WHERE key = ?", [key])
        return str(found[0][0]) if found else None

    def note(self, key: str, text: str) -> None:
        with self._changing(compact=False):
            self._store.set(key, text)

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
        self, queries: Vectors, modalities: Sequence[str], k: int, where: Conditions, exact: bool
    ) -> list[Hits]:
        with self._guard:
            view, matching = self._state(modalities, where)
        # A view never changes, so that threads can search it side by side.
        shards = [(shard, name) for name in modalities for shard in view.shards.get(name, ())]
        found = [shard.nearest(queries, k, matching.get(name), exact) for shard, name in shards]
        catalogue = Catalogue([shard.records for shard, _ in shards])
        return ranked(found, catalogue, len(queries), k)

    def items(self, ids: Sequence[str]) -> list[Item]:
        with self._guard:
            return self._store.items(ids)

    def vectors(self, ids: Sequence[str]) -> Vectors:
        with self._guard, self._store.reading():
            wanted = self._store.rows(ids)
            rows, vectors = self._store.vectors_of(wanted, self.binding)
            return vectors[np.searchsorted(rows, wanted)].astype(np.float32)

    def ids(self, modality: str | None) -> list[str]:
        with self._guard, self._store.reading():
            return self._store.ids(modality)

    def counts(self) -> dict[str, int]:
        with self._guard:
            return self._store.counts()

    def next_number(self) -> int:
        with self._guard:
            return self._store.last_row() + 1

    def details(self) -> dict[str, Any]:
        """Segments, rows outside of them, rows removed from them, bytes on disk."""
        store = self._store
        with self._guard, store.reading():
            known = compaction.segments_of(store)
            sql = "SELECT count(*) FROM items WHERE row > ?"
            ((waiting,),) = store.query(sql, [store.compacted])
            ((removed,),) = store.query("SELECT count(*) FROM removed")
        return {
            "segments": len(known),
            "approximate": sum(segment.approximate is not None for segment in known),
            "waiting": waiting,
            "removed": removed,
            "bytes": sum(path.stat().st_size for path in self.folder.iterdir() if path.is_file()),
        }

    def ping(self) -> None:
        with self._guard, self._store.reading():
            self._read_binding()

    def check(self) -> None:
        """Read the item store and all segments; damaged segments are written again."""
        with self._guard:
            self._store.verify()
            self._view = None
            self._repair()

    def close(self) -> None:
        """Close the files and give the writer's lock back."""
        with self._guard:
            self._view = None
            self._store.close()
            self._lock.release()

    @classmethod
    def _begin(cls, folder: Path, replace: bool) -> Self:
        """A backend to be built, with the writer's lock; a damaged database may be replaced."""
        lock = FileLock(folder / LOCK)
        _become_writer(lock)
        try:
            try:
                backend = cls(folder, lock)
                with backend._store.reading():
                    pass
            except DamagedIndexError:
                if not replace:
                    raise
                _remove_database(folder)
                backend = cls(folder, lock)
        except BaseException:
            lock.release()
            raise
        return backend

    @contextmanager
    def _changing(self, *, compact: bool = True) -> Iterator[None]:
        """One transaction; compaction follows if it is due, unless it shall not."""
        with self._guard:
            if not self._lock.held:
                _become_writer(self._lock)
                compaction.remove_orphans(self._store)
            with self._store.writing():
                self._read_binding()
                yield
            if compact:
                compaction.compact_if_due(self._store, self.binding)

    def _read_binding(self) -> Binding:
        self._bind(Binding.from_json(self._store.get("binding")))
        return self.binding

    def _state(
        self, modalities: Sequence[str], where: Conditions
    ) -> tuple[FolderView, dict[str, Ints]]:
        """The view of now, and under conditions the rows of each modality that meet them."""
        # Damage that appears later is answered by the item store, and repaired the next time.
        if self._view is None or self._view.damaged:
            self._repair()
        if not where and self._view and self._view.version == self._store.version():
            return self._view, {}
        with self._store.reading():
            view = self._read_view()
            return view, {n: self._store.matching(n, where) for n in modalities if where}

    def _repair(self) -> None:
        """Write damaged segments again, unless another process writes."""
        with self._store.reading():
            damaged, binding = self._read_view().damaged, self._read_binding()
        if not damaged or self._store.changing:
            return
        if compaction.repair(self._store, binding, damaged, self._lock):
            with self._store.reading():
                self._view = self._new_view()

    def _read_view(self) -> FolderView:
        """The view of this transaction."""
        known, version = self._view, self._store.version()
        if known and known.changes == int(self._store.get("changes")):
            known.version = version
            return known
        fresh = self._new_view()
        # A search in the middle of a change sees rows that may yet be undone.
        if not self._store.changing:
            self._view = fresh
        return fresh

    def _new_view(self) -> FolderView:
        return FolderView.read(self._store, self._read_binding(), self._view)


def _become_writer(lock: FileLock) -> None:
    """Take the writer's lock, or say which process has it."""
    try:
        lock.acquire()
    except LockedError as error:
        raise in_use(lock.path.parent, error.holder) from error


def _prepare(folder: Path) -> bool:
    """Make a folder for an index, or refuse one that holds something else; True if it is new."""
    fresh = not folder.exists()
    if not fresh and not folder.is_dir():
        raise InputError(f"{folder} is a file; an index needs a folder of its own.")
    if not fresh and not (folder / DATABASE).exists():
        strange = sorted(path.name for path in folder.iterdir() if path.name != LOCK)
        if strange:
            raise InputError(
                f"{folder} is not empty and no index: it holds {strange[0]!r}. Name another folder."
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror}).") from error
    sync_folder(folder.parent)
    return fresh


def _discard(folder: Path, fresh: bool) -> None:
    """Remove what a failed build has left, and the folder if it was new."""
    _remove_database(folder)
    (folder / LOCK).unlink(missing_ok=True)
    if fresh:
        with suppress(OSError):
            folder.rmdir()


def _remove_database(folder: Path) -> None:
    """Remove the database with its log."""
    for path in folder.glob(f"{DATABASE}*"):
        path.unlink(missing_ok=True)
