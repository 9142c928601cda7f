"""Records: what is known of an item besides its vector, as bytes until somebody looks.

A record is id, metadata as JSON, and the file if there is one, with a zero byte between them,
which none of them has.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from ccal.retrieval.answers import Stored
from ccal.retrieval.hits import Facts

__all__ = ["Catalogue", "Records", "pack"]


def pack(id: bytes, metadata: bytes, file: bytes | None) -> bytes:
    """A record of its parts, all of them UTF-8.

    >>> pack(b"image-1", b"{}", None)
    b'image-1\\x00{}'
    """
    return b"\0".join((id, metadata) if file is None else (id, metadata, file))


@dataclass(frozen=True)
class Records:
    """Those of one part: `held` by position, of which `changed` have others by now."""

    modality: str
    held: Sequence[bytes]
    changed: Mapping[int, bytes] = field(default_factory=dict)

    def __getitem__(self, position: int) -> bytes:
        # Most parts have no change, and then need not look for one.
        found = self.changed.get(position) if self.changed else None
        return self.held[position] if found is None else found


class Catalogue:
    """Records of several parts, counted through: `starts` says where each part begins.

    >>> images, texts = [b"a\\0{}"], [b'b\\0{"n": 1}\\0b.txt']
    >>> both = Catalogue([Records("image", images), Records("text", texts)])
    >>> both.id(0), both.facts(both.stored(1))
    (b'a', ('b', 'text', {'n': 1}, 'b.txt'))
    """

    def __init__(self, parts: Sequence[Records]) -> None:
        self._parts = parts
        self.starts = [0, *accumulate(len(part.held) for part in parts)]

    def id(self, place: int) -> bytes:
        """The id in a place; bytes of UTF-8 have the order of their text."""
        return self.stored(place)[1].partition(b"\0")[0]

    def stored(self, place: int) -> Stored:
        """Modality and record of the item in a place."""
        number = bisect_right(self.starts, place) - 1
        part = self._parts[number]
        return part.modality, part[place - self.starts[number]]

    def facts(self, stored: Stored) -> Facts:
        """What an `Item` is made of."""
        modality, record = stored
        id, metadata, *file = record.decode().split("\0")
        about = {} if metadata == "{}" else json.loads(metadata)
        return id, modality, about, file[0] if file else None
