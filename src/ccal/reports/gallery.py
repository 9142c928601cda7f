"""Examples of retrieval as HTML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from ccal.reports.examples import Example, Hit, Item
from ccal.reports.markup import escape, shorten
from ccal.reports.pictures import data_uri

__all__ = ["gallery"]

Embed = Callable[[Path], str | None]


def gallery(examples: Sequence[Example]) -> str:
    """The examples by direction: the query, what it found, and where its counterpart is."""
    embed = cache(data_uri)
    parts = []
    for direction in dict.fromkeys(example.direction for example in examples):
        name = escape(shorten(direction, 80).replace(" -> ", " → "))
        own = [example for example in examples if example.direction == direction]
        items = "\n".join(_example(example, embed) for example in own)
        parts.append(f'<h3>{name}</h3>\n<ul class="examples">\n{items}\n</ul>')
    if not parts:
        return ""
    note = (
        "Per direction the best, some typical and the worst queries, with the cosine of each hit."
    )
    return f'<p class="note">{note}</p>\n' + "\n".join(parts)


def _example(example: Example, embed: Embed) -> str:
    hits = [_hit(hit, embed, "right" if hit.right else "other") for hit in example.hits]
    if not any(hit.right for hit in example.hits):
        hits.append(_hit(example.counterpart, embed, "later right"))
    pictures = all(isinstance(hit.item, Path) for hit in example.hits)
    layout = " strips" if example.strips else " pictures" if pictures else ""
    about = escape(shorten(example.note, 80)) or f"counterpart at rank {example.rank:,}"
    return (
        f'<li>\n<div class="query"><div class="kind">{example.kind}: {about}</div>\n'
        f"{_item(example.query, embed)}</div>\n"
        f'<ol class="hits{layout}">\n' + "\n".join(hits) + "\n</ol>\n</li>"
    )


def _hit(hit: Hit, embed: Embed, css_class: str) -> str:
    score = f"{hit.score:.2f}".replace("-", "−")
    note = escape(shorten(hit.note, 80))
    mark = f' <span class="tick">✓ {note or "counterpart"}</span>' if hit.right else ""
    if note and not hit.right:
        mark = f' <span class="note">{note}</span>'
    return (
        f'<li class="{css_class}">'
        f'<span class="rank">{hit.rank:,}.</span><span class="score">{score}</span>'
        f'<span class="shown">{_item(hit.item, embed)}{mark}</span></li>'
    )


def _item(item: Item, embed: Embed) -> str:
    if isinstance(item, str):
        return f'<span dir="auto">{escape(shorten(item))}</span>'
    name = escape(shorten(item.name, 80))
    uri = embed(item)
    if uri is None:
        return f"<span>{name}</span>"
    return f'<img src="{uri}" alt="{name}">'
