"""The items of one call on their way to features."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from ccal.data.images.loading import ImageItem, path_name
from ccal.errors import InputError

__all__ = ["ImageOnItsWay", "distinct_items"]


@dataclass
class ImageOnItsWay:
    """Has `pixels` (size, size, 3) or already a `row` (d,); `digest` of its file if it is one."""

    name: str
    digest: bytes | None
    pixels: NDArray[np.uint8] | None = None
    row: NDArray[np.float32] | None = None


def distinct_items(
    items: Sequence[ImageItem],
) -> tuple[list[tuple[str, ImageItem]], NDArray[np.int64]]:
    """The different items with their names, and for each given item its place among them (n,).

    >>> distinct_items(["a.jpg", "b.jpg", "a.jpg"])
    ([('a.jpg', 'a.jpg'), ('b.jpg', 'b.jpg')], array([0, 1, 0]))
    """
    if isinstance(items, str | bytes | PathLike):
        raise InputError("expected a list of images, got one image; put it in a list.")
    places: dict[object, int] = {}
    distinct: list[tuple[str, ImageItem]] = []
    position = np.empty(len(items), dtype=np.int64)
    for number, item in enumerate(items):
        path = os.fspath(item) if isinstance(item, str | PathLike) else None
        key = number if path is None else path
        if key not in places:
            places[key] = len(distinct)
            name = f"image {number} (from 0)" if path is None else path_name(path)
            distinct.append((name, item))
        position[number] = places[key]
    return distinct, position
