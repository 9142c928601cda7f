"""Melodies in spectrograms: how strongly each pitch class sounds, and a tower that sees only that.

Octaves are folded together, so that a whistle that sounds higher than it is written looks as it is
written, and a transposed tune is the same picture with its twelve rows rotated.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ccal.bounds import Whole
from ccal.encoders.dense import initialised
from ccal.encoders.registry import Tower, register_tower
from ccal.encoders.vgg import fused_layers
from ccal.errors import InputError

CLASSES = 12
# Bands of a quarter tone from the C of 65 Hz to 8 kHz, and the pitches (MIDI) of melodies.
_LOWEST, _BANDS, _FIRST, _PITCHES = 36, 168, 48, 48
# Below the A of 440 Hz melodies are rarer with every semitone, and chords more frequent.
_MELODIC, _RARER = 69, 0.3
# How much the bands of a pitch's harmonics count for it.
_HARMONICS = {1: 1.0, 2: 0.8, 3: 0.6, 4: 0.4}
# Bands, two octaves, whose mean is the background, and how decided the choice of a pitch is.
_AROUND, _DECIDED = 49, 0.7
# Frames, 1.3 seconds, whose mean is what sounds on.
_LONG = 41


class Chroma(nn.Module):
    """Spectrograms (n, rows, frames) on a logarithmic scale -> shares (n, 12, frames).

    In every frame the shares of the pitch classes C, C sharp, ..., B add up to 1. A band counts by
    how far it is above the bands around it, in units of its own frame: neither loudness nor the
    colour of an instrument matters. `pitches` are those of the rows, as numbers of MIDI, rising.

    What sounds on, chords, drones and echoes, counts less by the share `lasting` of its mean over
    1.3 seconds.

    >>> pitches = [float(pitch) for pitch in np.arange(36, 120, 0.5)]
    >>> a = torch.zeros(1, len(pitches), 1)
    >>> a[0, pitches.index(69.0)] = 1
    >>> int(Chroma(pitches)(a).argmax())
    9
    """

    bands: Tensor
    harmonics: Tensor
    rarity: Tensor
    fold: Tensor

    def __init__(self, pitches: Sequence[float], lasting: float = 0.0) -> None:
        super().__init__()
        self.lasting = lasting
        grid = _LOWEST + np.arange(_BANDS) / 2
        rows = np.asarray(pitches, dtype=np.float64)
        bands = np.stack([np.interp(grid, rows, unit) for unit in np.eye(len(rows))], axis=1)
        harmonics = np.zeros((_PITCHES, _BANDS))
        for number, weight in _HARMONICS.items():
            above = round(24 * np.log2(number))
            at = 2 * (np.arange(_PITCHES) + _FIRST - _LOWEST) + above
            harmonics[np.arange(_PITCHES), at] += weight
        melodic = np.arange(_PITCHES) + _FIRST
        rarity = _RARER * np.maximum(0, _MELODIC - melodic)
        fold = melodic % CLASSES == np.arange(CLASSES)[:, None]
        named = {"bands": bands, "harmonics": harmonics, "rarity": rarity, "fold": fold}
        for name, values in named.items():
            tensor = torch.from_numpy(values.astype(np.float32))
            self.register_buffer(name, tensor, persistent=False)

    def forward(self, spectrograms: Tensor) -> Tensor:
        """(n, rows, frames) -> (n, 12, frames)."""
        bands = (self.bands @ spectrograms).mT
        around = functional.avg_pool1d(bands, _AROUND, 1, _AROUND // 2, count_include_pad=False)
        clear = (bands - around).clamp(min=0)
        if self.lasting:
            long = functional.avg_pool1d(clear.mT, _LONG, 1, _LONG // 2, count_include_pad=False)
            clear = (clear - self.lasting * long.mT).clamp(min=0)
        size = clear.square().mean(2, keepdim=True).sqrt()
        full = size + 0.1 * size.mean(1, keepdim=True) + 1e-6
        # In silence every pitch class is as likely.
        rarity = self.rarity * (size / full)
        salience = clear / full @ (_DECIDED * self.harmonics.mT) - rarity
        return (salience.softmax(2) @ self.fold.mT).mT


@register_tower("chroma")
class ChromaTower(Tower):
    """The `Chroma` of spectrograms, convolutions over time, and the mean over time.

    Blocks of two convolutions of width 3 and max-pooling as in `VGG`: batch normalisation after
    each, ELU after all but the last. The first is of width 5 and takes every second frame.

    Shapes: (n, rows, width) or (n, 1, rows, width) -> (n, out_features); for chroma, there are 12
    rows. `pitches` are those of the rows of a spectrogram, see `Chroma`.

    >>> tower = ChromaTower([36 + 0.5 * row for row in range(168)])
    >>> tower(torch.rand(2, 1, 168, 100)).shape, tower(torch.rand(2, 12, 100)).shape
    (torch.Size([2, 32]), torch.Size([2, 32]))
    """

    def __init__(
        self,
        pitches: Sequence[float],
        width: int = 100,
        out_features: int = 32,
        *,
        maps: Sequence[int] = (64, 96, 128),
    ) -> None:
        super().__init__()
        sizes = [width, out_features, *maps]
        if len(pitches) <= CLASSES or not maps or not all(map(Whole(at_least=1).allows, sizes)):
            raise InputError(
                f"A chroma tower needs more than {CLASSES} pitches, and sizes that are positive "
                f"whole numbers; got {len(pitches)} pitches and the sizes {sizes}."
            )
        self.pitches, self.width = [float(pitch) for pitch in pitches], width
        self.out_features, self.maps = out_features, list(maps)
        self.chroma = Chroma(self.pitches)
        layers: list[nn.Module] = []
        for before, after in pairwise((CLASSES, *maps)):
            first = {} if layers else {"kernel": 5, "stride": 2}
            layers += [*_normalised(before, after, **first), nn.ELU(inplace=True)]
            layers += [*_normalised(after, after), nn.ELU(inplace=True), nn.MaxPool1d(2)]
        layers += _normalised(self.maps[-1], out_features, kernel=1)
        self.layers = nn.Sequential(*layers)

    def forward(self, sound: Tensor) -> Tensor:
        """(n, rows, width), (n, 1, rows, width), or chroma (n, 12, width) -> (n, out_features)."""
        if sound.ndim == 4 and sound.shape[1] == 1:
            sound = sound[:, 0]
        rows = len(self.pitches)
        if sound.ndim != 3 or sound.shape[1] not in (rows, CLASSES) or sound.shape[2] != self.width:
            raise InputError(
                f"This tower takes spectrograms (n, 1, {rows}, {self.width}) or chroma "
                f"(n, {CLASSES}, {self.width}), got {tuple(sound.shape)}."
            )
        chroma = self.chroma(sound) if sound.shape[1] == rows else sound
        # Shares are near 1/12 and seldom above 1/2; batch normalisation takes care of the scale.
        return self.layers(chroma).mean(2)  # type: ignore[no-any-return]

    def fused(self) -> ChromaTower:
        """A copy for inference, with batch normalisation folded into the convolutions."""
        copy = deepcopy(self).eval()
        copy.layers = nn.Sequential(*fused_layers(copy.layers))
        return copy


def _normalised(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
    # Batch normalisation subtracts a bias again.
    conv = nn.Conv1d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return [initialised(conv), nn.BatchNorm1d(outputs)]
