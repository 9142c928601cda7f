"""Queries of many requests through the towers together, by one thread."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from ccal.errors import CcalError

Request = TypeVar("Request")
Reply = TypeVar("Reply")
_MOST_WINDOWS = 5


class BusyError(CcalError):
    """Too many queries wait already, or the server stops."""


class Batcher(Generic[Request, Reply]):
    """One thread that answers all waiting queries as one batch, again and again.

    While the thread works on a batch, the next one gathers. A query that finds the thread idle is
    answered at once if the last batch had one query. If it had more, as many are likely on their
    way: the thread waits for them until `window` seconds pass without another query, and for five
    times that in all.

    Args:
        work: answers a batch, in order; for an exception in place of an answer, see `ask`.
        batch: most queries of a batch.
        waiting: number of waiting queries at which no more are taken.
        observe: called with the size of each batch and the seconds it took.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Request]], Sequence[Reply | Exception]],
        *,
        batch: int = 32,
        window: float = 0.002,
        waiting: int = 256,
        observe: Callable[[int, float], None] = lambda size, seconds: None,
    ) -> None:
        self._work, self._batch, self._window = work, batch, window
        self._most, self._observe = waiting, observe
        self._queue: deque[tuple[Request, asyncio.Future[Reply]]] = deque()
        self._changed = threading.Condition()
        self._wanted = 1
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="ccal-towers", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Number of queries that no batch has taken yet."""
        return len(self._queue)

    @property
    def alive(self) -> bool:
        """Whether queries are being answered."""
        return self._thread.is_alive() and not self._closed

    async def ask(self, request: Sequence[Request]) -> list[Reply | Exception]:
        """Replies in order, an exception where a query failed; `BusyError` if too many wait."""
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Reply]] = [loop.create_future() for _ in request]
        with self._changed:
            if self._closed:
                raise BusyError("The server stops.")
            if len(self._queue) >= self._most:
                raise BusyError(f"{self._most} queries wait already; try again soon.")
            self._queue.extend(zip(request, futures, strict=True))
            # If it woke for each query, the thread would take turns with this one all the time.
            if len(self._queue) >= self._wanted:
                self._changed.notify()
        if len(futures) == 1:  # by far the most frequent case, and gather is slow
            try:
                return [await futures[0]]
            except Exception as error:
                return [error]
        found: list[Any] = await asyncio.gather(*futures, return_exceptions=True)
        return found

    def close(self) -> None:
        """Answer all waiting queries, then stop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        last = 0
        while batch := self._next(last):
            # A future is cancelled if the time is up, or the client has gone.
            batch = [(request, future) for request, future in batch if not future.cancelled()]
            last = len(batch)
            if not batch:
                continue
            started = time.perf_counter()
            try:
                replies = self._work([request for request, _ in batch])
            except Exception as error:
                replies = [error] * len(batch)
            self._observe(len(batch), time.perf_counter() - started)
            _deliver([future for _, future in batch], replies)

    def _next(self, last: int) -> list[tuple[Request, asyncio.Future[Reply]]]:
        """The next batch, after one of `last` queries; empty if the batcher is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            end, seen = time.monotonic() + _MOST_WINDOWS * self._window, 0
            self._wanted = min(last, self._batch)
            while seen < len(self._queue) < self._wanted and not self._closed:
                if time.monotonic() >= end:
                    break
                seen = len(self._queue)
                self._changed.wait(self._window)
            self._wanted = 1
            return [self._queue.popleft() for _ in range(min(self._batch, len(self._queue)))]


def attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result, or the exception in its place."""
    try:
        return function(*arguments)
    except Exception as error:
        return error


def _deliver(futures: list[asyncio.Future[Reply]], replies: Sequence[Reply | Exception]) -> None:
    """Hand all replies to their event loop in one call: to wake it once is cheaper."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Any]] = {}
    for future, reply in zip(futures, replies, strict=True):
        by_loop.setdefault(future.get_loop(), []).append((future, reply))
    for loop, pairs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, pairs)
        except RuntimeError:  # the loop is closed, and nobody waits
            continue


def _settle(pairs: list[tuple[asyncio.Future[Reply], Reply | Exception]]) -> None:
    for future, reply in pairs:
        if future.done():
            continue
        if isinstance(reply, Exception):
            future.set_exception(reply)
        else:
            future.set_result(reply)
