"""A collection that takes a while to be made: its server answers meanwhile, and says how far."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from ccal.serve.collection import Answer, Collection, NotReadyError, Question

__all__ = ["LateCollection", "Report"]

Report = Callable[[str, int, int], None]
"""Told what is being done, how much of it is, and of how much."""

_JOIN_SECONDS = 10.0


class _StopError(Exception):
    """Nobody waits for the collection any more."""


class LateCollection:
    """Stands in for a collection while a thread makes it; until then whoever asks is told to wait.

    Args:
        make: makes the collection, and reports how far it is.
        title: what to call it meanwhile.
        ready: called with the collection, in the thread.

    >>> late = LateCollection(lambda report: None, title="folk tunes")
    >>> try:
    ...     late.check()
    ... except NotReadyError as error:
    ...     print(error)
    Getting ready: loading.
    """

    def __init__(
        self,
        make: Callable[[Report], Collection],
        *,
        title: str,
        ready: Callable[[Collection], None] = lambda _: None,
    ) -> None:
        self.title = title
        # Why there will be no collection.
        self.error: Exception | None = None
        self._make, self._ready = make, ready
        self._made: Collection | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ccal-making", daemon=True)
        self._state = ("loading", 0, 0)

    def warm(self) -> None:
        """Begin; the server does not wait for the end."""
        self._thread.start()

    def answer(self, questions: Sequence[Question]) -> list[Answer | Exception]:
        """Answers in order."""
        return self._real().answer(questions)

    def close(self) -> None:
        """Stop, be it in the middle; what was rendered so far is there the next time."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_SECONDS)
        if self._made is not None:
            self._made.close()

    # Everything else that one can ask a collection.
    def __getattr__(self, name: str) -> Any:
        return getattr(self._real(), name)

    def _real(self) -> Collection:
        if self._made is None:
            what, done, total = self._state
            raise NotReadyError(what, done, total)
        return self._made

    def _report(self, what: str, done: int, total: int) -> None:
        if self._stopped.is_set():
            raise _StopError
        self._state = (what, done, total)

    def _run(self) -> None:
        try:
            made = self._make(self._report)
            self._report("loading", 0, 0)
            made.warm()
        except _StopError:
            return
        except Exception as error:
            self.error = error
            return
        self._made = made
        self._ready(made)
