"""What is shown of an item, whoever asks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import quote

__all__ = ["Card", "encode"]

_MEDIA = ("image", "thumbnail", "audio", "staff")
_FIELDS = ("id", "modality", "kind", "title", "text", "metadata")

encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
).encode
"""Plain values as JSON; NaN would be a mistake of ours and is refused."""


@dataclass(frozen=True)
class Card:
    """An item as the page shows it; `media` are the kinds that can be had of it."""

    id: str
    modality: str
    kind: str
    title: str
    metadata: Mapping[str, Any]
    text: str | None = None
    media: Sequence[str] = ()

    @cached_property
    def opening(self) -> str:
        """The item as JSON without its end, of which every answer has its own.

        >>> Card("1", "image", "image", "a dog", {}).opening[:40]
        '{"id":"1","modality":"image","kind":"ima'
        """
        media: dict[str, str | None] = dict.fromkeys(_MEDIA)
        if self.media:
            id = quote(self.id, safe="")
            media |= {name: f"/media/{name}?id={id}" for name in self.media}
        return encode({**{name: getattr(self, name) for name in _FIELDS}, "media": media})[:-1]
