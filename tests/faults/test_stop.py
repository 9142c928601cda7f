"""A server that stops under load answers every request that it was sent."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from ccal.serve import app as server
from ccal.serve.guard import Guard, Hosts, Limits
from ccal.serve.metrics import Metrics
from tests.serve.conftest import photos, problem  # noqa: F401
from tests.serve.test_connections import hello, serving
from tests.serve.test_server import Process, plain, started  # noqa: F401

CLIENTS = 16


def load(url: str, ask: Callable[[httpx.Client], httpx.Response], stop: Callable[[], None]) -> Any:
    """Ask from 16 clients, stop meanwhile; how often they were answered, refused, or cut off."""
    counts: Counter[str] = Counter()
    warm = threading.Barrier(CLIENTS + 1)

    def work() -> None:
        with httpx.Client(base_url=url, timeout=30, trust_env=False) as client:
            answered = 0
            while True:
                try:
                    counts[str(ask(client).status_code)] += 1
                except httpx.ConnectError:
                    counts["refused"] += 1
                    break
                except httpx.HTTPError as error:
                    counts[f"{type(error).__name__}: {error}"] += 1
                    break
                answered += 1
                if answered == 3:
                    warm.wait(60)

    threads = [threading.Thread(target=work) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    warm.wait(60)
    stop()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return counts


async def slow(scope: Any, receive: Any, send: Any) -> None:
    """An application that takes a while."""
    if scope["type"] == "lifespan":
        await hello(scope, receive, send)
        return
    while (await receive()).get("more_body"):
        pass
    await asyncio.sleep(0.01)
    await hello(scope, receive, send)


def stops(count: int) -> Counter[str]:
    total: Counter[str] = Counter()
    for number in range(count):
        with serving(slow) as (port, over):

            def stop(delay: float = 0.013 * number, over: threading.Event = over) -> None:
                time.sleep(delay)
                over.set()

            def ask(client: httpx.Client) -> httpx.Response:
                return client.post("/", content=b"a" * 1000)

            total += load(f"http://127.0.0.1:{port}", ask, stop)
    return total


def test_no_request_is_lost_when_the_server_stops() -> None:
    assert set(stops(1)) == {"200", "refused"}


@pytest.mark.faults
def test_no_request_is_lost_in_twenty_stops() -> None:
    assert set(stops(20)) == {"200", "refused"}


@pytest.mark.faults
def test_the_command_loses_no_request_in_ten_stops(started: Any) -> None:  # noqa: F811
    for number in range(10):
        process = started()

        def ask(client: httpx.Client) -> httpx.Response:
            return client.post("/api/search", json={"text": "a red square", "k": 5})

        def stop(delay: float = 0.017 * number, process: Process = process) -> None:
            time.sleep(delay)
            process.end(signal.SIGTERM)

        counts = load(process.url, ask, stop)
        assert set(counts) == {"200", "refused"}, counts


def test_a_request_that_takes_too_long_is_told_that_the_server_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def endless(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await hello(scope, receive, send)
            return
        await asyncio.sleep(60)

    limits: Any = {"limits": Limits(), "metrics": Metrics(), "hosts": Hosts(), "token": None}
    monkeypatch.setattr(server, "_GRACE_SECONDS", 1)
    with serving(Guard(endless, **limits)) as (port, over):
        threading.Timer(0.3, over.set).start()
        answer = httpx.get(f"http://127.0.0.1:{port}/", timeout=30, trust_env=False)
        assert "The server stops" in problem(answer, 503)
