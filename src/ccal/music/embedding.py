"""Snippets of a strip, such as a whole staff or a whole recording, and their embeddings.

The staffs and the sounds of a store, tune by tune, with the middles of their snippets.

The places of a tune that can be found: the same moments on its staff and in its sound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccal.encoders import VGG
from ccal.errors import InputError
from ccal.model import DualEncoder
from ccal.music import SheetAudioStore
from ccal.music.pairs import FRAMES
from ccal.ranks import unit_rows

__all__ = [
    "MODALITIES",
    "PLACE",
    "Embedder",
    "Strip",
    "count_strips",
    "cut",
    "ink",
    "places_of",
    "strips_of",
]

MODALITIES = ("sheet", "audio")
# Small enough for the caches of a CPU.
_BATCH = 64


def ink(sheet: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Staff lines as models see them: ink 1, paper 0."""
    return np.asarray((255 - sheet.astype(np.float32)) / 255)


def cut(
    strip: NDArray[np.floating], middles: NDArray[np.number], *, mirrored: bool = False
) -> Tensor:
    """Snippets (n, 1, rows, 100) of a strip (length, rows) around `middles` (n,).

    Beyond its ends a whole strip has silence or paper, 0. A strip that was cut out of a longer one
    does not end there: `mirrored`, it goes on as it came, which misleads a model less.
    """
    starts = np.rint(middles).astype(np.int64)
    if len(starts) and not 0 <= starts.min() <= starts.max() <= len(strip):
        raise InputError(f"middles must lie within the strip of {len(strip)}.")
    # Padded by half a snippet, the snippet around a middle begins at its number.
    half = FRAMES // 2
    around = ((half, half), (0, 0))
    padded = np.pad(strip.astype(np.float32), around, "reflect" if mirrored else "constant")
    windows = np.lib.stride_tricks.sliding_window_view(padded, FRAMES, axis=0)
    return torch.from_numpy(np.ascontiguousarray(windows[starts])).unsqueeze(1)


class Embedder:
    """Unit embeddings of snippets by a model that joins "sheet" and "audio"."""

    def __init__(self, model: DualEncoder) -> None:
        if set(model.modalities) != set(MODALITIES):
            raise InputError(
                "finding tunes needs a model of sheet and audio, and this one joins "
                f"{' and '.join(model.modalities)}."
            )
        self._model = deepcopy(model).eval()
        for name, tower in self._model.towers.items():
            if isinstance(tower, VGG):
                self._model.towers[name] = tower.fused()
        with torch.no_grad():
            self.dim = self.embed("sheet", cut(np.eye(100, 40), np.array([50.0]))).shape[1]

    def embed(self, modality: str, snippets: Tensor) -> NDArray[np.float32]:
        """Rows (n, dim) of length 1 for snippets (n, 1, rows, 100)."""
        rows = self._model.encode(modality, snippets, batch_size=_BATCH)
        return np.asarray(unit_rows(rows.cpu(), f"the embedding of {modality}").numpy())


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


# The number of the tune, and of the column and the frame in the middle of both snippets.
PLACE = np.dtype([("tune", "<i4"), ("column", "<f4"), ("frame", "<f4")])
# An eighth note in the ticks of the store: most notes of a dance begin on one, and models have
# learned from snippets with a note in the middle.
_STEP = 480


def places_of(store: SheetAudioStore, *, step: int = _STEP) -> NDArray[Any]:
    """A row (n,) of `PLACE` for every eighth note of every tune, in order.

    Between two onsets, the staff is taken to go on evenly.
    """
    parts = []
    for number in range(len(store)):
        onsets = store.tune(number).onsets
        ticks = np.arange(onsets["tick"][0], onsets["tick"][-1] + 1, step)
        part = np.empty(len(ticks), dtype=PLACE)
        part["tune"] = number
        part["column"] = np.interp(ticks, onsets["tick"], onsets["centre"])
        part["frame"] = np.interp(ticks, onsets["tick"], onsets["frame"])
        parts.append(part)
    return np.concatenate(parts)
