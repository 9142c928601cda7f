"""Augmented pairs: other tempo, loudness and colour of the sound, a worn staff."""

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ccal.bounds import Number, check
from ccal.music.audio import BINS, FRAME_RATE
from ccal.music.pairs import COLUMNS, FRAMES, SheetAudioPairs
from ccal.music.wear import Wear

# The response of a room or another instrument is a sum of slow waves over the frequencies.
_WAVES = 4


@dataclass(frozen=True)
class Augmentation:
    """How far a pair may be changed at most; zeros leave it as it is.

    Args:
        tempo: share by which the sound is faster or slower at the same pitch, below 0.5.
        frames: frames by which the sound is shifted.
        loudness: decibels by which the sound is louder or softer.
        colour: about the decibels by which single frequencies are, neighbours alike.
        noise: level of white noise, as a share of the sound's mean level.
        room: level of the echo, which fades within a second, as a share of the sound's.
        company: level of other music that sounds at the same time, as a share of the sound's.
        sheet: how the staff may be changed.
    """

    tempo: float = 0.12
    frames: float = 2.0
    loudness: float = 10.0
    colour: float = 10.0
    noise: float = 0.5
    room: float = 0.6
    company: float = 0.5
    sheet: Wear = field(default_factory=Wear)

    @classmethod
    def none(cls) -> Self:
        """Pairs as they are, but at the tempo that models know."""
        sheet = Wear(**dict.fromkeys(Wear().__dict__, 0.0))
        plain: dict[str, Any] = dict.fromkeys(cls().__dict__, 0.0)
        return cls(**(plain | {"sheet": sheet}))

    def __post_init__(self) -> None:
        for name, value in self.__dict__.items():
            if name != "sheet":
                below = 0.5 if name == "tempo" else float("inf")
                check(name, value, Number(at_least=0, below=below))


class AugmentedPairs:
    """Pairs that are changed at random each time they are asked for, for training.

    Draws from torch's global generator. The note that both snippets lead to, or have in their
    middle, keeps its position in both.
    """

    def __init__(self, pairs: SheetAudioPairs, how: Augmentation | None = None) -> None:
        self.pairs, self.how = pairs, how or Augmentation()
        # Models know 120 quarter notes a minute; those of the store may take fewer frames.
        self._speed = 120.0 / float(pairs.store.settings["tempo"])
        # Frames that a faster sound needs beyond its 100.
        widest = FRAMES * (1 + self.how.tempo) + 2 * self.how.frames
        self._margin = max(0, int(np.ceil((widest * self._speed - FRAMES) / 2))) + 1

    def __len__(self) -> int:
        return len(self.pairs)

    def batch(self, rows: ArrayLike) -> tuple[Tensor, Tensor]:
        """Sheets (n, 1, 40, 100) and audio (n, 1, 136, 100) of the pairs numbered `rows` (n,)."""
        index = np.asarray(rows, dtype=np.int64)
        sheet = self._worn(index)
        audio = self._coloured(self._stretched(index))
        return sheet, audio.mT.contiguous().unsqueeze(1)

    def _worn(self, index: NDArray[np.int64]) -> Tensor:
        """Staff lines (n, 1, 40, 100), worn; the note keeps its column."""
        store, margin = self.pairs.store, int(np.ceil(COLUMNS * self.how.sheet.margin)) + 1
        starts = self.pairs.column[index] - margin
        ends = np.array([tune.sheet for tune in store.tunes])[self.pairs.tune[index]]
        # Beyond its own tune a snippet repeats the first or last column, paper.
        inside = starts[:, None] + np.arange(COLUMNS + 2 * margin)
        pieces = store.sheet[inside.clip(ends[:, :1], ends[:, 1:] - 1)]
        ink = torch.from_numpy(pieces).mT.unsqueeze(1).float().mul_(-1 / 255).add_(1)
        return self.how.sheet(ink, COLUMNS, COLUMNS / 2 if self.pairs.centred else float(COLUMNS))

    def _stretched(self, index: NDArray[np.int64]) -> Tensor:
        """Spectrograms (n, 100, 136) at another tempo."""
        store, margin, n = self.pairs.store, self._margin, len(index)
        wide = FRAMES + 2 * margin
        starts = self.pairs.frame[index] - margin
        ends = np.array([tune.audio for tune in store.tunes])[self.pairs.tune[index]]
        # Beyond its own tune a snippet repeats the first or last frame.
        inside = (starts[:, None] + np.arange(wide)).clip(ends[:, :1], ends[:, 1:] - 1)
        pieces = torch.from_numpy(store.audio[inside]).float()
        anchor = FRAMES / 2 if self.pairs.centred else float(FRAMES)
        at = torch.arange(FRAMES) - anchor
        at = at * (1 + _within(self.how.tempo, n, 1)) + _within(self.how.frames, n, 1)
        at = at * self._speed
        at = (at + anchor + margin).clamp(0, wide - 1.001)
        low = at.floor().long()
        share = (at - low).unsqueeze(2)
        each = torch.arange(n).unsqueeze(1)
        return torch.lerp(pieces[each, low], pieces[each, low + 1], share)

    def _coloured(self, audio: Tensor) -> Tensor:
        """Of another loudness and colour, in company, in a room, with noise (n, 100, 136)."""
        n = len(audio)
        waves = torch.cos(torch.outer(torch.arange(_WAVES) * torch.pi, torch.linspace(0, 1, BINS)))
        each = _within(self.how.colour / _WAVES**0.5, n, _WAVES) @ waves
        decibels = each + _within(self.how.loudness, n, 1)
        # Back from log10(1 + x), where louder means a factor.
        level = torch.expm1(audio * np.log(10.0)) * 10 ** (decibels / 20).unsqueeze(1)
        size = level.mean((1, 2), keepdim=True)
        # The same sounds, each with its neighbour in the batch behind it.
        behind = self.how.company * torch.rand(n, 1, 1) ** 2 * size / size.roll(1, 0)
        level = level + behind * level.roll(1, 0)
        level = level + self._echo(n) @ level
        strength = self.how.noise * torch.rand(n, 1, 1) ** 2 * level.mean((1, 2), keepdim=True)
        level = level + strength * torch.rand_like(level)
        return torch.log10(1 + level)

    def _echo(self, n: int) -> Tensor:
        """What is left, in each frame, of each frame before it (n, 100, 100)."""
        ago = (torch.arange(FRAMES)[:, None] - torch.arange(FRAMES)).float()
        # Echoes fall by 60 dB in half a second to two seconds.
        fall = np.log(1000.0) / FRAME_RATE / (0.5 + 1.5 * torch.rand(n, 1, 1))
        echo = torch.where(ago > 0, torch.exp(-fall * ago), 0.0)
        strength = self.how.room * torch.rand(n, 1, 1) ** 2
        return strength * echo / echo.sum(2, keepdim=True).amax(1, True)


def _within(limit: float, *size: int) -> Tensor:
    """Uniform between -limit and limit."""
    return (2 * torch.rand(*size) - 1) * limit
