"""A recording as snippets of the kind that models know."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.errors import InputError
from ccal.music import audio_spectrogram, spectrogram
from ccal.music.pairs import FRAMES

__all__ = ["Recording", "level_of", "listen", "moments"]

Recording = str | PathLike[str] | tuple[Any, int]
# Frames softer than this part of the loud ones are silence.
_SOFT = 0.05
# Nothing that a 16-bit recording can hold is softer, but for silence.
_NOTHING = 1e-3
# Of each snippet, this part at least must lie within the recording.
_FILLED = 0.75


def listen(recording: Recording, level: float) -> NDArray[np.float32]:
    """Spectrogram (frames, 136), as loud as `level` says.

    A recording is the path of an audio file, or samples (n,) or (n, channels) and their rate.
    """
    if isinstance(recording, tuple):
        if len(recording) != 2:
            raise InputError(
                f"a recording is a path, or samples and their rate; got {len(recording)} things."
            )
        values = spectrogram(*recording)
    else:
        values = audio_spectrogram(recording)
    magnitudes = 10.0 ** values.numpy() - 1
    if float(magnitudes.max()) < _NOTHING:
        raise InputError("the recording is silent from its beginning to its end.")
    gain = level / max(_loudness(magnitudes), 1e-12)
    return np.log10(1 + gain * magnitudes, dtype=np.float32)


def level_of(audio: NDArray[np.floating]) -> float:
    """How loud spectrograms (frames, 136) are: the mean magnitude of what is not silence."""
    return _loudness(10.0 ** audio.astype(np.float32) - 1)


def moments(audio: NDArray[np.float32], hop: int) -> NDArray[np.int64]:
    """The middles (n,) of snippets of a spectrogram, in frames.

    Every `hop` frames, where there is sound and enough of a snippet lies within the recording.
    Of a recording that is too short for that, the middle.
    """
    margin = round(FRAMES * (_FILLED - 0.5))
    middles = np.arange(margin, len(audio) - margin + 1, hop)
    if len(middles) == 0:
        return np.array([len(audio) // 2])
    loud = audio.mean(axis=1)
    near = np.array([loud[max(0, m - hop) : m + hop + 1].max() for m in middles.tolist()])
    kept = middles[near > _SOFT * loud.max()]
    return np.asarray(kept if len(kept) else middles[near.argmax()][None])


def _loudness(magnitudes: NDArray[np.floating]) -> float:
    frames = magnitudes.mean(axis=1)
    return float(frames[frames >= _SOFT * frames.max()].mean())
