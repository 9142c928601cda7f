"""The guard: ASGI middleware that every request passes before the application sees it.

A server on someone's own machine can be reached by every web page that its owner visits, so the
guard trusts no request. In this order it checks
- the Host header: a foreign page can make its own name point to this machine (DNS rebinding), and
  its requests then carry that name. Numeric addresses cannot be made to point elsewhere and pass,
  which Starlette's `TrustedHostMiddleware` cannot express;
- the Origin and Sec-Fetch headers: pages of other sites can send requests, though not read answers;
- the token, if there is one, for everything but the page itself;
- the size of the body, by its header and again while it comes in; and the time.

It adds the security headers to every answer, turns every exception into a problem, and counts
requests. It is plain ASGI and one layer, because every layer adds to the time of every request, and
a search of a small index takes no longer than the framework around it.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ccal.bounds import Number, Rule, Whole, check_all
from ccal.serve.batching import BusyError
from ccal.serve.memory import Memory
from ccal.serve.metrics import Metrics
from ccal.serve.problems import PROBLEM, ProblemError, problem_of, size_text, time_text

UPLOAD, BATCH = "/api/search/file", "/api/search/batch"
EMBEDDINGS = "/v1/embeddings"
# A character of a text takes at most 12 bytes: two escapes as in "\ud83d\ude00".
_JSON_BYTES, _ESCAPED = 64 * 1024, 12
_PROTECTED = ("/api/", "/v1/", "/media/", "/metrics")
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; media-src 'self' blob:; connect-src 'self'; font-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "Cache-Control": "no-store",
}
_RAW = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
_NAMES = frozenset(name for name, _ in _RAW)
_DRAIN_SECONDS = 5.0
_LONG_BYTES = 64 * 1024
_log = logging.getLogger("ccal.serve")


@dataclass(frozen=True)
class Limits:
    """Limits of requests, and of the work that may wait.

    Args:
        upload_bytes: size of a file that is sent.
        seconds: length of the sound in it.
        pixels: of the picture in it, checked before it is decoded.
        k: results of one search.
        text: characters of a query in words.
        queries: in words, of one request.
        batch: queries that go through the towers together.
        window: seconds without a new query after which a batch starts.
        waiting: queries that wait; requests beyond that are answered with 503.
        decoding: files that are decoded at the same time.
        timeout: seconds until a request is given up.
        memory: bytes that files take while they are decoded and searched for; half as many again
            are for bodies that are received or sent. Requests beyond that are answered with 503.

    >>> Limits(k=20).k
    20
    """

    upload_bytes: int = 20_000_000
    seconds: float = 120.0
    pixels: int = 50_000_000
    k: int = 100
    text: int = 2000
    queries: int = 128
    batch: int = 32
    window: float = 0.002
    waiting: int = 256
    decoding: int = 4
    timeout: float = 30.0
    memory: int = 1_000_000_000

    def __post_init__(self) -> None:
        rules: dict[str, Rule] = {
            field.name: Whole(at_least=1) if isinstance(field.default, int) else Number(above=0)
            for field in fields(self)
        }
        check_all(rules | {"window": Number(at_least=0)}, vars(self))


def is_loopback(host: str) -> bool:
    """Whether a server that listens on `host` can be reached from this machine alone.

    >>> is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Hosts:
    """Names of the server: localhost, this machine's name, `names`, and every numeric address.

    >>> hosts = Hosts(["photos.example"])
    >>> [hosts.allow(name) for name in ("127.0.0.1:8000", "[::1]", "PHOTOS.example", "evil.test")]
    [True, True, True, False]
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        given = {"localhost", socket.gethostname(), *names}
        self._names = frozenset(name.lower().rstrip(".") for name in given)
        self.allow = lru_cache(maxsize=64)(self._allow)

    def _allow(self, header: str) -> bool:
        """Whether a Host header names this server, at whatever port."""
        try:
            name = urlsplit(f"//{header}").hostname or ""
        except ValueError:
            return False
        try:
            ip_address(name)
        except ValueError:
            return name.rstrip(".") in self._names
        return True


class Guard:
    """ASGI middleware around everything.

    Args:
        token: the token of `Authorization: Bearer` that everything but the page needs.
        hosts: names under which the server may be asked.
    """

    def __init__(
        self, app: ASGIApp, *, limits: Limits, metrics: Metrics, hosts: Hosts, token: str | None
    ) -> None:
        self._app, self._limits, self._metrics, self._hosts = app, limits, metrics, hosts
        self._memory = Memory(limits.memory // 2)
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass on that the server starts or stops."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        most = self._most_bytes(scope["path"])
        exchange = _Exchange(receive, send, most, self._memory, self._limits.timeout)
        self._metrics.running.inc()
        try:
            await self._handle(scope, exchange)
        finally:
            self._memory.give(exchange.held)
            self._metrics.running.dec()
            route = getattr(scope.get("route"), "path", "other")
            seconds = time.perf_counter() - exchange.started
            # Clients may invent any other method, and each would be a series of its own.
            method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST") else "OTHER"
            self._metrics.request(method, route, exchange.status, seconds)

    def _most_bytes(self, path: str) -> int:
        if path in (BATCH, EMBEDDINGS):
            return _JSON_BYTES + _ESCAPED * self._limits.text * self._limits.queries
        return self._limits.upload_bytes if path == UPLOAD else _JSON_BYTES

    async def _handle(self, scope: Scope, exchange: _Exchange) -> None:
        try:
            # Of several headers of one name the first counts.
            headers = dict(reversed(scope["headers"]))
            self._admit(scope["path"], headers)
            exchange.check_length(headers.get(b"content-length", b"0"))
            async with asyncio.timeout(self._limits.timeout) as deadline:
                exchange.deadline = deadline
                await self._app(scope, exchange.receive, exchange.send)
        except TimeoutError:
            status = 408 if exchange.reading else 504
            late = f"No answer within {time_text(self._limits.timeout)}."
            await exchange.refuse(ProblemError(status, late))
        except ClientDisconnect:
            return
        except asyncio.CancelledError:
            # The server stops and has waited long enough.
            await exchange.refuse(problem_of(BusyError("The server stops.")))
            raise
        except Exception as error:
            problem = problem_of(error)
            if problem.status == 500:
                _log.exception("%s %s failed", scope["method"], scope["path"])
            await exchange.refuse(problem)

    def _admit(self, path: str, headers: dict[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._hosts.allow(host):
            raise ProblemError(
                421, f"This server does not answer for {host[:100]!r}; see --allow-host."
            )
        origin = headers.get(b"origin")
        site, mode = headers.get(b"sec-fetch-site"), headers.get(b"sec-fetch-mode")
        foreign = origin is not None and origin.decode("latin-1").partition("://")[2] != host
        if foreign or (site == b"cross-site" and mode != b"navigate"):
            raise ProblemError(403, "Pages of other sites cannot use this server.")
        if self._token is not None and path.startswith(_PROTECTED):
            kind, _, given = headers.get(b"authorization", b"").partition(b" ")
            same = hmac.compare_digest(given.strip(), self._token)
            if kind.lower() != b"bearer" or not same:
                challenge = {"WWW-Authenticate": 'Bearer realm="ccal"'}
                raise ProblemError(401, "A token is needed: Authorization: Bearer ...", challenge)


class _Exchange:
    """One request and its answer: counts the bytes, adds the headers, remembers the status."""

    def __init__(
        self, receive: Receive, send: Send, most: int, memory: Memory, patience: float
    ) -> None:
        self._receive, self._send, self._most = receive, send, most
        self._memory, self._patience = memory, patience
        self.started, self.status = time.perf_counter(), 499
        self._read, self._begun, self.reading = 0, False, True
        self._start: Message | None = None
        self.held = 0
        self.deadline: asyncio.Timeout | None = None

    def check_length(self, length: bytes) -> None:
        """Refuse a body whose header Content-Length is too large."""
        if not length.isdigit() or int(length) > self._most:
            raise self._too_long()

    async def receive(self) -> Message:
        """The next part of the body, unless the body becomes too long."""
        message = await self._receive()
        if message["type"] == "http.request":
            self._read += len(message.get("body", b""))
            if self._read > self._most:
                raise self._too_long()
            self._hold(len(message.get("body", b"")))
            self.reading = bool(message.get("more_body"))
        return message

    async def send(self, message: Message) -> None:
        """Pass a part of the answer on; a slow client gets more time for each piece."""
        if message["type"] == "http.response.start":
            given = list(message.get("headers", ()))
            own = _NAMES.intersection([name for name, _ in given])
            message["headers"] = given + [pair for pair in _RAW if pair[0] not in own]
            # Sent with the body: until then the answer may still be a refusal.
            self._start = message
            return
        if self._start is not None and len(message.get("body", b"")) > _LONG_BYTES:
            self._hold(len(message["body"]))
        if self._start is not None:
            self._begun, self.status = True, self._start["status"]
            await self._send(self._start)
            self._start = None
        body, more = message.get("body", b""), bool(message.get("more_body"))
        if len(body) <= _LONG_BYTES and not more:
            await self._send(message)
            return
        # uvicorn waits between pieces until the client has taken those before.
        pieces = [body[at : at + _LONG_BYTES] for at in range(0, len(body), _LONG_BYTES)] or [b""]
        for number, piece in enumerate(pieces, 1):
            if self.deadline is not None:
                when = asyncio.get_running_loop().time()
                self.deadline.reschedule(when + self._patience)
            rest = more or number < len(pieces)
            await self._send({"type": "http.response.body", "body": piece, "more_body": rest})

    def _hold(self, size: int) -> None:
        """Count bytes as memory until the request is over."""
        self._memory.take(size)
        self.held += size

    async def refuse(self, error: ProblemError) -> None:
        """Answer with a problem, unless an answer has begun."""
        if self._begun:
            return
        self.deadline = self._start = None
        body = error.body()
        headers = {"Content-Type": PROBLEM, "Content-Length": str(len(body)), **error.headers}
        if self.reading:
            headers["Connection"] = "close"
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": error.status, "headers": raw})
        await self.send({"type": "http.response.body", "body": body, "more_body": True})
        # A client that still sends would see a broken connection in place of the answer: read on.
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                while self.reading:
                    message = await self._receive()
                    more = message["type"] == "http.request" and message.get("more_body")
                    self.reading = bool(more)
        await self.send({"type": "http.response.body", "body": b""})

    def _too_long(self) -> ProblemError:
        return ProblemError(413, f"The body is larger than {size_text(self._most)}.")
