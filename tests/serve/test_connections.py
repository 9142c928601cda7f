"""What a client may do before its request is complete."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest

from ccal.serve import app as server


async def hello(scope: Any, receive: Any, send: Any) -> None:
    """An application that answers everything."""
    if scope["type"] == "lifespan":
        for stage in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{stage}.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


@contextmanager
def serving(app: Any) -> Iterator[tuple[int, threading.Event]]:
    """A server of an application: its port, and what stops it."""
    started, over = threading.Event(), threading.Event()
    with server.listen("127.0.0.1", 0) as listener:
        arguments = (app, listener, started.set, over.is_set)
        thread = threading.Thread(target=server.run, args=arguments)
        thread.start()
        try:
            assert started.wait(30)
            yield listener.getsockname()[1], over
        finally:
            over.set()
            thread.join(30)
            assert not thread.is_alive()


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(server, "_HEADER_SECONDS", 0.5)
    monkeypatch.setattr(server, "_OF_ONE_CLIENT", 4)
    with serving(hello) as (port, _):
        yield port


def is_closed(client: socket.socket) -> bool:
    client.settimeout(10)
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_headers_have_limits(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as silent:
        assert is_closed(silent)
    with (
        socket.create_connection(("127.0.0.1", port)) as endless,
        pytest.raises(OSError, match=r"reset|pipe"),
    ):
        endless.sendall(b"GET / HTTP/1.1\r\nA: " + bytes(100_000_000))
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]
    assert is_closed(clients[-1])
    for client in clients:
        client.close()
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as browser:
        for _ in range(3):
            assert browser.get("/").text == "hello"


def test_clients_that_take_nothing_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    async def endless(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await hello(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(20_000_000)})

    monkeypatch.setattr(server, "_STUCK_TICKS", 2)
    with serving(endless) as (port, _), socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        time.sleep(1.5)
        client.settimeout(10)
        received = 0
        with suppress(ConnectionResetError):
            while more := client.recv(1 << 20):
                received += len(more)
        assert received < 20_000_000
