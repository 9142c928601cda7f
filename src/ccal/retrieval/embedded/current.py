"""The state of now: read again when it changed, repaired where files are damaged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ccal.array_files import DamagedFileError
from ccal.files import FileLock
from ccal.retrieval.embedded.repair import repair
from ccal.retrieval.embedded.sealing import entries
from ccal.retrieval.embedded.segments import ItemsFile, VectorsFile
from ccal.retrieval.embedded.snapshot import Snapshot
from ccal.retrieval.embedded.truth import Truth
from ccal.retrieval.filters import Condition
from ccal.retrieval.items import Binding

__all__ = ["Current"]


class Current:
    """Keeps the last snapshot; `bind` reads the binding anew, and refuses one of another model."""

    def __init__(
        self, truth: Truth, folder: Path, lock: FileLock, bind: Callable[[], Binding]
    ) -> None:
        self._truth, self._folder, self._lock, self._bind = truth, folder, lock, bind
        self._snapshot: Snapshot | None = None

    def state(
        self, modalities: Sequence[str], where: Sequence[Condition]
    ) -> tuple[Snapshot, dict[str, NDArray[np.int64]]]:
        """What is there now, and the rows of each modality that meet the conditions, if any."""
        # Damage that appears later is answered from the truth, and repaired the next time.
        if self._snapshot is None or self._snapshot.damaged:
            self.repair()
        if not where and self._snapshot and self._snapshot.version == self._truth.version():
            return self._snapshot, {}
        with self._truth.reading():
            state = self._read()
            if not where:
                return state, {}
            return state, {name: self._truth.matching(name, where) for name in modalities}

    def check_headers(self) -> None:
        """Look at the beginnings of all files, which takes no time, and repair them if need be."""
        for entry in entries(self._truth):
            try:
                VectorsFile(self._folder / entry.vectors)
                ItemsFile(self._folder / entry.items, entry.count)
            except DamagedFileError:
                self.repair()
                return

    def repair(self) -> None:
        """Write damaged files again; if another process writes, the truth answers meanwhile."""
        with self._truth.reading():
            damaged = self._read().damaged
        if not damaged or self._truth.changing:
            return
        if repair(self._truth, self._folder, self._bind(), damaged, self._lock):
            with self._truth.reading():
                self._snapshot = self._anew()

    def forget(self) -> None:
        """Read everything anew the next time."""
        self._snapshot = None

    def _read(self) -> Snapshot:
        """The snapshot of this transaction."""
        known, version = self._snapshot, self._truth.version()
        if known and known.changes == int(self._truth.get("changes")):
            known.version = version
            return known
        fresh = self._anew()
        # Who searches in the middle of a change sees what may yet be undone.
        if not self._truth.changing:
            self._snapshot = fresh
        return fresh

    def _anew(self) -> Snapshot:
        return Snapshot.read(self._truth, self._folder, self._bind(), self._snapshot)
