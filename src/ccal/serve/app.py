"""The application of a collection, and the server that runs it."""

import asyncio
import errno
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

import uvicorn
from anyio.to_thread import run_sync
from fastapi import FastAPI
from starlette.types import ASGIApp

import ccal
from ccal.errors import InputError
from ccal.serve.collection import Collection
from ccal.serve.embedding_routes import add_embedding_routes
from ccal.serve.guard import BATCH, Guard, Hosts, Limits
from ccal.serve.metrics import Metrics
from ccal.serve.problems import add_handlers
from ccal.serve.routes import add_routes
from ccal.serve.search_routes import WORDS, FastPath, add_search_routes
from ccal.serve.service import Service

_DESCRIPTION = """Search a collection of two modalities by words, by a file, or by one of its items.

Errors are `application/problem+json`. With a token, send `Authorization: Bearer TOKEN`."""
# A connection takes a file descriptor, and most systems allow a process about a thousand.
_CONNECTIONS, _OF_ONE_CLIENT = 800, 400
_HEADER_BYTES, _HEADER_SECONDS = 64 * 1024, 10.0
# Seconds to stop: for requests that are on their way, and for those under way. Ticks of 0.1 s after
# which a client that has taken nothing of its answer is let go.
_ARRIVE_SECONDS, _GRACE_SECONDS, _STUCK_TICKS = 0.5, 8, 300


def create_app(
    collection: Collection,
    *,
    limits: Limits | None = None,
    token: str | None = None,
    hosts: Iterable[str] = (),
) -> ASGIApp:
    """An ASGI application that serves a collection, and closes it when it ends.

    Args:
        limits: of requests.
        token: everything but the page itself then needs `Authorization: Bearer TOKEN`.
        hosts: names of the server besides localhost and this machine's name.
    """
    limits, metrics = limits or Limits(), Metrics()
    service = Service(collection, limits, metrics, has_token=token is not None)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        await run_sync(collection.warm)
        yield
        service.batcher.close()
        collection.close()

    # FastAPI's own pages of documentation load scripts from elsewhere.
    app = FastAPI(
        title="ccal",
        version=ccal.__version__,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=life,
    )
    add_handlers(app)
    add_search_routes(app, service)
    add_embedding_routes(app, service)
    add_routes(app, service)
    _describe_limits(app.openapi(), limits, token is not None)
    return Guard(FastPath(app), limits=limits, metrics=metrics, hosts=Hosts(hosts), token=token)


def _describe_limits(schema: dict[str, Any], limits: Limits, has_token: bool) -> None:
    """Put this server's own limits into its OpenAPI description."""
    for path in (WORDS, BATCH):
        body = schema["paths"][path]["post"]["requestBody"]["content"]
        properties = body["application/json"]["schema"]["properties"]
        properties["k"]["maximum"] = limits.k
        if path == BATCH:
            properties["texts"]["maxItems"] = limits.queries
        text = properties["texts"]["items"] if path == BATCH else properties["text"]
        text["maxLength"] = limits.text
    for path in schema["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", []):
                if parameter["name"] in ("k", "limit"):
                    parameter["schema"]["maximum"] = limits.k
    if has_token:
        scheme = {"type": "http", "scheme": "bearer"}
        schema["components"]["securitySchemes"] = {"token": scheme}
        schema["security"] = [{"token": []}]


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to an address; port 0 takes any free port."""
    try:
        known = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, OverflowError, UnicodeError) as error:
        raise InputError(f"{host} is no address to listen on ({error}).") from error
    family, _, _, _, place = known[0]
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    try:
        return socket.create_server(place, family=family, dualstack_ipv6=both)
    except OSError as error:
        reason = f"Cannot listen on port {port} of {host}: {os.strerror(error.errno or 0)}."
        if error.errno == errno.EADDRINUSE:
            reason = (
                f"Port {port} of {host} is taken; perhaps a server runs there already. Choose "
                "another with --port, or --port 0 for any that is free."
            )
        elif error.errno in (errno.EACCES, errno.EPERM):
            reason = f"Port {port} needs the rights of an administrator; choose one from 1024 up."
        raise InputError(reason) from error


def address(listener: socket.socket) -> str:
    """The address of a listening socket, for a browser on this machine.

    >>> with listen("127.0.0.1", 0) as one:
    ...     address(one).startswith("http://127.0.0.1:")
    True
    """
    host, port = listener.getsockname()[:2]
    # A browser cannot open the address that stands for all of the machine's addresses.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def run(
    app: ASGIApp,
    listener: socket.socket,
    started: Callable[[], None],
    over: Callable[[], bool] = lambda: False,
) -> None:
    """Serve until Ctrl-C, a signal, or until `over` is true; then finish requests under way.

    `started` is called once the server answers, `over` several times a second.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    config = uvicorn.Config(
        app,
        lifespan="on",
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # no route uses the address of the client
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    config.load()
    config.http_protocol_class = _bounded(config.http_protocol_class)
    # uvicorn raises Ctrl-C again after the server has stopped in good order.
    with suppress(KeyboardInterrupt):
        _Server(config, started, over).run(sockets=[listener])


def _bounded(protocol: Any) -> Any:
    """uvicorn's protocol, with limits on what comes before the application sees a request.

    A connection has `_HEADER_SECONDS` and `_HEADER_BYTES` for the headers of a request, and one
    client has at most `_OF_ONE_CLIENT` connections; beyond that it is closed.
    """

    class Bounded(protocol):  # type: ignore[misc]
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._answered: Any = None
            self._timer: Any = None
            self._head = self._unsent = 0
            host = self.client and self.client[0]
            same = sum(bool(other.client) and other.client[0] == host for other in self.connections)
            if same > _OF_ONE_CLIENT or len(self.connections) > 2 * _CONNECTIONS:
                transport.abort()
            else:
                self._wait_for_headers()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not self._answered:
                self._answered, self._head = self.cycle, 0
                self._timer.cancel()
            elif self.cycle is None or self.cycle.response_complete:
                if not self._head:
                    self._wait_for_headers()
                self._head += len(data)
                if self._head > _HEADER_BYTES:
                    self.transport.abort()

        def end_if_stuck(self) -> None:
            """Close a connection whose client has taken nothing of its answer since the last call.

            A transport that closes waits until all has been sent, for ever if need be.
            """
            unsent = self.transport.get_write_buffer_size()
            if unsent and unsent == self._unsent:
                self.transport.abort()
            self._unsent = unsent

        def connection_lost(self, exc: Exception | None) -> None:
            if self._timer is not None:
                self._timer.cancel()
            super().connection_lost(exc)

        def _wait_for_headers(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.loop.call_later(_HEADER_SECONDS, self.transport.abort)

    return Bounded


class _Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, announce: Callable[[], None], over: Callable[[], bool]
    ) -> None:
        super().__init__(config)
        self._announce, self._over = announce, over

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._announce()

    async def on_tick(self, counter: int) -> bool:
        if counter % _STUCK_TICKS == 0:
            connections: list[Any] = list(self.server_state.connections)
            for connection in connections:
                connection.end_if_stuck()
        return await super().on_tick(counter) or self._over()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop in two steps, so that no request is lost that a client has sent before it knew.

        At first no connection is accepted any more, and every answer says that it is the last of
        its connection. Then connections without a request are closed, and those with one later.
        """
        for listener in sockets or []:
            # Connections that wait to be accepted would be reset: let no more in, and take those.
            listener.listen(0)
        await asyncio.sleep(0)
        for server in self.servers:
            server.close()
        self.server_state.default_headers = [
            *self.server_state.default_headers,
            (b"connection", b"close"),
        ]
        end = time.monotonic() + _ARRIVE_SECONDS
        while self.server_state.connections and time.monotonic() < end:
            await asyncio.sleep(0.02)
        await super().shutdown(sockets)
