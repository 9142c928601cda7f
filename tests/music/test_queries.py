from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ccal.errors import InputError
from ccal.music.queries import level_of, listen, sounding

soundfile = pytest.importorskip("soundfile")

RATE = 22050


def tone(seconds: float, rate: int = RATE) -> np.ndarray:
    """Notes of a quarter of a second, each dying away."""
    time = np.arange(round(seconds * rate)) / rate
    pitch = 440 * 2 ** ((time // 0.25 * 5 % 12) / 12)
    phase = np.cumsum(2 * np.pi * pitch / rate)
    return np.asarray(0.3 * np.sin(phase) * np.exp(-6 * (time % 0.25)), dtype=np.float32)


def test_loudness_channels_and_rates_do_not_matter(tmp_path: Path) -> None:
    samples = tone(4)
    wanted = listen((samples, RATE), level=0.5)
    assert level_of(wanted) == pytest.approx(0.5, rel=0.01)
    np.testing.assert_allclose(listen((0.02 * samples, RATE), 0.5), wanted, atol=1e-3)
    stereo = np.stack([samples, samples], axis=1)
    np.testing.assert_allclose(listen((stereo, RATE), 0.5), wanted, atol=1e-4)
    for suffix, rate in ((".wav", 48000), (".flac", 16000), (".ogg", 44100)):
        path = tmp_path / f"tone{suffix}"
        soundfile.write(path, tone(4, rate), rate)
        found = listen(path, 0.5)
        assert abs(len(found) - len(wanted)) <= 1
        width = min(len(found), len(wanted))
        alike = np.corrcoef(found[:width].ravel(), wanted[:width].ravel())[0, 1]
        assert alike > 0.95, suffix


def test_silence_at_both_ends_is_left_out() -> None:
    silence = np.zeros(2 * RATE, dtype=np.float32)
    heard = listen((np.concatenate([silence, tone(5), silence]), RATE), 0.5)
    first, last = sounding(heard)
    assert first == pytest.approx(2 * 31.25, abs=4)
    assert last == pytest.approx(7 * 31.25, abs=8)
    assert sounding(heard[first:last]) == (0, last - first)


def test_silent_and_unreadable_recordings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="silent"):
        listen((np.zeros(RATE), RATE), 0.5)
    with pytest.raises(InputError, match="empty"):
        listen((np.zeros(0), RATE), 0.5)
    with pytest.raises(InputError, match="not finite"):
        listen((np.full(RATE, np.nan), RATE), 0.5)
    with pytest.raises(InputError, match="got 3 things"):
        listen((tone(1), RATE, 1), 0.5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no such file"):
        listen(tmp_path / "none.wav", 0.5)
    (tmp_path / "broken.wav").write_bytes(b"RIFF and nothing more")
    with pytest.raises(InputError, match="cannot be read as sound"):
        listen(tmp_path / "broken.wav", 0.5)
