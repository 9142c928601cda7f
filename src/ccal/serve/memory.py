"""Memory: a bound on what the requests under way hold together."""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from typing import Any

from ccal.serve.batching import BusyError

_LARGE = 16_000_000


class Memory:
    """Counts bytes that requests hold: at most so many, or one request that alone needs more."""

    def __init__(self, most: int) -> None:
        self.held = 0
        self._most, self._changed = most, threading.Condition()

    def take(self, size: int, seconds: float = 0.0) -> None:
        """Take so many bytes within this time, or raise `BusyError`.

        >>> memory = Memory(10)
        >>> memory.take(8)
        >>> memory.take(3)
        Traceback (most recent call last):
        ccal.serve.batching.BusyError: Other requests take all the memory; try again soon.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._fits(size), seconds):
                raise BusyError("Other requests take all the memory; try again soon.")
            self.held += size

    def give(self, size: int) -> None:
        """Give bytes back."""
        with self._changed:
            self.held -= size
            self._changed.notify_all()

    def _fits(self, size: int) -> bool:
        return not self.held or self.held + size <= self._most


class Lease:
    """The memory of one file: of its decoding, which a thread does, and then of what came out.

    A request may be over before its thread is: whichever ends last gives the memory back.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory, self._size = memory, 0
        self._lock, self._working, self._over = threading.Lock(), False, False

    def begin(self, size: int, seconds: float) -> None:
        """In the thread: take what decoding needs."""
        self._memory.take(size, seconds)
        self._size, self._working = size, True

    def end(self, left: int) -> None:
        """In the thread: keep so many bytes until the request is over."""
        if self._size > _LARGE:
            _trim()
        with self._lock:
            self._working = False
            self._keep(0 if self._over else left)

    def close(self) -> None:
        """The request is over."""
        with self._lock:
            self._over = True
            if not self._working:
                self._keep(0)

    def _keep(self, size: int) -> None:
        self._memory.give(self._size - size)
        self._size = size


def _trim() -> None:
    """Give memory that is free back to the system; glibc keeps it otherwise."""
    libc = _libc()
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


@cache
def _libc() -> Any:
    try:
        return ctypes.CDLL(None)
    except (OSError, TypeError):  # Windows
        return None
