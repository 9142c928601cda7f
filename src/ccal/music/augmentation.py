"""Pairs as they might have been: played faster, louder or elsewhere, printed larger or higher."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional

from ccal.errors import InputError
from ccal.music.audio import BINS
from ccal.music.engraving import ROWS
from ccal.music.pairs import COLUMNS, FRAMES, SheetAudioPairs

__all__ = ["Augmentation", "AugmentedPairs"]

# Slow waves over the frequencies make up a room or another instrument.
_WAVES = 4


@dataclass(frozen=True)
class Augmentation:
    """How far a pair may be changed; zeros leave it as it is.

    Args:
        tempo: the sound is up to so much faster or slower, at the same pitch.
        frames: the sound is shifted by up to so many frames.
        loudness: it is louder or softer by up to so many decibels.
        colour: each frequency by up to about so many decibels more, neighbours alike.
        noise: white noise of up to so much of the sound's mean level.
        scale: the staff is up to so much larger or smaller.
        rows: it is up to so many pixels higher or lower.
    """

    tempo: float = 0.1
    frames: float = 1.0
    loudness: float = 10.0
    colour: float = 6.0
    noise: float = 0.3
    scale: float = 0.05
    rows: float = 4.0

    def __post_init__(self) -> None:
        for name, value in self.__dict__.items():
            if not 0 <= value < float("inf"):
                raise InputError(f"{name} must be 0 or more, got {value}.")
        if max(self.tempo, self.scale) >= 0.5:
            raise InputError(
                f"tempo and scale must be below 0.5, got {self.tempo} and {self.scale}."
            )


class AugmentedPairs:
    """Pairs that are changed at random each time they are asked for, for training.

    Draws from torch's global generator. The note that sheet and sound lead to, or have in their
    middle, stays where it is in both.
    """

    def __init__(self, pairs: SheetAudioPairs, how: Augmentation | None = None) -> None:
        self.pairs, self.how = pairs, how or Augmentation()
        # What a faster sound needs beyond its 100 frames.
        self._margin = int(np.ceil(FRAMES * self.how.tempo + self.how.frames)) + 1

    def __len__(self) -> int:
        return len(self.pairs)

    def batch(self, rows: ArrayLike) -> tuple[Tensor, Tensor]:
        """Sheets (n, 1, 40, 100) and audio (n, 1, 136, 100) of the pairs numbered `rows` (n,)."""
        index = np.asarray(rows, dtype=np.int64)
        sheet = self._sheet(self.pairs.sheet(index))
        audio = self._coloured(self._stretched(index))
        return sheet, audio.mT.contiguous().unsqueeze(1)

    def _sheet(self, sheet: Tensor) -> Tensor:
        """Larger or smaller around the middle, and higher or lower (n, 1, 40, 100)."""
        n = len(sheet)
        change = torch.zeros(n, 2, 3)
        change[:, 0, 0] = change[:, 1, 1] = 1 / (1 + _within(self.how.scale, n))
        # Left and right keep their distance to the note, which is in the middle or at the end.
        if not self.pairs.centred:
            change[:, 0, 2] = 1 - change[:, 0, 0]
        change[:, 1, 2] = _within(self.how.rows, n) * 2 / ROWS
        grid = functional.affine_grid(change, [n, 1, ROWS, COLUMNS], align_corners=False)
        return functional.grid_sample(sheet, grid, align_corners=False)

    def _stretched(self, index: NDArray[np.int64]) -> Tensor:
        """Spectrograms (n, 100, 136) at another tempo."""
        store, margin, n = self.pairs.store, self._margin, len(index)
        wide = FRAMES + 2 * margin
        starts = self.pairs.frame[index] - margin
        ends = np.array([tune.audio for tune in store.tunes])[self.pairs.tune[index]]
        # Beyond its own tune a snippet holds on to the first or last frame.
        inside = (starts[:, None] + np.arange(wide)).clip(ends[:, :1], ends[:, 1:] - 1)
        pieces = torch.from_numpy(store.audio[inside]).float()
        anchor = FRAMES / 2 if self.pairs.centred else float(FRAMES)
        place = torch.arange(FRAMES) - anchor
        place = place * (1 + _within(self.how.tempo, n, 1)) + _within(self.how.frames, n, 1)
        place = (place + anchor + margin).clamp(0, wide - 1.001)
        low = place.floor().long()
        share = (place - low).unsqueeze(2)
        each = torch.arange(n).unsqueeze(1)
        return torch.lerp(pieces[each, low], pieces[each, low + 1], share)

    def _coloured(self, audio: Tensor) -> Tensor:
        """Louder or softer, as from another instrument or room, with noise (n, 100, 136)."""
        n = len(audio)
        waves = torch.cos(torch.outer(torch.arange(_WAVES) * torch.pi, torch.linspace(0, 1, BINS)))
        each = _within(self.how.colour / _WAVES**0.5, n, _WAVES) @ waves
        decibels = each + _within(self.how.loudness, n, 1)
        # Back from log10(1 + x), where louder means a factor.
        level = torch.expm1(audio * np.log(10.0)) * 10 ** (decibels / 20).unsqueeze(1)
        strength = self.how.noise * torch.rand(n, 1, 1) ** 2 * level.mean((1, 2), keepdim=True)
        level = level + strength * torch.rand_like(level)
        return torch.log10(1 + level)


def _within(limit: float, *size: int) -> Tensor:
    """Uniform between -limit and limit."""
    return (2 * torch.rand(*size) - 1) * limit
