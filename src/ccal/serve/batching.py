"""Queries of many requests through the towers together, by one thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from ccal.errors import CcalError

__all__ = ["Batcher", "BusyError", "ClosedError"]

Question = TypeVar("Question")
Reply = TypeVar("Reply")
_PATIENCE = 5


class BusyError(CcalError):
    """Too many queries wait already."""


class ClosedError(CcalError):
    """The server stops."""


class Batcher(Generic[Question, Reply]):
    """One thread that answers what has come in, as one batch, and again.

    While a batch is worked on, the next one gathers. A query that finds the thread idle is answered
    at once if the last batch had one only. If it had more, as many are likely on their way: they
    are waited for until `window` seconds pass without another one, or five times that in all.

    Args:
        work: answers to a batch, in order; an exception in place of an answer is raised to the one
            who asked.
        batch: most queries of a batch.
        waiting: with so many that wait, no more are taken.
        observe: called with the size of each batch and the seconds it took.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Question]], Sequence[Reply | Exception]],
        *,
        batch: int = 32,
        window: float = 0.002,
        waiting: int = 256,
        observe: Callable[[int, float], None] | None = None,
    ) -> None:
        self._work, self._batch, self._window = work, batch, window
        self._most, self._observe = waiting, observe
        self._queue: deque[tuple[Question, asyncio.Future[Reply]]] = deque()
        self._changed = threading.Condition()
        self._wanted = 1
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="ccal-towers", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Queries that no batch has taken yet."""
        return len(self._queue)

    @property
    def alive(self) -> bool:
        """Whether queries are being answered."""
        return self._thread.is_alive() and not self._closed

    async def ask(self, questions: Sequence[Question]) -> list[Reply | Exception]:
        """The answers, an exception where there is none; `BusyError` if too many wait."""
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Reply]] = [loop.create_future() for _ in questions]
        with self._changed:
            if self._closed:
                raise ClosedError("The server stops.")
            if len(self._queue) >= self._most:
                raise BusyError(f"{self._most} queries wait already; try again soon.")
            self._queue.extend(zip(questions, futures, strict=True))
            # Woken for each query, the thread would take turns with this one all the time.
            if len(self._queue) >= self._wanted:
                self._changed.notify()
        if len(futures) > 1:
            found: list[Any] = await asyncio.gather(*futures, return_exceptions=True)
            return found
        # What most ask need not be gathered.
        return [await _reply(future) for future in futures]

    def close(self) -> None:
        """Answer what waits, then stop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        last = 0
        while batch := self._next(last):
            # Nobody waits for those any more: the time was up, or the client went away.
            batch = [(question, future) for question, future in batch if not future.cancelled()]
            last = len(batch)
            if not batch:
                continue
            started = time.perf_counter()
            try:
                replies = self._work([question for question, _ in batch])
            except Exception as error:
                replies = [error] * len(batch)
            if self._observe is not None:
                self._observe(len(batch), time.perf_counter() - started)
            _deliver([future for _, future in batch], replies)

    def _next(self, last: int) -> list[tuple[Question, asyncio.Future[Reply]]]:
        """The next batch, after one of `last` queries; none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            end, seen = time.monotonic() + _PATIENCE * self._window, 0
            self._wanted = min(last, self._batch)
            while seen < len(self._queue) < self._wanted and not self._closed:
                if time.monotonic() >= end:
                    break
                seen = len(self._queue)
                self._changed.wait(self._window)
            self._wanted = 1
            return [self._queue.popleft() for _ in range(min(self._batch, len(self._queue)))]


async def _reply(future: asyncio.Future[Any]) -> Any:
    """The result, or the exception in its place."""
    try:
        return await future
    except Exception as error:
        return error


def _deliver(futures: list[asyncio.Future[Reply]], replies: Sequence[Reply | Exception]) -> None:
    """Hand over all replies of a loop in one go: waking it up once is cheaper than each time."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Any]] = {}
    for future, reply in zip(futures, replies, strict=True):
        by_loop.setdefault(future.get_loop(), []).append((future, reply))
    for loop, pairs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, pairs)
        except RuntimeError:  # the loop is gone, and with it all who waited
            continue


def _settle(pairs: list[tuple[asyncio.Future[Reply], Reply | Exception]]) -> None:
    for future, reply in pairs:
        if future.done():
            continue
        if isinstance(reply, Exception):
            future.set_exception(reply)
        else:
            future.set_result(reply)
