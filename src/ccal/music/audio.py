"""Recordings as the paper's spectrograms: 136 logarithmic bins, 31.25 frames per second.

Resampling and spectrogram must stay bit-identical (see `rendering`).
"""

import math
from fractions import Fraction
from functools import lru_cache
from os import PathLike, fspath
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ccal.bounds import Whole, check
from ccal.errors import InputError
from ccal.music.decoding import decode

SAMPLE_RATE, FRAME_RATE, BINS = 22050, 31.25, 136
_WINDOW, _BANDS_PER_OCTAVE, _LOWEST, _HIGHEST, _TUNING = 2048, 24, 30.0, 8000.0, 440.0
# Frames of one pass; long recordings would need gigabytes at once.
_CHUNK = 2048
# Seconds of a file.
_LONGEST = 1200.0
# Zero crossings of the sinc on each side, the part of the band that is kept, and the window's
# shape: 0.01 dB off at 0.8 of the narrower band, and 80 dB down at 1.05 of it.
_ZEROS, _KEPT, _BETA = 40, 0.945, 8.0
# A convolution with many kernels is one product of matrices; with one kernel it is slow.
_PHASES = 64


def spectrogram(signal: ArrayLike | Tensor, sample_rate: int = SAMPLE_RATE) -> Tensor:
    """Log-frequency spectrogram (frames, 136) of a signal (n,) or (n, channels), float32.

    Channels are averaged and other rates resampled to 22.05 kHz. Frame i is centred on second
    i / 31.25, rounded to a sample: a Hann window of 2,048 samples, with silence beyond both ends.
    Its magnitudes are averaged by triangular filters, 24 an octave from 30 to 8,000 Hz, and x
    becomes log10(1 + x). Floats are expected within -1 and 1; integers are scaled to that.

    >>> spectrogram(np.zeros(22050)).shape
    torch.Size([32, 136])
    """
    check("sample_rate", sample_rate, Whole(at_least=1000, at_most=768_000))
    mono = resample(_mono(signal), int(sample_rate), SAMPLE_RATE)
    hop = SAMPLE_RATE / FRAME_RATE
    frames = math.ceil(len(mono) / hop)
    starts = torch.tensor([round(i * hop) for i in range(frames)])
    padded = torch.nn.functional.pad(mono, (_WINDOW // 2, _WINDOW))
    window = torch.hann_window(_WINDOW, periodic=False, dtype=torch.float32)
    windows, filters = padded.unfold(0, _WINDOW, 1), torch.from_numpy(filter_bank())
    result = torch.empty(frames, BINS)
    for first in range(0, frames, _CHUNK):
        part = windows[starts[first : first + _CHUNK]] * window
        # The bin at half the sample rate belongs to no filter.
        magnitudes = torch.fft.rfft(part).abs()[:, : _WINDOW // 2]
        result[first : first + _CHUNK] = torch.log10(1 + magnitudes @ filters)
    return result


@lru_cache(maxsize=1)
def filter_bank() -> NDArray[np.float32]:
    """Triangular filters as columns (1024, 136), each of sum 1.

    Their corners are the Fourier bins nearest to the frequencies 440 Hz * 2^(i/24), each bin once:
    where the Fourier transform resolves less than 24 bands an octave, there are fewer.
    """
    low = math.ceil(_BANDS_PER_OCTAVE * math.log2(_LOWEST / _TUNING))
    high = math.floor(_BANDS_PER_OCTAVE * math.log2(_HIGHEST / _TUNING))
    frequencies = _TUNING * 2.0 ** (np.arange(low, high + 1) / _BANDS_PER_OCTAVE)
    corners = np.unique(np.rint(frequencies * _WINDOW / SAMPLE_RATE).astype(np.int64))
    bank = np.zeros((_WINDOW // 2, len(corners) - 2))
    for band, (left, centre, right) in enumerate(
        zip(corners[:-2], corners[1:-1], corners[2:], strict=True)
    ):
        bank[left:centre, band] = np.arange(centre - left) / (centre - left)
        bank[centre:right, band] = 1 - np.arange(right - centre) / (right - centre)
    return np.asarray(bank / bank.sum(axis=0), dtype=np.float32)


def band_pitches() -> list[float]:
    """The pitches (136,) of a spectrogram's bands, as numbers of MIDI.

    >>> round(band_pitches()[-1])
    119
    """
    bank = filter_bank().astype(np.float64)
    hertz = np.arange(len(bank)) @ bank * SAMPLE_RATE / _WINDOW
    return [round(float(pitch), 3) for pitch in 69 + 12 * np.log2(hertz / _TUNING)]


def _mono(signal: ArrayLike | Tensor) -> Tensor:
    """One channel (n,) float32 within -1 and 1."""
    array = signal.detach().cpu().numpy() if isinstance(signal, Tensor) else np.asarray(signal)
    if array.ndim not in (1, 2) or array.dtype.kind not in "fiu" or 0 in array.shape[1:]:
        raise InputError(
            f"expected audio (n,) or (n, channels) of numbers, got {array.shape} of {array.dtype}."
        )
    if array.ndim == 2 and array.shape[1] > max(array.shape[0], 8):
        raise InputError(
            f"audio must be (n, channels), but {array.shape} has {array.shape[1]} channels; "
            "transpose it."
        )
    if array.shape[0] == 0:
        raise InputError("the audio is empty.")
    values = array.astype(np.float32)
    if array.dtype.kind in "iu":
        limits = np.iinfo(array.dtype)
        middle = (limits.max + limits.min + 1) / 2
        values = ((array - middle) / (limits.max - middle + 1)).astype(np.float32)
    if values.ndim == 2:
        values = values.mean(axis=1)
    bad = int((~np.isfinite(values)).sum())
    if bad:
        raise InputError(f"the audio has {bad:,} samples that are not finite (NaN or infinite).")
    return torch.from_numpy(np.ascontiguousarray(values))


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
    # Sums of 1, so that a constant signal stays constant in every phase.
    kernels = (kernels / kernels.sum(dim=1, keepdim=True)).to(torch.float32)
    padded = torch.nn.functional.pad(signal.to(torch.float32), (half, half + 2 * down))
    blocks = torch.nn.functional.conv1d(padded[None, None], kernels[:, None], stride=down)
    return blocks[0].T.reshape(-1)[: math.ceil(len(signal) * new / old)]


def read_audio(path: str | PathLike[str]) -> tuple[NDArray[np.float32], int]:
    """Samples (n,) within -1 and 1, the mean of all channels, and their rate, of a file of sound.

    See `ccal.music.decoding.decode` for the formats; at most 20 minutes are read.
    """
    name = fspath(path)
    if not Path(name).is_file():
        problem = "is a folder" if Path(name).is_dir() else "there is no such file"
        raise InputError(f"{name!r}: {problem}; expected a recording.")
    try:
        with open(name, "rb") as file:
            return decode(file, _LONGEST)
    except (InputError, OSError) as error:
        raise InputError(f"{name!r}: {error}") from error


def audio_spectrogram(path: str | PathLike[str]) -> Tensor:
    """`spectrogram` (frames, 136) of an audio file."""
    samples, rate = read_audio(path)
    try:
        return spectrogram(samples, rate)
    except InputError as error:
        raise InputError(f"{fspath(path)!r}: {error}") from error
