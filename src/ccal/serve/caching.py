"""A value that is made when it is needed, and again when it may have changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Cached"]

Value = TypeVar("Value")


class Cached(Generic[Value]):
    """Makes a value again if `state` is another, or after `seconds`; one thread at a time does.

    >>> calls = []
    >>> value = Cached(lambda: calls.append(1) or len(calls), state=lambda: "same")
    >>> value.get(), value.get()
    (1, 1)
    """

    def __init__(
        self, make: Callable[[], Value], state: Callable[[], object], seconds: float = 300.0
    ) -> None:
        self._make, self._state, self._seconds = make, state, seconds
        self._guard = threading.RLock()
        self._kept: tuple[object, float, Value] | None = None

    def get(self) -> Value:
        """The value of now."""
        state, now = self._state(), time.monotonic()
        kept = self._kept
        if kept is None or kept[0] != state or now - kept[1] > self._seconds:
            with self._guard:
                # Another thread may have made it while this one waited.
                if self._kept is kept:
                    self._kept = (state, now, self._make())
                kept = self._kept
        assert kept is not None
        return kept[2]
