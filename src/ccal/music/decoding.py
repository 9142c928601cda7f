"""Sound out of files: one channel of samples, within limits, by libsndfile or by PyAV (FFmpeg)."""

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ccal.errors import CcalError, InputError
from ccal.media_types import AUDIO, HEAD, sniff
from ccal.optional import require

Blocks = Iterator[NDArray[np.float32]]

# FFmpeg opens these only: among its formats are playlists, which make it open files and addresses.
_BY_AV = {
    "audio/aac": "aac",
    "audio/amr": "amr",
    "audio/mp4": "mov",
    "audio/mpeg": "mp3",
    "audio/ogg": "ogg",
    "video/mp4": "mov",
    "video/webm": "matroska",
}
_BY_SNDFILE = ("audio/wav", "audio/flac", "audio/ogg", "audio/mpeg", None)
# A file that is recorded while it is sent has a header with no length, or with a huge one.
_NO_LENGTH = 2**62
_CHANNELS, _LOWEST_RATE, HIGHEST_RATE = 8, 1000, 192_000
ADVICE = "Convert it to WAV, FLAC or MP3, for instance with Audacity or VLC."


class TooLongError(InputError):
    """A sound is longer than is allowed."""


def decode(file: BinaryIO, longest: float) -> tuple[NDArray[np.float32], int]:
    """Samples (n,) within -1 and 1, the mean of all channels, and their rate.

    Reads WAV, FLAC, Ogg (Vorbis, Opus), MP3, M4A, AAC, AMR, and the sound of MP4 and WebM videos.
    A header may lie about the length, so that no more than `longest` seconds are decoded:
    `TooLongError` says that there is more.
    """
    type = sniff(file.read(HEAD))
    if type is not None and type not in AUDIO:
        raise InputError(f"it is no sound but {type}.")
    attempts: list[Callable[[BinaryIO, float], tuple[int, Blocks]]] = []
    if type in _BY_SNDFILE:
        attempts.append(_by_sndfile)
    if type in _BY_AV:
        attempts.append(lambda file, longest: _by_av(file, longest, _BY_AV[str(type)]))
    problem = "its format is unknown"
    for attempt in attempts:
        file.seek(0)
        try:
            return _joined(*attempt(file, longest), longest)
        except CcalError:
            raise
        # Decoders raise exceptions of many kinds for damaged files.
        except Exception as error:
            if type is not None:
                problem = f"{type}, and damaged: {error}"
    raise InputError(f"it cannot be read as sound ({problem}). {ADVICE}")


def _joined(rate: int, blocks: Blocks, longest: float) -> tuple[NDArray[np.float32], int]:
    parts, read = [], 0
    for block in blocks:
        read += len(block)
        if read > longest * rate:
            raise TooLongError(_too_long(longest))
        parts.append(block)
    if not read:
        raise InputError("it has no sound: 0 samples.")
    samples = np.concatenate(parts)
    if not np.isfinite(samples).all():
        raise InputError("it has samples that are NaN or infinite.")
    return samples, rate


def _too_long(longest: float) -> str:
    return f"it is longer than {longest / 60:g} minutes; cut out the part that you want to find."


def _check(rate: int, channels: int, seconds: float, longest: float) -> None:
    if not _LOWEST_RATE <= rate <= HIGHEST_RATE or channels > _CHANNELS:
        raise InputError(
            f"it has {rate:,} samples a second in {channels} channels; expected "
            f"{_LOWEST_RATE:,} to {HIGHEST_RATE:,} in {_CHANNELS} or fewer."
        )
    if seconds > longest:
        raise TooLongError(_too_long(longest))


def _by_sndfile(file: BinaryIO, longest: float) -> tuple[int, Blocks]:
    module = require("soundfile", extra="music", purpose="Reading audio files")
    sound = module.SoundFile(file)
    rate = int(sound.samplerate)
    frames = sound.frames if sound.frames < _NO_LENGTH else 0
    _check(rate, int(sound.channels), frames / max(rate, 1), longest)

    def blocks() -> Blocks:
        with sound:
            while len(block := sound.read(rate, dtype="float32", always_2d=True)):
                yield block.mean(axis=1)

    return rate, blocks()


def _by_av(file: BinaryIO, longest: float, format: str) -> tuple[int, Blocks]:
    av = require("av", extra="music", purpose="Reading M4A, AAC, WebM and videos")
    container = av.open(file, format=format, metadata_errors="ignore")
    if not container.streams.audio:
        raise InputError("it has pictures but no sound.")
    stream = container.streams.audio[0]
    rate = int(stream.rate or 0)
    if not rate:
        raise ValueError("its beginning is missing")
    length = float(stream.duration * stream.time_base) if stream.duration else 0.0
    _check(rate, int(stream.channels), length, longest)

    def blocks() -> Blocks:
        mono = av.AudioResampler(format="flt", layout="mono", rate=rate)
        decoded, damage = 0, None
        with container:
            for packet in container.demux(stream):
                try:
                    frames: list[Any] = packet.decode()
                # Of a file that is damaged in the middle, the rest can be heard.
                except av.FFmpegError as error:
                    damage = error
                    continue
                for frame in frames:
                    for part in mono.resample(frame):
                        decoded += 1
                        yield part.to_ndarray().reshape(-1)
        if damage is not None and not decoded:
            raise damage

    return rate, blocks()
