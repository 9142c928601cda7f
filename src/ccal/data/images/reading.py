"""Work on many items by threads, a little ahead of whoever needs the results."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["in_order"]

Item = TypeVar("Item")
Result = TypeVar("Result")

_MOST_THREADS = 8


def in_order(
    function: Callable[[Item], Result], items: Iterable[Item], *, ahead: int
) -> Generator[Result]:
    """function(item) of each item, in order; threads work on up to `ahead` items in advance.

    The first exception ends the work and reaches the caller.

    >>> list(in_order(abs, [-1, 2, -3], ahead=2))
    [1, 2, 3]
    """
    threads = min(_MOST_THREADS, os.cpu_count() or 1)
    with ThreadPoolExecutor(threads, thread_name_prefix="ccal-images") as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
