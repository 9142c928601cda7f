"""What stands before the application: who may ask, how much, how long, and with which headers."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ccal.serve.hosts import Hosts
from ccal.serve.limits import Limits
from ccal.serve.metrics import Metrics
from ccal.serve.problems import PROBLEM, ProblemError, problem_bytes, problem_of

__all__ = ["BATCH", "UPLOAD", "Guard"]

UPLOAD, BATCH = "/api/search/file", "/api/search/batch"
_JSON_BYTES, _ESCAPED = 64 * 1024, 12
_Headers = dict[bytes, bytes]
_PROTECTED = ("/api/", "/media/", "/metrics")
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
# A client that still sends would see a broken connection in place of the answer.
_DRAIN_SECONDS = 5.0
_LONG_BYTES, _LONG_SECONDS = 64 * 1024, 600.0
_log = logging.getLogger("ccal.serve")


class Guard:
    """ASGI middleware around everything.

    Args:
        token: what `Authorization: Bearer` must bring for everything but the page itself.
        hosts: names that requests may be meant for.
    """

    def __init__(
        self, app: ASGIApp, *, limits: Limits, metrics: Metrics, hosts: Hosts, token: str | None
    ) -> None:
        self._app, self._limits, self._metrics, self._hosts = app, limits, metrics, hosts
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass on that the server starts and ends."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        self._metrics.running += 1
        exchange = _Exchange(receive, send, self._most(scope["path"]))
        try:
            await self._handle(scope, exchange)
        finally:
            self._metrics.running -= 1
            route = getattr(scope.get("route"), "path", "other")
            seconds = time.perf_counter() - exchange.started
            # Other methods than these are invented by whoever asks.
            method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST") else "OTHER"
            self._metrics.request(method, route, exchange.status, seconds)

    def _most(self, path: str) -> int:
        if path == BATCH:
            # Whatever the limits on texts allow, however its characters are escaped.
            return _JSON_BYTES + _ESCAPED * self._limits.text * self._limits.queries
        return self._limits.upload_bytes if path == UPLOAD else _JSON_BYTES

    async def _handle(self, scope: Scope, exchange: _Exchange) -> None:
        try:
            # The first of a name counts.
            headers = dict(reversed(scope["headers"]))
            self._admit(scope["path"], headers)
            exchange.check_length(headers)
            async with asyncio.timeout(self._limits.timeout) as deadline:
                exchange.deadline = deadline
                await self._app(scope, exchange.receive, exchange.send)
        except TimeoutError:
            status = 408 if exchange.reading else 504
            late = f"No answer within {self._limits.timeout:g} seconds."
            await exchange.refuse(ProblemError(status, late))
        except ClientDisconnect:
            return  # Nobody is there to be answered.
        except Exception as error:
            problem = problem_of(error)
            # A mistake of ours: the log has it, the answer does not.
            if problem.status == 500:
                _log.exception("%s %s failed", scope["method"], scope["path"])
            await exchange.refuse(problem)

    def _admit(self, path: str, headers: _Headers) -> None:
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._hosts.allow(host):
            raise ProblemError(
                421, f"This server does not answer for {host[:100]!r}; see --allow-host."
            )
        # Pages of other sites can send requests here, too, though not read the answers.
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
    """One request and its answer: bytes are counted, headers added, the status remembered."""

    def __init__(self, receive: Receive, send: Send, most: int) -> None:
        self._receive, self._send, self._most = receive, send, most
        self.started, self.status = time.perf_counter(), 499
        self._read, self._begun, self.reading = 0, False, True
        self.deadline: asyncio.Timeout | None = None

    def check_length(self, headers: _Headers) -> None:
        """Refuse what says itself that it is too long."""
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self._most:
            raise self._too_long()

    async def receive(self) -> Message:
        """The next part of the body; what is too long is refused while it comes in."""
        message = await self._receive()
        if message["type"] == "http.request":
            self._read += len(message.get("body", b""))
            if self._read > self._most:
                raise self._too_long()
            self.reading = bool(message.get("more_body"))
        return message

    async def send(self, message: Message) -> None:
        """Pass an answer on."""
        if message["type"] == "http.response.start":
            self._begun, self.status = True, message["status"]
            given = list(message.get("headers", ()))
            own = _NAMES.intersection([name for name, _ in given])
            message["headers"] = given + [pair for pair in _RAW if pair[0] not in own]
        elif self.deadline is not None and _is_long(message):
            # A long answer may take its time, but not for ever.
            when = asyncio.get_running_loop().time()
            self.deadline.reschedule(when + _LONG_SECONDS)
            self.deadline = None
        await self._send(message)

    async def refuse(self, error: ProblemError) -> None:
        """Answer with a problem, if nothing has been answered yet."""
        if self._begun:
            return
        self.deadline = None
        body = problem_bytes(error)
        headers = {
            "Content-Type": PROBLEM,
            "Content-Length": str(len(body)),
            **error.headers,
        }
        if self.reading:
            headers["Connection"] = "close"
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": error.status, "headers": raw})
        await self.send({"type": "http.response.body", "body": body, "more_body": True})
        try:
            async with asyncio.timeout(_DRAIN_SECONDS):
                while self.reading:
                    message = await self._receive()
                    self.reading = message["type"] == "http.request" and bool(
                        message.get("more_body")
                    )
        except TimeoutError:
            pass
        await self.send({"type": "http.response.body", "body": b""})

    def _too_long(self) -> ProblemError:
        return ProblemError(413, f"The body is larger than {self._most:,} bytes.")


def _is_long(message: Message) -> bool:
    """Whether a part of an answer is one that a slow client may need time for."""
    return bool(message.get("more_body")) or len(message.get("body", b"")) > _LONG_BYTES
