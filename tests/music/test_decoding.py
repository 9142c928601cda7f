"""Sound as people have it, each format encoded by FFmpeg or libsndfile in the test."""

from __future__ import annotations

import sys
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from ccal.errors import CcalError, InputError
from ccal.music import read_audio
from ccal.music.decoding import TooLongError, decode

av = pytest.importorskip("av")
soundfile = pytest.importorskip("soundfile")

# Name, container and codec of FFmpeg, and samples a second.
FORMATS = [
    ("m4a", "ipod", "aac", 44_100),
    ("mp4", "mp4", "aac", 48_000),
    ("3gp", "3gp", "aac", 22_050),
    ("aac", "adts", "aac", 44_100),
    ("webm", "webm", "libopus", 48_000),
    ("opus", "ogg", "libopus", 48_000),
    ("mp3", "mp3", "libmp3lame", 44_100),
]


def tone(seconds: float, rate: int) -> np.ndarray:
    return (0.3 * np.sin(2 * np.pi * 440 * np.arange(round(seconds * rate)) / rate)).astype("f4")


def encoded(
    container: str, codec: str, rate: int, seconds: float = 1.5, video: bool = False
) -> bytes:
    file = BytesIO()
    with av.open(file, "w", format=container) as out:
        stream = out.add_stream(codec, rate=rate)
        stream.layout = "stereo"
        pictures = out.add_stream("mpeg4", rate=5) if video else None
        if pictures is not None:
            pictures.width = pictures.height = 64
            for _ in range(5):
                picture = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8))
                out.mux(pictures.encode(picture))
            out.mux(pictures.encode(None))
        samples = np.stack([tone(seconds, rate), np.zeros(round(seconds * rate), "f4")])
        for first in range(0, samples.shape[1], 960):
            part = np.ascontiguousarray(samples[:, first : first + 960])
            frame = av.AudioFrame.from_ndarray(part, format="fltp", layout="stereo")
            frame.sample_rate, frame.pts = rate, first
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return file.getvalue()


def pitch(samples: np.ndarray, rate: int) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(spectrum.argmax()) * rate / len(samples)


@pytest.mark.parametrize(("suffix", "container", "codec", "rate"), FORMATS)
def test_each_format_is_read(
    tmp_path: Path, suffix: str, container: str, codec: str, rate: int
) -> None:
    # The content decides, whatever the name says.
    for name in (f"tone.{suffix}", "tone"):
        (tmp_path / name).write_bytes(encoded(container, codec, rate))
        samples, found = read_audio(tmp_path / name)
        assert samples.shape == (len(samples),)
        assert len(samples) / found == pytest.approx(1.5, abs=0.12)
        assert pitch(samples, found) == pytest.approx(440, abs=3)


@pytest.mark.parametrize("format", ["WAV", "FLAC", "OGG", "MP3"])
def test_channels_are_averaged(tmp_path: Path, format: str) -> None:
    both = np.stack([tone(1, 22_050), np.zeros(22_050, "f4")], axis=1)
    soundfile.write(tmp_path / "tone", both, 22_050, format=format)
    samples, rate = read_audio(tmp_path / "tone")
    assert rate == 22_050
    assert np.abs(samples).max() == pytest.approx(0.15, abs=0.02)


def test_the_sound_of_a_video_is_read() -> None:
    for container in ("mp4", "matroska"):
        samples, rate = decode(BytesIO(encoded(container, "aac", 44_100, video=True)), 10)
        assert pitch(samples, rate) == pytest.approx(440, abs=3)


def test_long_sound_is_refused_before_it_fills_the_memory() -> None:
    for content in (encoded("ipod", "aac", 44_100), encoded("adts", "aac", 44_100)):
        with pytest.raises(TooLongError, match=r"longer than 0\.01 minutes; cut out the part"):
            decode(BytesIO(content), 0.6)
    hour = BytesIO()
    soundfile.write(hour, np.zeros(3600 * 8000, np.int16), 8000, format="FLAC")
    assert len(hour.getvalue()) < 1_000_000
    hour.seek(0)
    with pytest.raises(TooLongError, match="longer than 20 minutes"):
        decode(hour, 1200)


def test_damaged_files_are_refused_or_read_as_far_as_they_go(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for _, container, codec, rate in FORMATS:
        whole = encoded(container, codec, rate)
        changed = bytearray(whole)
        middle = len(whole) // 2
        changed[middle : middle + 400] = rng.bytes(400)
        for content in (whole[:40], whole[:middle], bytes(changed)):
            with suppress(InputError):
                samples, _ = decode(BytesIO(content), 10)
                assert np.isfinite(samples).all()
    with pytest.raises(InputError, match=r"video/mp4, and damaged.*Convert it to WAV, FLAC or MP3"):
        decode(BytesIO(encoded("mp4", "aac", 44_100)[:500]), 10)
    for content, said in (
        (b"no sound at all", "its format is unknown"),
        (b"%PDF-1.4", "it is no sound but application/pdf"),
        (b"MThd", "it is no sound but audio/midi"),
        (b"#EXTM3U\nhttp://localhost/x.ts\n", "its format is unknown"),
    ):
        (tmp_path / "file.m4a").write_bytes(content)
        with pytest.raises(InputError, match=said):
            read_audio(tmp_path / "file.m4a")


def test_without_pyav_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    content = encoded("ipod", "aac", 44_100, 0.1)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(CcalError, match=r"needs the package av.*\[music\]"):
        decode(BytesIO(content), 10)
