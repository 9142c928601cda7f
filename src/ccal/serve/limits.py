"""What a server does for anyone who asks, and no more."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ccal.errors import InputError

__all__ = ["Limits"]


@dataclass(frozen=True)
class Limits:
    """Bounds on what is asked, and on the work that waits.

    Args:
        upload_bytes: of a file that is sent.
        seconds: of sound in it.
        pixels: of a picture in it, before it is decoded.
        k: results of one search.
        text: characters of a query in words.
        queries: in words, of one request.
        batch: queries that go through the towers together.
        window: seconds without a new query after which a batch is not waited for any longer.
        waiting: queries that wait; who asks then is turned away with 503.
        decoding: files that are decoded at the same time.
        timeout: seconds until a request is given up.

    >>> Limits(k=20).k
    20
    """

    upload_bytes: int = 20 * 2**20
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

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            # Without waiting for others is a choice; without room for anything is a mistake.
            if not (value >= 0 if field.name == "window" else value > 0):
                raise InputError(f"{field.name} must be greater than 0, got {value}.")
