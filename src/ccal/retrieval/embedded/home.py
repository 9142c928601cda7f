"""EmbeddedHome: an index in a folder."""

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
from ccal.retrieval.bound import Bound
from ccal.retrieval.embedded import places, sealing
from ccal.retrieval.embedded.current import Current
from ccal.retrieval.embedded.ranking import ranked
from ccal.retrieval.embedded.records import Catalogue
from ccal.retrieval.embedded.repair import describe_all
from ccal.retrieval.embedded.truth import Truth
from ccal.retrieval.errors import DamagedIndexError
from ccal.retrieval.filters import Condition
from ccal.retrieval.home import Batches, Vectors
from ccal.retrieval.items import Binding, Change, Item
from ccal.retrieval.refusals import is_an_index, no_index

__all__ = ["EmbeddedHome"]


class EmbeddedHome(Bound):
    """A folder: truth.sqlite, writer.lock and segment files. See `ccal.retrieval.home.Home`.

    The first change takes the writer's lock, `close` gives it back. Threads may share one.
    """

    kind = "embedded"

    def __init__(self, folder: Path, lock: FileLock | None = None) -> None:
        self.folder, self.location = folder, str(folder)
        self._guard = threading.RLock()
        self._lock = lock or FileLock(folder / places.LOCK)
        self._truth = Truth(folder / places.TRUTH)
        self._current = Current(self._truth, folder, self._lock, self._bind_to_truth)

    @classmethod
    def exists(cls, folder: Path) -> bool:
        """Whether there is an index, be it a damaged one."""
        return places.exists(folder)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open an index that exists; looks at the headers of its files, which takes no time."""
        if not (folder / places.TRUTH).is_file():
            problem = (
                "there is no such folder" if not folder.exists() else f"no {places.TRUTH} in it"
            )
            raise no_index(folder, problem)
        home = cls(folder)
        with home._closing_on_error():
            if not home._truth.is_complete():
                raise InputError(
                    f"{folder} is a half-written index: building it was interrupted, and nothing "
                    "of it counts. Build it again."
                )
            home._bind_to_truth()
            if home._truth.upgrade():
                describe_all(home._truth, folder, home._lock)
            home._current.check_headers()
        return home

    @classmethod
    def create(cls, folder: Path, binding: Binding, batches: Batches, *, replace: bool) -> Self:
        """Build an index in one transaction, in a folder that is new, empty, or to be replaced."""
        fresh = places.prepare(folder)
        home = cls._begin(folder, replace)
        try:
            with home._truth.writing():
                if home._truth.is_complete():
                    home._truth.upgrade()
                    home._clear(replace)
                else:
                    home._truth.create()
                home._truth.set("binding", binding.to_json())
                for items, vectors in batches:
                    home._truth.insert(items, vectors.astype(binding.dtype))
            home._bind(binding)
            sealing.seal_if_due(home._truth, folder, binding, always=True)
        except BaseException:
            # Before the lock is free, so that nobody else's index is discarded.
            with suppress(CcalError):
                if not home._truth.is_complete():
                    places.discard(folder, fresh)
            home.close()
            raise
        return home

    def insert(self, batches: Batches) -> int:
        """Add items, all or none."""
        count = 0
        with self._changing():
            for items, vectors in batches:
                self._truth.insert(items, vectors.astype(self.binding.dtype))
                count += len(items)
        return count

    def remove(self, ids: Sequence[str]) -> None:
        """Take items out, all or none."""
        with self._changing():
            self._truth.delete(self._truth.rows(ids))

    def change(self, changes: Sequence[Change], vectors: Vectors | None) -> None:
        """Give items new content, all or none."""
        with self._changing():
            rows = self._truth.rows([change.id for change in changes])
            self._truth.describe(rows, changes)
            if vectors is not None:
                self._truth.move(rows, vectors.astype(self.binding.dtype))

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
            state, matching = self._current.state(modalities, where)
        # From here on nothing changes what is looked at, and threads need not wait.
        parts = [(part, name) for name in modalities for part in state.parts.get(name, ())]
        found = [part.nearest(queries, k, matching.get(name), exact) for part, name in parts]
        catalogue = Catalogue([part.records for part, _ in parts])
        return ranked(found, catalogue, len(queries), k)

    def items(self, ids: Sequence[str]) -> list[Item]:
        """Items by id."""
        with self._guard, self._truth.reading():
            rows = self._truth.rows(ids)
            known = self._truth.items(rows)
            return [known[row] for row in rows]

    def vectors(self, ids: Sequence[str]) -> Vectors:
        """Vectors by id, as the truth has them."""
        with self._guard, self._truth.reading():
            wanted = self._truth.rows(ids)
            rows, vectors = self._truth.vectors_of(wanted, self.binding.dim, self.binding.dtype)
            places = np.searchsorted(rows, wanted)
            return vectors[places].astype(np.float32)

    def ids(self, modality: str | None) -> list[str]:
        """All ids, in the order they came."""
        sql = "SELECT id FROM items WHERE coalesce(modality = ?, 1) ORDER BY row"
        with self._guard:
            return [id for (id,) in self._truth.query(sql, [modality])]

    def counts(self) -> dict[str, int]:
        """Items of each modality."""
        with self._guard:
            return self._truth.counts()

    def next_number(self) -> int:
        """A number that no item had before."""
        with self._guard:
            return self._truth.last_row() + 1

    def details(self) -> dict[str, Any]:
        """Segments, rows outside of them, rows removed from them, bytes on disk."""
        with self._guard, self._truth.reading():
            numbers = sealing.numbers(self._truth)
        size = sum(path.stat().st_size for path in self.folder.iterdir() if path.is_file())
        return {**numbers, "bytes": size}

    def check(self) -> None:
        """Read the truth and all segments; damaged segments are written again."""
        with self._guard:
            ((verdict,), *_) = self._truth.query("PRAGMA integrity_check")
            if verdict != "ok":
                raise DamagedIndexError(f"{self._truth.path} is damaged: {verdict}.")
            with self._truth.reading():
                self._truth.vectors("1", [], self.binding.dim, self.binding.dtype)
            self._current.forget()
            self._current.repair()

    def close(self) -> None:
        """Close the files; a writer's lock is free again."""
        with self._guard:
            self._current.forget()
            self._truth.close()
            self._lock.release()

    @classmethod
    def _begin(cls, folder: Path, replace: bool) -> Self:
        """A home to be built, with the writer's lock, whatever state its truth is in."""
        lock = FileLock(folder / places.LOCK)
        places.become_writer(lock)
        try:
            try:
                home = cls(folder, lock)
                home._truth.is_complete()
            except DamagedIndexError:
                if not replace:
                    raise
                places.remove_truth(folder)
                home = cls(folder, lock)
        except BaseException:
            lock.release()
            raise
        return home

    def _clear(self, replace: bool) -> None:
        if not replace:
            raise is_an_index(self.folder)
        self._truth.clear()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """A change as a whole or not at all; sealing follows if it is due."""
        with self._guard:
            if not self._lock.held:
                places.become_writer(self._lock)
                sealing.tidy(self._truth, self.folder)
            with self._truth.writing():
                self._bind_to_truth()
                yield
            sealing.seal_if_due(self._truth, self.folder, self.binding)

    def _bind_to_truth(self) -> Binding:
        self._bind(Binding.from_json(self._truth.get("binding")))
        return self.binding
