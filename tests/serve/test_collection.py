"""A pending collection: its server answers while it is built, and reports the progress."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ccal.serve.collection import PendingCollection, Report
from tests.serve.conftest import open_collection
from tests.serve.live import Live, until


class Gate:
    """Builds the collection of the photos once the gate is open."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.open, self.stopped = folder, threading.Event(), False

    def __call__(self, report: Report) -> Any:
        try:
            while not self.open.is_set():
                report("counting", 3, 1840)
                time.sleep(0.01)
        except BaseException:
            self.stopped = True
            raise
        return open_collection(self.folder)


def test_the_server_answers_while_the_collection_is_built(
    photos: Path, serve: Callable[..., Live]
) -> None:
    gate, ready = Gate(photos), threading.Event()
    late = PendingCollection(gate, title="photos", ready=lambda _: ready.set())
    with serve(late).client() as client:
        assert client.get("/").status_code == 200
        assert client.get("/health").status_code == 200
        until(lambda: b"counting" in client.get("/ready").content)
        for response in (
            client.get("/ready"),
            client.get("/api/info"),
            client.get("/api/item", params={"id": "1.jpg"}),
            client.post("/api/search", json={"text": "red"}),
            client.post("/api/search/batch", json={"texts": ["red"]}),
            client.post("/api/search/file", content=b"\xff\xd8\xff"),
        ):
            assert response.status_code == 503
            assert response.headers["content-type"] == "application/problem+json"
            assert response.headers["retry-after"] == "1"
            content = json.loads(response.content)
            assert (content["done"], content["total"]) == (3, 1840)
            assert content["detail"] == "Getting ready: counting, 3 of 1,840."
        gate.open.set()
        until(lambda: client.get("/ready").status_code == 200)
        assert ready.is_set()
        assert client.get("/api/info").json()["title"] == "photos"
        assert client.post("/api/search", json={"text": "red", "k": 2}).status_code == 200


def test_stopping_the_server_stops_the_building(photos: Path) -> None:
    gate = Gate(photos)
    late: Any = PendingCollection(gate, title="photos")
    server = Live(late)
    server.stop()
    assert gate.stopped
    assert late.error is None
