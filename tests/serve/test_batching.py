"""Queries that come together are worked on together, and each gets its own answer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from ccal.serve.batching import Batcher, BusyError

Answer = TypeVar("Answer")


class Doubling:
    """Doubles numbers once the gate is open; remembers its batches."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, numbers: Sequence[int]) -> list[int | Exception]:
        self.batches.append(list(numbers))
        assert self.gate.wait(10)
        if 13 in numbers:
            raise RuntimeError("all of it failed")
        return [ValueError(n) if n < 0 else 2 * n for n in numbers]


def run(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Run in another thread: the browser tests may have an event loop running in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def ask(batcher: Batcher[int, int], number: int) -> int:
    (found,) = await batcher.ask([number])
    if isinstance(found, Exception):
        raise found
    return found


async def until(condition: object) -> None:
    end = time.monotonic() + 10
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        await asyncio.sleep(0.001)


def test_queries_that_arrive_during_a_batch_form_the_next_one() -> None:
    work = Doubling()
    batcher: Batcher[int, int] = Batcher(work, batch=4)

    async def main() -> list[int]:
        work.gate.clear()
        tasks = [asyncio.create_task(ask(batcher, 0))]
        await until(lambda: work.batches)
        tasks += [asyncio.create_task(ask(batcher, n)) for n in range(1, 8)]
        await until(lambda: batcher.waiting == 7)
        work.gate.set()
        return await asyncio.gather(*tasks)

    assert run(main()) == [0, 2, 4, 6, 8, 10, 12, 14]
    assert work.batches == [[0], [1, 2, 3, 4], [5, 6, 7]]
    batcher.close()


def test_a_query_that_fails_leaves_the_others_alone() -> None:
    work = Doubling()
    batcher: Batcher[int, int] = Batcher(work, window=0.05)

    async def main() -> list[int | BaseException]:
        asked = (ask(batcher, n) for n in (1, -2, 3))
        return await asyncio.gather(*asked, return_exceptions=True)

    found = run(main())
    assert (found[0], found[2]) == (2, 6)
    assert isinstance(found[1], ValueError)

    async def all_of_it() -> int:
        return await ask(batcher, 13)

    with pytest.raises(RuntimeError, match="all of it"):
        run(all_of_it())
    assert batcher.alive
    batcher.close()


def test_queries_beyond_the_limit_are_refused_and_cancelled_ones_skipped() -> None:
    work = Doubling()
    batcher: Batcher[int, int] = Batcher(work, batch=1, waiting=2)

    async def main() -> None:
        work.gate.clear()
        first = asyncio.create_task(ask(batcher, 1))
        await until(lambda: work.batches)
        others = [asyncio.create_task(ask(batcher, n)) for n in (2, 3)]
        await until(lambda: batcher.waiting == 2)
        with pytest.raises(BusyError):
            await ask(batcher, 4)
        # A cancelled query is skipped.
        others[0].cancel()
        await asyncio.sleep(0)
        work.gate.set()
        assert await first == 2
        assert await others[1] == 6

    run(main())
    assert work.batches == [[1], [3]]
    batcher.close()


def test_queries_of_one_request_are_all_taken_or_all_refused() -> None:
    work = Doubling()
    batcher: Batcher[int, int] = Batcher(work, batch=4, waiting=2)

    async def main() -> None:
        assert await batcher.ask([]) == []
        assert await batcher.ask(range(6)) == [0, 2, 4, 6, 8, 10]
        good, bad, last = await batcher.ask([1, -2, 3])
        assert (good, last) == (2, 6)
        assert isinstance(bad, ValueError)
        work.gate.clear()
        first = asyncio.create_task(batcher.ask([7]))
        await until(lambda: work.batches[-1] == [7])
        # The queue is empty, so all of them are taken.
        many = asyncio.create_task(batcher.ask(range(10)))
        await until(lambda: batcher.waiting == 10)
        with pytest.raises(BusyError):
            await batcher.ask([8])
        many.cancel()
        await asyncio.sleep(0.01)
        work.gate.set()
        assert await first == [14]

    run(main())
    # The queries of the cancelled request are skipped.
    assert work.batches == [[0, 1, 2, 3], [4, 5], [1, -2, 3], [7]]
    batcher.close()


def test_the_thread_waits_for_as_many_queries_as_the_last_batch_had() -> None:
    work = Doubling()
    batcher: Batcher[int, int] = Batcher(work, window=0.2)

    async def late(number: int) -> int:
        await asyncio.sleep(0.02 * number)
        return await ask(batcher, number)

    async def main() -> None:
        await batcher.ask([1, 2, 3])
        started = time.monotonic()
        await asyncio.gather(late(1), late(2), late(3))
        # All three are there, so the batch starts.
        assert time.monotonic() - started < 0.2

    run(main())
    assert work.batches == [[1, 2, 3], [1, 2, 3]]
    batcher.close()


def test_closing_answers_waiting_queries_and_refuses_new_ones() -> None:
    work = Doubling()
    batcher: Batcher[int, int] = Batcher(work, batch=1)

    async def main() -> None:
        work.gate.clear()
        tasks = [asyncio.create_task(ask(batcher, n)) for n in range(3)]
        await until(lambda: batcher.waiting == 2)
        closing = asyncio.get_running_loop().run_in_executor(None, batcher.close)
        await until(lambda: not batcher.alive)
        with pytest.raises(BusyError, match="stops"):
            await ask(batcher, 9)
        work.gate.set()
        assert await asyncio.gather(*tasks) == [0, 2, 4]
        await closing

    run(main())


def test_a_closed_event_loop_does_no_harm() -> None:
    work = Doubling()
    batcher: Batcher[int, int] = Batcher(work)

    async def impatient() -> None:
        work.gate.clear()
        asyncio.create_task(ask(batcher, 1))  # noqa: RUF006
        await until(lambda: work.batches)

    run(impatient())
    work.gate.set()

    async def patient() -> int:
        return await ask(batcher, 2)

    assert run(patient()) == 4
    batcher.close()
