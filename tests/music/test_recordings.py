from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ccal.errors import InputError
from ccal.music.queries import level_of, listen, moments

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


def test_moments_are_where_there_is_sound() -> None:
    silence = np.zeros(2 * RATE, dtype=np.float32)
    heard = listen((np.concatenate([silence, tone(5), silence]), RATE), 0.5)
    middles = moments(heard, 8)
    assert 54 <= middles[0] <= 66, "two seconds are 62.5 frames"
    assert middles[-1] <= (7.5 * 31.25)
    assert set(np.diff(middles)) == {8}
    for seconds in (0.1, 0.5, 1.0, 3.0):
        short = listen((tone(seconds), RATE), 0.5)
        middles = moments(short, 8)
        assert len(middles) >= 1
        assert 0 <= middles[0] <= middles[-1] <= len(short)


def test_what_cannot_be_heard_is_refused(tmp_path: Path) -> None:
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
    with pytest.raises(InputError, match="cannot be read as audio"):
        listen(tmp_path / "broken.wav", 0.5)
