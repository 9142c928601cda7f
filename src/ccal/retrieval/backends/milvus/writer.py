"""The writer of an index in Milvus: its lock, its changes, and what follows them."""

from __future__ import annotations

import itertools
import re
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from ccal.errors import CcalError
from ccal.retrieval.backends.base import Batches
from ccal.retrieval.backends.milvus import rows, upkeep
from ccal.retrieval.backends.milvus.lock import WriterLock
from ccal.retrieval.backends.milvus.server import Server
from ccal.retrieval.backends.milvus.state import State
from ccal.retrieval.backends.milvus.writing import Writing
from ccal.retrieval.items import Binding, in_use, is_an_index

__all__ = ["Writer"]

_BURIED = 1000


class Writer:
    """Takes the lock with the first change, and keeps it until it is closed.

    `current` gives the state, and refuses one of another model than the home was opened for.
    """

    def __init__(self, server: Server, current: Callable[[], State]) -> None:
        self._server, self._lock, self._current = server, WriterLock(server), current
        self._guard = threading.RLock()
        self._changes: Iterator[int] = iter(())
        self._numbers: Iterator[int] = iter(())
        self._whole = True
        self._left, self._ready = False, False

    @contextmanager
    def changing(self) -> Iterator[Writing]:
        """A change as a whole or not at all; upkeep follows if it is due."""
        with self._guard:
            state = self._as_writer()
            writing = Writing(self._server, state, next(self._changes), self._numbers)
            with self._undoing(state, writing.state.change):
                yield writing
                self._refuse_lost_lock()
                self._server.commit(writing.state)
            self._keep_up(writing.state)

    def build(self, binding: Binding, batches: Batches, again: bool) -> None:
        """Fill a new collection, and let the name stand for it."""
        server, name = self._server, self._server.address.name
        old = server.state()
        self._left = self._lock.acquire(after=old.generation if old else 0)
        old = server.state()
        if old and self._left:
            self._begin(old)  # it stays if this build fails
        if old and not again:
            raise is_an_index(self._server.address.shown)
        # Collections to which no alias moved are what builds left that died.
        for other in server.call("list_collections"):
            if re.fullmatch(re.escape(name) + "_[0-9a-f]{12}", other) and (
                old is None or other != old.collection
            ):
                server.call("drop_collection", other)
        first = self._start_counting()
        self._ready = True
        state = State(binding.to_json(), f"{name}_{secrets.token_hex(6)}", first)
        try:
            rows.make_collection(server, state.collection, binding.dim)
            upkeep.make_index(server, state.collection)
            writing = Writing(server, state, next(self._changes), self._numbers)
            for items, vectors in batches:
                writing.insert(items, vectors)
            server.commit(writing.state)
            self._keep_up(writing.state)
            server.call("alter_alias" if old else "create_alias", state.collection, name)
        except BaseException:
            with suppress(CcalError):
                server.call("drop_collection", state.collection)
            raise
        if old:
            server.call("drop_collection", old.collection)

    def close(self) -> None:
        """Let others write, unless something is left for them to put aside."""
        with self._guard, suppress(CcalError):
            if self._lock.held and self._whole and (self._ready or not self._left):
                self._lock.release()

    @contextmanager
    def _undoing(self, state: State, change: int) -> Iterator[None]:
        """What is written inside never counts if it fails."""
        try:
            yield
        except BaseException:
            self._whole = False  # until it is told; if it cannot be, the next writer will
            with suppress(CcalError):
                self._refuse_lost_lock()
                self._server.commit(state.voiding(change, change, change=change))
                self._server.call("delete", state.collection, filter=f"born == {change}")
                self._whole = True
            raise

    def _as_writer(self) -> State:
        """The state, after the lock was taken and what a dead writer left was put aside."""
        while not self._lock.held:
            self._left = self._lock.acquire(after=self._current().generation)
            self._ready = False
            if self._current().generation >= self._lock.generation:
                self._lock.release()  # another one came and went between the two
        if not self._ready:
            self._begin(self._current())
        self._refuse_lost_lock()
        return self._current()

    def _begin(self, state: State) -> None:
        """Start counting; changes of a writer that died never count from here on."""
        first = self._start_counting()
        if self._left:
            last, state = state.change, state.voiding(state.change + 1, first - 1)
        self._server.commit(replace(state, change=first))
        if self._left:
            condition = f"born > {last} and born < {first}"
            self._server.call("delete", state.collection, filter=condition)
        self._ready = True

    def _refuse_lost_lock(self) -> None:
        if not self._lock.is_current():
            raise in_use(self._server.address.shown, "another process, which has taken it over")

    def _start_counting(self) -> int:
        """Numbers of changes and rows that no other writer used or will use; the first of them."""
        generation = self._lock.generation
        self._changes = itertools.count((generation << 32) + 1)
        self._numbers = itertools.count(generation << 36)
        return generation << 32

    def _keep_up(self, state: State) -> None:
        """The change itself has happened, whatever becomes of this."""
        if state.buried > _BURIED:
            state = upkeep.sweep(self._server, state, self._changes)
        if not state.probes and upkeep.wanted_cells(state):
            upkeep.make_cells(self._server, state, self._changes)
