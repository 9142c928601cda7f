"""Whom a request is meant for: names that only lead here by somebody else's will are refused."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

__all__ = ["Hosts", "is_loopback"]


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that is bound to `host`.

    >>> is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Hosts:
    """Names under which a server may be asked.

    A page of some other site can let its own name point to this machine (DNS rebinding), and its
    requests then carry that name. Numbers cannot be made to point elsewhere, so they always pass,
    as do localhost, this machine's name, and `names`.

    >>> hosts = Hosts(["photos.example"])
    >>> [hosts.allow(name) for name in ("127.0.0.1:8000", "[::1]", "PHOTOS.example", "evil.test")]
    [True, True, True, False]
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        given = {"localhost", socket.gethostname(), *names}
        self._names = frozenset(name.lower().rstrip(".") for name in given)
        # The same few all the time.
        self.allow = lru_cache(maxsize=64)(self._allow)

    def _allow(self, header: str) -> bool:
        """Whether the header Host is one of ours; the port does not matter."""
        try:
            name = urlsplit(f"//{header}").hostname or ""
        except ValueError:
            return False
        try:
            ip_address(name)
        except ValueError:
            return name.rstrip(".") in self._names
        return True
