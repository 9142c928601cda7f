"""Items as they go into a home: read, embedded, a chunk at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from ccal.model import DualEncoder, Items
from ccal.retrieval.embedding import embed
from ccal.retrieval.home import Batches, Vectors, open_home
from ccal.retrieval.items import Binding, Item

__all__ = ["Progress", "Read", "chunks_of", "embedded", "everything_in"]

Progress = Callable[[int, int], None]
Chunk = tuple[Sequence[Item], Items]
Read = Callable[[Sequence[Item]], Items]
"""From items to what they are: texts, images, features."""

_CHUNK = 4096


def everything_in(location: str | os.PathLike[str]) -> tuple[Binding, list[Item]]:
    """What an index is bound to, and all it holds, modality by modality."""
    home = open_home(location)
    try:
        binding = home.binding
        return binding, home.items([id for name in binding.modalities for id in home.ids(name)])
    finally:
        home.close()


def chunks_of(items: Sequence[Item], read: Callable[[int, int], Items]) -> Iterable[Chunk]:
    """Items of one modality each, with what they are; `read` is given where they start and end."""
    start = 0
    while start < len(items):
        stop = min(start + _CHUNK, len(items))
        while items[stop - 1].modality != items[start].modality:
            stop -= 1
        yield items[start:stop], read(start, stop)
        start = stop


def embedded(
    model: DualEncoder,
    dims: int | None,
    chunks: Iterable[Chunk],
    total: int,
    batch_size: int,
    progress: Progress | None,
) -> Batches:
    """The same with their vectors; says how many of the total are done."""

    def batches() -> Iterator[tuple[Sequence[Item], Vectors]]:
        done = 0
        for items, content in chunks:
            yield items, embed(model, items[0].modality, content, dims, batch_size)
            done += len(items)
            if progress is not None:
                progress(done, total)

    return batches()
