"""Snippets of staff lines and recordings, and their embeddings at the positions of every tune."""

from collections.abc import Iterator
from copy import deepcopy
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccal.encoders import VGG, Chroma, ChromaTower
from ccal.errors import InputError
from ccal.model import DualEncoder
from ccal.music.audio import band_pitches
from ccal.music.pairs import FRAMES
from ccal.music.store import SheetAudioStore
from ccal.ranks import unit_rows

MODALITIES = ("sheet", "audio")
# Small enough for the caches of a CPU.
_BATCH = 64

# The number of a tune, and the column and the frame in the middle of both snippets.
POSITION = np.dtype([("tune", "<i4"), ("column", "<f4"), ("frame", "<f4")])
# Semitones by which recordings may be higher than the A of 440 Hz.
_TUNINGS = np.linspace(-0.4, 0.5, 10).tolist()
# How much less lasting sounds count in recordings: the melody is what moves.
_LASTING = 0.7
# An eighth note in the ticks of the store: most notes of a dance begin on one, and models have
# learned from snippets with a note in the middle.
_STEP = 480


def positions_of(store: SheetAudioStore) -> NDArray[Any]:
    """A row (n,) of `POSITION` for every eighth note of every tune, in order.

    Between two onsets, columns are interpolated.
    """
    parts = []
    for number in range(len(store)):
        onsets = store.tune(number).onsets
        ticks = np.arange(onsets["tick"][0], onsets["tick"][-1] + 1, _STEP)
        part = np.empty(len(ticks), dtype=POSITION)
        part["tune"] = number
        part["column"] = np.interp(ticks, onsets["tick"], onsets["centre"])
        part["frame"] = np.interp(ticks, onsets["tick"], onsets["frame"])
        parts.append(part)
    return np.concatenate(parts)


def ink(sheet: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Staff lines as models see them: ink 1, paper 0."""
    return np.asarray((255 - sheet.astype(np.float32)) / 255)


def cut(
    values: NDArray[np.floating], middles: NDArray[np.number], *, mirrored: bool = False
) -> Tensor:
    """Snippets (n, 1, rows, 100) around `middles` (n,) of a staff line or spectrogram.

    `values` (length, rows) are continued beyond both ends by 0, paper or silence, as a whole tune
    ends there. A part of a tune does not: `mirrored` continues it by its reflection, which misleads
    a model less.
    """
    starts = np.rint(middles).astype(np.int64)
    if len(starts) and not 0 <= starts.min() <= starts.max() <= len(values):
        raise InputError(f"middles must lie within the length of {len(values)}.")
    # Padded by half a snippet, the snippet around a middle begins at its number.
    half = FRAMES // 2
    around = ((half, half), (0, 0))
    padded = np.pad(values.astype(np.float32), around, "reflect" if mirrored else "constant")
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
            if isinstance(tower, VGG | ChromaTower):
                self._model.towers[name] = tower.fused()
        # The chroma of a transposed recording is rotated; other towers see spectrograms.
        self.by_chroma = isinstance(self._model.towers["audio"], ChromaTower)
        self._chroma = [
            Chroma([pitch - higher for pitch in band_pitches()], _LASTING) for higher in _TUNINGS
        ]
        with torch.no_grad():
            self.dim = self.embed("sheet", cut(np.eye(100, 40), np.array([50.0]))).shape[1]

    def embed(self, modality: str, snippets: Tensor) -> NDArray[np.float32]:
        """Rows (n, dim) of length 1 for snippets (n, 1, rows, 100)."""
        rows = self._model.encode(modality, snippets, batch_size=_BATCH)
        return np.asarray(unit_rows(rows.cpu(), f"the embedding of {modality}").numpy())

    def chroma(self, sound: NDArray[np.float32]) -> NDArray[np.float32]:
        """The shares (frames, 12) of the pitch classes in a spectrogram (frames, 136).

        Of all tunings the one in which the pitches are most decided.
        """
        rows = torch.from_numpy(sound).T[None]
        found = (tuned(rows)[0] for tuned in self._chroma)
        return np.asarray(max(found, key=lambda shares: float(shares.square().mean())).T.numpy())

    def embed_tunes(
        self, modality: str, store: SheetAudioStore, positions: NDArray[Any]
    ) -> Iterator[NDArray[np.float32]]:
        """The rows of the snippets at all positions of one tune after the other."""
        bounds = np.searchsorted(positions["tune"], np.arange(len(store) + 1)).tolist()
        for number, (first, last) in enumerate(pairwise(bounds)):
            tune, own = store.tune(number), positions[first:last]
            if modality == "sheet":
                snippets = cut(ink(tune.sheet), own["column"])
            else:
                snippets = cut(tune.audio, own["frame"])
            yield self.embed(modality, snippets)
