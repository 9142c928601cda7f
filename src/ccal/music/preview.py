"""A picture to look at what was built: note heads and onsets marked, and a few pairs."""

from __future__ import annotations

import io
from os import PathLike, fspath
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ccal.errors import InputError
from ccal.files import write_atomically
from ccal.music.pairs import SheetAudioPairs
from ccal.optional import require

__all__ = ["write_preview"]

_ZOOM, _WIDTH, _GAP, _PAIRS = 3, 620, 12, 6
_RED = np.array([255, 0, 0], dtype=np.uint8)


def write_preview(
    pairs: SheetAudioPairs, path: str | PathLike[str], *, tunes: int = 3, seed: int = 0
) -> None:
    """Write a PNG of some tunes' beginnings and of six pairs.

    For each tune, red lines are on the note heads of the staff and on the onsets of the spectrogram
    (low notes at the bottom) below it; then come six pairs, sheet above audio.
    """
    if len(pairs) == 0:
        raise InputError("there are no pairs to show.")
    rng = np.random.default_rng(seed)
    blocks: list[NDArray[np.uint8]] = []
    for number in pairs.tunes[:tunes].tolist():
        tune = pairs.store.tune(number)
        onsets = tune.onsets
        blocks.append(_marked(tune.sheet[:_WIDTH].T, np.floor(onsets["centre"])))
        blocks.append(_marked(_grey(tune.audio[:_WIDTH].T), onsets["frame"]))
    rows = np.sort(rng.choice(len(pairs), size=min(_PAIRS, len(pairs)), replace=False))
    sheet, audio = pairs.batch(rows)
    blocks.append(_row([_colour((255 * (1 - one[0])).astype(np.uint8)) for one in sheet.numpy()]))
    blocks.append(_row([_colour(_grey(one[0])) for one in audio.numpy()]))
    image = require("PIL.Image", extra="music", purpose="Writing pictures")
    content = io.BytesIO()
    image.fromarray(_stack(blocks)).save(content, format="PNG")
    write_atomically(Path(fspath(path)), content.getvalue())


def _grey(audio: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Spectrogram (136, n), loud parts dark and low notes at the bottom."""
    values = audio[::-1].astype(np.float32)
    # The root, since most of the sound would be too faint to see.
    relative = np.sqrt(np.maximum(values, 0) / max(float(values.max()), 1e-6))
    return np.asarray(255 * (1 - relative), dtype=np.uint8)


def _colour(grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Enlarged and in three colours (h, w, 3)."""
    return np.repeat(np.kron(grey, np.ones((_ZOOM, _ZOOM), np.uint8))[:, :, None], 3, axis=2)


def _marked(grey: NDArray[np.uint8], columns: NDArray[np.floating]) -> NDArray[np.uint8]:
    """With a red line in the middle of each of these columns."""
    picture = _colour(grey)
    places = (columns.astype(np.int64) * _ZOOM) + _ZOOM // 2
    picture[:, places[places < picture.shape[1]]] = _RED
    return picture


def _row(pictures: list[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    gap = np.full((pictures[0].shape[0], _GAP, 3), 220, dtype=np.uint8)
    return np.concatenate([part for picture in pictures for part in (picture, gap)], axis=1)


def _stack(blocks: list[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """One below the other, on grey."""
    width = max(block.shape[1] for block in blocks)
    height = sum(block.shape[0] + _GAP for block in blocks)
    page = np.full((height, width, 3), 220, dtype=np.uint8)
    top = 0
    for block in blocks:
        page[top : top + block.shape[0], : block.shape[1]] = block
        top += block.shape[0] + _GAP
    return page
