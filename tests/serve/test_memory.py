"""Requests that together need more memory than there is."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from ccal.serve import uploads
from ccal.serve.batching import BusyError
from ccal.serve.memory import Lease, Memory
from tests.cli.conftest import environment
from tests.serve.conftest import problem
from tests.serve.live import until

SERVER = """
import sys
from pathlib import Path
from ccal.serve.app import create_app, listen, run
from tests.serve.conftest import open_collection

with listen("127.0.0.1", 0) as listener:
    port = listener.getsockname()[1]
    app = create_app(open_collection(Path(sys.argv[1])))
    run(app, listener, lambda: print(port, flush=True))
"""


def grey(side: int) -> bytes:
    """A PNG of 16 bits that is small as a file."""
    file = BytesIO()
    Image.fromarray(np.zeros((side, side), np.uint16)).save(file, "PNG")
    return file.getvalue()


def test_whoever_needs_more_waits_or_is_refused() -> None:
    memory = Memory(100)
    memory.take(1000)
    with pytest.raises(BusyError):
        memory.take(1)
    threading.Timer(0.1, memory.give, [1000]).start()
    memory.take(60, seconds=10)
    with pytest.raises(BusyError):
        memory.take(60, seconds=0.01)
    memory.give(60)
    memory.take(60)


def test_a_request_that_is_over_gives_its_memory_back_when_its_thread_ends() -> None:
    memory = Memory(100)
    early, late = Lease(memory), Lease(memory)
    early.begin(50, 0)
    late.begin(50, 0)
    early.close()
    assert memory.held == 100
    early.end(10)
    assert memory.held == 50
    late.end(10)
    assert memory.held == 10
    late.close()
    assert memory.held == 0


def test_pictures_wait_for_memory_and_are_refused_after_a_while(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = grey(400)
    decode = uploads.decode_image

    def slowly(*arguments: Any, **options: Any) -> Any:
        time.sleep(0.5)
        return decode(*arguments, **options)

    monkeypatch.setattr("ccal.serve.service.decode_image", slowly)
    server = serve(memory=uploads._PIXEL_BYTES * 400 * 400, timeout=1.5)
    with server.client() as client, ThreadPoolExecutor(4) as pool:

        def send(_: int) -> httpx.Response:
            answer: httpx.Response = client.post("/api/search/file", content=content)
            return answer

        answers = list(pool.map(send, range(4)))
        assert Counter(answer.status_code for answer in answers) == {200: 2, 503: 2}
        busy = next(answer for answer in answers if answer.status_code == 503)
        assert "memory" in problem(busy, 503)
        assert busy.headers["Retry-After"] == "1"
        assert send(0).status_code == 200


def test_bodies_beyond_the_memory_are_refused(serve: Any) -> None:
    server = serve(memory=400_000)
    with server.client() as client:
        assert client.post("/api/search/file", content=bytes(150_000)).status_code == 415

        def send(_: int) -> int:
            def slowly() -> Any:
                for _ in range(3):
                    yield bytes(50_000)
                    time.sleep(0.3)

            return int(client.post("/api/search/file", content=slowly()).status_code)

        with ThreadPoolExecutor(4) as pool:
            statuses = Counter(pool.map(send, range(4)))
        assert set(statuses) == {415, 503}
        assert send(0) == 415


def status(process: int, name: str) -> int:
    """A number of megabytes that the system knows of a process."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) // 1024
    raise ValueError(name)


@pytest.mark.faults
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_eight_picture_bombs_take_little_memory_and_give_it_back(photos: Path) -> None:
    bomb = grey(7000)
    assert len(bomb) < 200_000
    command = [sys.executable, "-c", SERVER, str(photos)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment(), **pipes) as process:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{int(process.stdout.readline())}"
        with httpx.Client(base_url=url, timeout=120, trust_env=False) as client:

            def send(content: bytes) -> int:
                return client.post("/api/search/file", content=content).status_code

            assert send(grey(500)) == 200
            before = status(process.pid, "VmRSS")
            with ThreadPoolExecutor(8) as pool:
                statuses = Counter(pool.map(send, [bomb] * 8))
            # A request that was given up may still be decoded.
            until(lambda: status(process.pid, "VmRSS") - before < 150, seconds=60)
            most = status(process.pid, "VmHWM")
        process.terminate()
    assert set(statuses) <= {200, 503, 504}
    assert statuses[200]
    assert most - before < 1000
