"""What a client may do before its request is complete."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
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


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(server, "_HEADER_SECONDS", 0.5)
    monkeypatch.setattr(server, "_OF_ONE_CLIENT", 4)
    started, over = threading.Event(), threading.Event()
    with server.listen("127.0.0.1", 0) as listener:
        arguments = (hello, listener, started.set, over.is_set)
        thread = threading.Thread(target=server.run, args=arguments)
        thread.start()
        assert started.wait(30)
        yield listener.getsockname()[1]
        over.set()
        thread.join(30)


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
