"""The places of a tune that can be found: the same moments on its staff and in its sound."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.data.music import SheetAudioStore

__all__ = ["PLACE", "places_of"]

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
