"""Recordings from files."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ccal.data.music.spectrogram import spectrogram
from ccal.errors import InputError
from ccal.optional import require

__all__ = ["audio_spectrogram", "read_audio"]


def read_audio(path: str | PathLike[str]) -> tuple[NDArray[np.float32], int]:
    """Samples (n, channels) within -1 and 1, and their rate, of a WAV, FLAC, Ogg or MP3 file."""
    name = fspath(path)
    if not Path(name).is_file():
        problem = "is a folder" if Path(name).is_dir() else "there is no such file"
        raise InputError(f"{name!r}: {problem}; expected a recording.")
    module = require("soundfile", extra="music", purpose="Reading audio files")
    try:
        samples, rate = module.read(name, dtype="float32", always_2d=True)
    except (RuntimeError, OSError, TypeError) as error:
        raise InputError(
            f"{name!r} cannot be read as audio ({error}); expected WAV, FLAC, Ogg or MP3."
        ) from error
    if len(samples) == 0:
        raise InputError(f"{name!r} has no sound: 0 samples.")
    return samples, int(rate)


def audio_spectrogram(path: str | PathLike[str]) -> Tensor:
    """`spectrogram` (frames, 136) of an audio file."""
    samples, rate = read_audio(path)
    try:
        return spectrogram(samples, rate)
    except InputError as error:
        raise InputError(f"{fspath(path)!r}: {error}") from error
