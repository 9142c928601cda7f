"""Names and captions of the photos of `tests.serve.conftest`."""

from __future__ import annotations

from itertools import product

from tests.serve.conftest import COLOURS, PLACES

__all__ = ["caption", "file_name"]


def caption(front: str, back: str, place: str) -> str:
    return f"a {front} square on a {back}ground at the {place}"


def file_name(front: str, back: str, place: str) -> str:
    return f"{list(product(COLOURS, COLOURS, PLACES)).index((front, back, place))}.jpg"
