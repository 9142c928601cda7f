"""The guard: hosts, origins, tokens, limits of size and time, headers, metrics."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from ccal.serve.app import listen
from ccal.serve.collection import Answer, Query
from ccal.serve.guard import Hosts, is_loopback
from tests.serve.conftest import open_collection, problem
from tests.serve.live import Live, until

Serve = Callable[..., Live]
TOKEN = "a-token-of-24-characters"


class Slow:
    """A collection that answers slowly; all else is the real one."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._real, self._seconds = open_collection(folder), seconds

    def answer(self, queries: Sequence[Query]) -> list[Answer | Exception]:
        time.sleep(self._seconds)
        return self._real.answer(queries)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def raw(port: int, request: bytes, wait: float = 10) -> bytes:
    """The answer of a server to these bytes."""
    with socket.create_connection(("127.0.0.1", port), timeout=wait) as connection:
        connection.sendall(request)
        parts = []
        try:
            while part := connection.recv(65536):
                parts.append(part)
                if b"\r\n\r\n" in b"".join(parts):
                    break
        except TimeoutError:
            pass
        return b"".join(parts)


def test_loopback_addresses_are_told_from_others() -> None:
    with listen("127.0.0.1", 0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "192.168.1.1", "example.org"))


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "a b", "[", "::1]"])
def test_foreign_host_headers_are_refused(client: httpx.Client, host: str) -> None:
    problem(client.get("/api/info", headers={"host": host}), 421)
    assert not Hosts().allow(host)


def test_own_host_names_pass_at_any_port(serve: Serve) -> None:
    server = serve(hosts=["photos.example"])
    with server.client() as client:
        for host in ("localhost:1", "[::1]:8000", "127.0.0.1", "Photos.Example.", "LOCALHOST"):
            assert client.get("/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
    ],
)
def test_requests_by_pages_of_other_sites_are_refused(
    client: httpx.Client, headers: dict[str, str]
) -> None:
    problem(client.post("/api/search", json={"text": "red"}, headers=headers), 403)
    problem(client.get("/media/image", params={"id": "1.jpg"}, headers=headers), 403)


def test_requests_by_its_own_page_pass(client: httpx.Client, live: Live) -> None:
    own = {"origin": live.url, "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}
    assert client.post("/api/search", json={"text": "red"}, headers=own).status_code == 200
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/", headers=link).status_code in (200, 404)


def test_a_token_guards_everything_but_the_page(serve: Serve) -> None:
    server = serve(token=TOKEN)
    closed = ["/api/info", "/api/items", "/api/map", "/media/image?id=1.jpg", "/metrics"]
    with server.client() as client:
        for path in closed:
            response = client.get(path)
            problem(response, 401)
            assert response.headers["www-authenticate"].startswith("Bearer")
        for given in ("Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "Bearer ü"):
            headers = {b"authorization": given.encode()}
            problem(client.get("/api/info", headers=headers), 401)
        problem(client.post("/api/search", json={"text": "red"}), 401)
        problem(client.post("/api/search/file", content=b"x" * 1000), 401)
        for path in ("/health", "/ready", "/openapi.json"):
            assert client.get(path).status_code == 200
        right = {"authorization": f"Bearer {TOKEN}"}
        for path in closed:
            assert client.get(path, headers=right).status_code == 200
        assert client.get("/api/info", headers=right).json()["token"] is True


def test_tokens_are_compared_in_constant_time(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    import hmac

    compared = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(other)
        return original(one, other)

    original = hmac.compare_digest
    monkeypatch.setattr("ccal.serve.guard.hmac.compare_digest", compare)
    with serve(token=TOKEN).client() as client:
        problem(client.get("/api/info"), 401)
    assert compared == [TOKEN.encode()]


def test_every_answer_has_the_headers(client: httpx.Client) -> None:
    paths = ["/", "/health", "/api/info", "/nowhere", "/media/thumbnail?id=1.jpg", "/openapi.json"]
    for path in paths:
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert "access-control-allow-origin" not in headers
    policy = client.get("/").headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "http:" not in policy
    assert "https:" not in policy


def test_a_content_length_above_the_limit_is_refused_at_once(serve: Serve) -> None:
    server = serve(upload_bytes=50_000)
    head = (
        b"POST /api/search/file HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n"
    )
    # The answer comes before any byte of the body.
    answer = raw(server.port, head)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"50 kB" in answer or b"problem+json" in answer
    with server.client() as client:
        detail = problem(client.post("/api/search/file", content=b"\xff\xd8\xff" * 20_000), 413)
        assert "50 kB" in detail


def test_a_body_without_length_is_refused_once_it_is_too_long(serve: Serve) -> None:
    server = serve(upload_bytes=50_000)
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += 10_000
            yield b"\0" * 10_000

    with server.client() as client:
        problem(client.post("/api/search/file", content=endless()), 413)
        body = b'{"text": "' + b"a" * 70_000 + b'"}'
        json_type = {"content-type": "application/json"}
        problem(client.post("/api/search", content=body, headers=json_type), 413)
        assert client.get("/health").status_code == 200


def test_a_body_that_never_comes_times_out(serve: Serve) -> None:
    server = serve(timeout=0.5)
    head = b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
    started = time.monotonic()
    assert raw(server.port, head).startswith(b"HTTP/1.1 408")
    assert time.monotonic() - started < 8


def test_a_client_that_disconnects_is_no_error(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve()
    head = b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(head)
    counted = 'ccal_requests_total{method="POST",route="/api/search",status="499"} 1.0'
    with server.client() as client:
        until(lambda: counted in client.get("/metrics").text)
    assert not caplog.records


def test_an_answer_that_takes_too_long_times_out(serve: Serve, photos: Path) -> None:
    server = serve(Slow(photos, 1.5), timeout=0.5)
    with server.client() as client:
        assert "0.5 seconds" in problem(client.post("/api/search", json={"text": "red"}), 504)
        assert client.get("/health").status_code == 200


def test_too_many_waiting_queries_get_503(serve: Serve, photos: Path) -> None:
    server = serve(Slow(photos, 0.5), waiting=2, batch=1)
    statuses = []

    def one() -> None:
        with server.client() as client:
            response = client.post("/api/search", json={"text": "red"})
            statuses.append(response.status_code)
            if response.status_code == 503:
                assert response.headers["retry-after"] == "1"
                problem(response, 503)

    threads = [threading.Thread(target=one) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) == {200, 503}


def test_internal_errors_are_not_shown(serve: Serve, photos: Path) -> None:
    class Broken(Slow):
        def answer(self, queries: Sequence[Query]) -> list[Answer | Exception]:
            raise RuntimeError("a secret in /home/me")

        def points(self) -> dict[str, Any]:
            raise RuntimeError("a secret in /home/me")

    with serve(Broken(photos, 0)).client() as client:
        for response in (
            client.post("/api/search", json={"text": "red"}),
            client.post("/api/search/batch", json={"texts": ["red", "zzqx"]}),
            client.get("/api/map"),
        ):
            problem(response, 500)
            assert "secret" not in response.text
        assert client.get("/health").status_code == 200


def test_unknown_addresses_and_methods_are_problems(client: httpx.Client) -> None:
    problem(client.get("/nowhere"), 404)
    problem(client.get("/docs"), 404)
    problem(client.delete("/api/item", params={"id": "1.jpg"}), 405)
    problem(client.get("/static/..%2f..%2fapp.py"), 404)
    problem(client.get("/static/app.py"), 404)
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "//etc/passwd", "/static//x"):
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        assert raw(client.base_url.port or 0, request).startswith(b"HTTP/1.1 404")


def test_metrics_count_requests_and_batches(serve: Serve) -> None:
    with serve().client() as client:
        for _ in range(3):
            client.post("/api/search", json={"text": "red"})
        client.get("/api/item", params={"id": "nothing"})
        client.request("PROPFIND", "/x" * 50)
        text = client.get("/metrics").text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(lines['ccal_requests_total{method="POST",route="/api/search",status="200"}']) == 3
    assert float(lines['ccal_requests_total{method="GET",route="/api/item",status="404"}']) == 1
    assert float(lines['ccal_requests_total{method="OTHER",route="other",status="404"}']) == 1
    assert float(lines['ccal_request_seconds_count{route="/api/search"}']) == 3
    assert float(lines['ccal_items{modality="image"}']) == 75
    assert float(lines["ccal_batch_queries_count"]) == 3


def test_files_of_the_page_have_types_and_tags(client: httpx.Client) -> None:
    for path, type in (
        ("/", "text/html; charset=utf-8"),
        ("/static/main.js", "text/javascript; charset=utf-8"),
        ("/static/base.css", "text/css; charset=utf-8"),
        ("/favicon.ico", "image/svg+xml"),
    ):
        found = client.get(path)
        assert (found.status_code, found.headers["content-type"]) == (200, type)
        again = client.get(path, headers={"if-none-match": found.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert found.headers["cache-control"] == again.headers["cache-control"] == "no-cache"
    problem(client.post("/static/main.js"), 405)
    problem(client.get("/static/"), 404)
