"""`ccal serve` as a process: start, stop, kill, and messages for wrong arguments."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from ccal.model import load
from ccal.retrieval import Index
from ccal.serve.guard import is_loopback
from tests.cli.conftest import environment, invoke
from tests.serve.conftest import problem


class Process:
    """A server in a process of its own."""

    def __init__(self, *arguments: object, **variables: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ccal", "serve", *map(str, arguments), "--port", "0"],
            env={**environment(), **variables},
            text=True,
            stderr=subprocess.PIPE,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        end = time.monotonic() + 60
        while not (found := re.search(r"Open (http://\S+)", self.said)):
            assert self.process.poll() is None, self.said
            assert time.monotonic() < end, self.said
            time.sleep(0.05)
        self.page = found[1]
        self.url = self.page.partition("/#")[0].rstrip("/")

    @property
    def said(self) -> str:
        return "".join(self.lines)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=30, trust_env=False)

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        code = self.process.wait(timeout=30)
        self._reader.join(timeout=10)
        return code


@pytest.fixture(scope="module")
def plain(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The photos in an index whose model any process can load; not to be changed."""
    folder = tmp_path_factory.mktemp("plain")
    model = load(photos / "run" / "model")
    features = np.load(photos / "features.npy")
    files = [photos / f"{number}.jpg" for number in range(len(features))]
    with Index.build(
        folder / "photos.index",
        model,
        features,
        modality="image",
        files=files,
        model_folder=photos / "run",
    ):
        return folder


@pytest.fixture
def started(plain: Path) -> Iterator[Any]:
    running: list[Process] = []

    def start(*arguments: object, **variables: str) -> Process:
        running.append(Process(plain / "photos.index", *arguments, **variables))
        return running[-1]

    yield start
    for one in running:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def test_it_starts_answers_and_stops_on_ctrl_c(started: Any) -> None:
    server = started()
    assert "Serving photos: 75 image and 0 text items." in server.said
    host = re.search(r"//(.*):", server.url)
    assert host is not None
    assert is_loopback(host[1])
    with server.client() as client:
        found = client.post("/api/search", json={"text": "a red square", "k": 3})
        assert len(found.json()["results"]) == 3
        assert client.get("/").headers["content-type"].startswith("text/html")
    assert server.end(signal.SIGINT) == 0
    assert server.said.endswith("Stopped.\n")
    assert "Traceback" not in server.said


def test_a_token_comes_with_the_address_and_a_signal_lets_requests_finish(started: Any) -> None:
    server = started("--token", "new")
    token = server.page.partition("#token=")[2]
    assert len(token) >= 24
    with server.client() as client:
        problem(client.get("/api/info"), 401)
        client.headers["authorization"] = f"Bearer {token}"
        assert client.get("/api/info").status_code == 200
        answers: list[httpx.Response] = []
        body = {"text": "a red square", "k": 50, "explain": True}

        def ask() -> None:
            with suppress(httpx.HTTPError):
                answers.append(client.post("/api/search", json=body))

        asking = threading.Thread(target=ask)
        asking.start()
        code = server.end(signal.SIGTERM)
        asking.join()
    assert code == -signal.SIGTERM
    assert [answer.status_code for answer in answers] in ([200], [])


@pytest.fixture
def said(plain: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The messages of `ccal serve` before it serves; in this process, which is quicker."""
    made: list[Any] = []
    monkeypatch.setattr(
        "ccal.serve.app.run", lambda app, listener, started, over: made.append(started())
    )

    def start(*arguments: object) -> str:
        outcome = invoke("serve", plain / "photos.index", "--port", "0", *arguments)
        assert outcome.code == 0, outcome
        return outcome.err

    return start


def test_a_public_address_without_a_token_is_warned_of(
    said: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "warning" not in said()
    assert "warning: everyone who can reach 0.0.0.0" in said("--host", "0.0.0.0")
    assert "warning" not in said("--host", "0.0.0.0", "--token", "new")
    monkeypatch.setenv("CCAL_TOKEN", "0123456789abcdef")
    guarded = said("--host", "0.0.0.0")
    assert "warning" not in guarded
    assert guarded.splitlines()[-2].endswith("/#token=0123456789abcdef   (Ctrl-C stops)")


def test_a_killed_server_leaves_the_index_whole(started: Any, plain: Path) -> None:
    server = started()
    failures: list[Exception] = []

    def ask() -> None:
        try:
            with server.client() as client:
                while True:
                    client.post("/api/search", json={"text": "red", "explain": True})
        except httpx.HTTPError as error:
            failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    server.end(signal.SIGKILL)
    for thread in threads:
        thread.join(timeout=30)
    assert len(failures) == 4
    with Index.open(plain / "photos.index") as index:
        index.check()
        assert index.count() == 75
        assert len(index.search_vectors(np.eye(8)[0], k=75)) == 75


def test_a_port_that_is_taken(plain: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        outcome = invoke("serve", plain / "photos.index", "--port", port)
    assert outcome.code == 2
    assert f"Port {port} of 127.0.0.1 is taken" in outcome.err


def test_wrong_arguments_are_explained(plain: Path, tmp_path: Path) -> None:
    index = plain / "photos.index"
    for arguments, words in (
        ([tmp_path / "nowhere"], "there is no such folder"),
        ([tmp_path], "no items.sqlite in it"),
        ([index, "--host", "no.such.host.example"], "no address to listen on"),
        ([index, "--host", "203.0.113.7"], "Cannot listen"),
        ([index, "--token", "short"], "16 plain characters"),
        ([index, "--model", tmp_path / "gone"], "gone"),
        ([index, "--max-k", "0"], "k must be a whole number of at least 1, got k=0"),
        ([index, "--max-batch", "0"], "queries must be a whole number of at least 1"),
    ):
        outcome = invoke("serve", *arguments, "--port", "0")
        assert outcome.code == 2, outcome
        assert words in outcome.err
        assert "Traceback" not in outcome.err


def test_an_index_whose_model_is_gone(photos: Path, tmp_path: Path) -> None:
    shutil.copytree(photos / "run", tmp_path / "run")
    model = load(tmp_path / "run" / "model")
    with Index.build(
        tmp_path / "i", model, [], modality="image", model_folder=tmp_path / "run"
    ) as index:
        index.add_vectors("image", np.eye(8))
    shutil.rmtree(tmp_path / "run")
    outcome = invoke("serve", tmp_path / "i", "--port", "0")
    assert outcome.code == 2
    assert "which is gone; say where with --model" in outcome.err


def test_a_damaged_index(plain: Path, tmp_path: Path) -> None:
    shutil.copytree(plain / "photos.index", tmp_path / "i")
    (tmp_path / "i" / "items.sqlite").write_bytes(b"no database" * 1000)
    outcome = invoke("serve", tmp_path / "i", "--port", "0")
    assert outcome.code == 2
    assert "items.sqlite" in outcome.err


def test_an_index_that_is_damaged_while_it_is_served(
    serve: Any, photos: Path, tmp_path: Path
) -> None:
    shutil.copytree(photos, tmp_path / "copy")
    from tests.serve.conftest import open_collection

    with serve(open_collection(tmp_path / "copy")).client() as client:
        assert client.get("/ready").status_code == 200
        truth = tmp_path / "copy" / "photos.index" / "items.sqlite"
        truth.write_bytes(b"x" * truth.stat().st_size)
        time.sleep(1.1)
        answer = client.post("/api/search", json={"text": "red"})
        assert answer.status_code in (200, 503)
        ready = client.get("/ready")
        if ready.status_code != 200:
            assert str(tmp_path) not in problem(ready, 503)
        assert client.get("/health").status_code == 200


def test_without_its_extra_the_import_says_what_to_install() -> None:
    code = "import sys; sys.modules['fastapi'] = None; import ccal.serve"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False
    )
    last = done.stderr.splitlines()[-1]
    assert last.endswith(
        "Serving needs the package fastapi; install it with: "
        "pip install '.[serve]' in a clone of ccal"
    )
