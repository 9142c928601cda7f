"""Audio at another sample rate."""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor

__all__ = ["resample"]

# Zero crossings of the sinc on each side, the part of the band that is kept, and the window's
# shape: 0.01 dB off at 0.8 of the narrower band, and 80 dB down at 1.05 of it.
_ZEROS, _KEPT, _BETA = 40, 0.945, 8.0
# A convolution with many kernels is one product of matrices; with one kernel it is slow.
_PHASES = 64


def resample(signal: Tensor, old: int, new: int) -> Tensor:
    """A signal (n,) of `old` samples a second with `new` samples a second: (ceil(n new / old),).

    Band-limited by a windowed sinc, float32. Ratios of large numbers are rounded by less than a
    millionth.

    >>> resample(torch.ones(441), 44100, 22050).shape
    torch.Size([221])
    """
    if old == new or len(signal) == 0:
        return signal
    ratio = Fraction(new, old).limit_denominator(1000)
    together = max(1, _PHASES // ratio.numerator)
    up, down = ratio.numerator * together, ratio.denominator * together
    cutoff = _KEPT * min(1.0, up / down)
    half = math.ceil(_ZEROS / cutoff)
    # Output up * block + phase lies phase * down / up samples behind input down * block.
    phases = torch.arange(up, dtype=torch.float64)[:, None] * down / up
    taps = torch.arange(-half, half + down + 1, dtype=torch.float64)
    away = taps - phases
    window = torch.special.i0(_BETA * (1 - (away / half) ** 2).clamp(min=0).sqrt())
    window = torch.where(away.abs() < half, window / torch.special.i0(torch.tensor(_BETA)), 0.0)
    kernels = torch.sinc(cutoff * away) * cutoff * window
    # A constant stays the constant that it was, in every phase.
    kernels = (kernels / kernels.sum(dim=1, keepdim=True)).to(torch.float32)
    padded = torch.nn.functional.pad(signal.to(torch.float32), (half, half + 2 * down))
    blocks = torch.nn.functional.conv1d(padded[None, None], kernels[:, None], stride=down)
    return blocks[0].T.reshape(-1)[: math.ceil(len(signal) * new / old)]
