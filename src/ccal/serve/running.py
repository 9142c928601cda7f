"""From an application to a server that listens, says where, and stops in good order."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable
from contextlib import suppress

import uvicorn
from starlette.types import ASGIApp

from ccal.errors import InputError

__all__ = ["address", "listen", "run"]

# A connection takes a file descriptor, and most systems allow a process about a thousand.
_CONNECTIONS = 800
_GRACE = 5


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to an address; port 0 takes any that is free."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, OverflowError, UnicodeError) as error:
        raise InputError(f"{host} is no address to listen on ({error}).") from error
    listener = socket.socket(family, kind, protocol)
    try:
        # A server that has just stopped leaves its address waiting for a minute.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen()
    except OSError as error:
        listener.close()
        raise InputError(_reason(error, host, port)) from error
    return listener


def address(listener: socket.socket) -> str:
    """Where a browser finds what listens there.

    >>> with listen("127.0.0.1", 0) as one:
    ...     address(one).startswith("http://127.0.0.1:")
    True
    """
    host, port = listener.getsockname()[:2]
    # Everywhere is also here, and only that can be opened.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def run(
    app: ASGIApp,
    listener: socket.socket,
    started: Callable[[], None],
    over: Callable[[], bool] = lambda: False,
) -> None:
    """Serve until Ctrl-C, a signal, or until it is over; requests under way are finished first.

    `started` is called once the server answers, `over` several times a second.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    config = uvicorn.Config(
        app,
        lifespan="on",
        ws="none",
        log_config=None,
        access_log=False,
        # Nobody asks for the address of who asked.
        proxy_headers=False,
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=_GRACE,
    )
    config.load()
    # Raised again once the server has stopped in good order, which is what was wished.
    with suppress(KeyboardInterrupt):
        _Server(config, started, over).run(sockets=[listener])


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
        return await super().on_tick(counter) or self._over()


def _reason(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"Port {port} of {host} is taken; perhaps a server runs there already. Choose another "
            "with --port, or --port 0 for any that is free."
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"Port {port} is not for everyone; choose one from 1024 up with --port."
    return f"Cannot listen on port {port} of {host}: {error.strerror}."
