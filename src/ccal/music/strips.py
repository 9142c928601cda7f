"""The staffs and the sounds of a store, tune by tune, with the middles of their snippets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.data.music import SheetAudioStore
from ccal.music.snippets import ink

__all__ = ["Strip", "count_strips", "strips_of"]


@dataclass(frozen=True)
class Strip:
    """A strip (length, rows) of one tune, and the middles (n,) of its snippets."""

    values: NDArray[np.floating]
    middles: NDArray[np.number]


def strips_of(store: SheetAudioStore, modality: str, places: NDArray[Any]) -> Iterator[Strip]:
    """The staff ("sheet") or the sound of each tune, with the middles at its places."""
    bounds = np.searchsorted(places["tune"], np.arange(len(store) + 1)).tolist()
    for number, (first, last) in enumerate(pairwise(bounds)):
        tune, part = store.tune(number), places[first:last]
        if modality == "sheet":
            yield Strip(ink(tune.sheet), part["column"])
        else:
            yield Strip(tune.audio, part["frame"])


def count_strips(
    strips: Iterable[Strip], done: int, total: int, progress: Callable[[int, int], None] | None
) -> Iterator[Strip]:
    """The same strips; how many snippets are done is told when the next is asked for."""
    for strip in strips:
        yield strip
        done += len(strip.middles)
        if progress is not None:
            progress(done, total)
