"""A real server on loopback, in a thread of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import uvicorn

from ccal.serve import Collection, create_app
from ccal.serve.app import address, listen


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait for something that happens in another thread."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


class Live:
    """Serves a collection at `url` until `stop`; port 0 is any free port."""

    def __init__(self, collection: Collection, *, port: int = 0, **options: Any) -> None:
        self.collection = collection
        self._listener = listen("127.0.0.1", port)
        self.url = address(self._listener).rstrip("/")
        self.port = self._listener.getsockname()[1]
        config = uvicorn.Config(
            create_app(collection, **options), lifespan="on", log_config=None, ws="none"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._listener],))
        self._thread.start()
        end = time.monotonic() + 60
        while not self._server.started:
            assert self._thread.is_alive(), "the server did not start"
            assert time.monotonic() < end, "the server takes too long to start"
            time.sleep(0.02)

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60, trust_env=False, **options)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=30)
        self._listener.close()
        assert not self._thread.is_alive()
