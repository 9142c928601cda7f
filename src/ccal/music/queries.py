"""Recordings as people have them, in the form that models know: as loud as those of the library."""

from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.errors import InputError
from ccal.music.audio import audio_spectrogram, spectrogram

Recording = str | PathLike[str] | tuple[Any, int]
# Frames softer than this share of the loud ones are silence.
_SOFT = 0.05
# A 16-bit recording that is not silent is louder.
_SILENT = 1e-3


def listen(recording: Recording, level: float) -> NDArray[np.float32]:
    """Spectrogram (frames, 136) of a recording, scaled to the loudness `level` (see `level_of`).

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
    if float(magnitudes.max()) < _SILENT:
        raise InputError("the recording is silent from its beginning to its end.")
    gain = level / max(_loudness(magnitudes), 1e-12)
    return np.log10(1 + gain * magnitudes, dtype=np.float32)


def level_of(audio: NDArray[np.floating]) -> float:
    """The loudness of spectrograms (frames, 136): the mean magnitude of frames with sound."""
    return _loudness(10.0 ** audio.astype(np.float32) - 1)


def sounding(audio: NDArray[np.float32]) -> tuple[int, int]:
    """The first frame with sound in a spectrogram (frames, 136), and the one behind the last."""
    loud = audio.mean(axis=1)
    frames = np.flatnonzero(loud > _SOFT * loud.max())
    return int(frames[0]), int(frames[-1]) + 1


def _loudness(magnitudes: NDArray[np.floating]) -> float:
    frames = magnitudes.mean(axis=1)
    return float(frames[frames >= _SOFT * frames.max()].mean())
