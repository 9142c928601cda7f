from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ccal.errors import InputError
from ccal.music import spectrogram
from ccal.music.audio import filter_bank, resample


def slow_corners() -> list[int]:
    """Fourier bins nearest to quarter tones around 440 Hz within 30 and 8,000 Hz, each once."""
    corners = []
    for step in range(-200, 200):
        frequency = 440 * 2 ** (step / 24)
        if 30 <= frequency <= 8000:
            nearest = min(range(1024), key=lambda b: abs(b * 22050 / 2048 - frequency))
            if nearest not in corners:
                corners.append(nearest)
    return corners


def slow_spectrogram(signal: NDArray[np.float64]) -> NDArray[np.float64]:
    """Frame by frame and filter by filter, in float64."""
    corners = slow_corners()
    window = np.hanning(2048)
    rows = []
    for frame in range(math.ceil(len(signal) / 705.6)):
        centre = round(frame * 705.6)
        piece = np.zeros(2048)
        for i in range(2048):
            if 0 <= centre - 1024 + i < len(signal):
                piece[i] = signal[centre - 1024 + i]
        magnitude = np.abs(np.fft.fft(piece * window))[:1024]
        row = []
        for left, centre_bin, right in zip(corners, corners[1:], corners[2:], strict=False):
            weights = {
                b: (b - left) / (centre_bin - left)
                if b <= centre_bin
                else (right - b) / (right - centre_bin)
                for b in range(left, right + 1)
            }
            total = sum(weights.values())
            row.append(sum(magnitude[b] * weight for b, weight in weights.items()) / total)
        rows.append(row)
    return np.asarray(np.log10(1 + np.array(rows)))


def tone(frequency: float, rate: int = 22050, seconds: float = 1.0) -> NDArray[np.float64]:
    return 0.5 * np.sin(2 * np.pi * frequency * np.arange(round(seconds * rate)) / rate)


def test_equals_a_slow_reference() -> None:
    rng = np.random.default_rng(0)
    signal = rng.uniform(-0.5, 0.5, 8000) + tone(1000, seconds=8000 / 22050)
    expected = slow_spectrogram(signal)
    assert expected.shape == (12, 136)
    np.testing.assert_allclose(spectrogram(signal).numpy(), expected, atol=2e-5)


def test_filters_have_area_one_and_overlap() -> None:
    bank = filter_bank()
    assert bank.shape == (1024, 136)
    np.testing.assert_allclose(bank.sum(axis=0), 1, atol=1e-6)
    peaks = bank.argmax(axis=0)
    assert (np.diff(peaks) > 0).all()


@pytest.mark.parametrize("frequency", [110.0, 261.63, 440.0, 1000.0, 3520.0, 7000.0])
def test_a_tone_is_in_its_bin(frequency: float) -> None:
    corners = np.array(slow_corners())
    expected = np.abs(corners[1:-1] * 22050 / 2048 - frequency).argmin()
    frames = spectrogram(tone(frequency))
    assert abs(int(frames[15].argmax()) - int(expected)) <= 1
    assert frames[15, expected] > 10 * frames[15, (int(expected) + 60) % 136]


def test_a_click_is_in_its_frame() -> None:
    signal = np.zeros(22050 * 4)
    signal[round(100 * 705.6)] = 1.0
    frames = spectrogram(signal)
    assert int(frames.sum(dim=1).argmax()) == 100


def test_silence_and_very_short_sound() -> None:
    assert spectrogram(np.zeros(50_000)).abs().max() == 0
    assert spectrogram(np.ones(1)).shape == (1, 136)
    assert spectrogram(np.ones(706)).shape == (2, 136)


def test_long_sound_is_cut_into_equal_frames() -> None:
    rng = np.random.default_rng(0)
    signal = rng.normal(size=22050 * 70).astype(np.float32) * 0.1
    frames = spectrogram(signal)
    assert frames.shape == (math.ceil(70 * 31.25), 136)
    shift = 705.6 * 2000
    assert shift == int(shift)
    tail = spectrogram(signal[int(shift) :])
    torch.testing.assert_close(frames[2010:], tail[10:], atol=1e-5, rtol=0)


@pytest.mark.parametrize("rate", [8000, 16000, 32000, 44100, 44056, 48000, 96000])
def test_other_rates_give_the_same_picture(rate: int) -> None:
    frequencies = [220.0, 1500.0, 3000.0]
    expected = spectrogram(np.mean([tone(f) for f in frequencies], axis=0))
    actual = spectrogram(np.mean([tone(f, rate) for f in frequencies], axis=0), rate)
    assert actual.shape == expected.shape
    torch.testing.assert_close(actual[3:-3], expected[3:-3], atol=2e-3, rtol=0)


def test_resampling_keeps_what_fits_and_nothing_else() -> None:
    kept = resample(torch.from_numpy(tone(8000, 44100)), 44100, 22050)
    np.testing.assert_allclose(kept[500:-500], tone(8000)[500:-500], atol=1e-4)
    gone = resample(torch.from_numpy(tone(12_000, 44100)), 44100, 22050)
    assert gone[500:-500].abs().max() < 1e-4
    constant = resample(torch.ones(4000), 48000, 22050)
    torch.testing.assert_close(constant[100:-100], torch.ones(len(constant) - 200))
    assert resample(torch.ones(5), 22050, 22050).tolist() == [1] * 5
    assert len(resample(torch.ones(3), 44100, 22050)) == 2


def test_channels_are_averaged_and_integers_scaled() -> None:
    left, right = tone(440), tone(880)
    both = spectrogram(np.stack([left, right], axis=1))
    torch.testing.assert_close(both, spectrogram((left + right) / 2))
    whole = np.round(left * 32768).astype(np.int16)
    torch.testing.assert_close(spectrogram(whole), spectrogram(left), atol=2e-3, rtol=0)
    torch.testing.assert_close(spectrogram(torch.from_numpy(left)), spectrogram(left))


@pytest.mark.parametrize(
    ("signal", "rate", "message"),
    [
        (np.array([0.0, np.nan]), 22050, "1 samples that are not finite"),
        (np.array([np.inf, np.nan]), 22050, "2 samples"),
        (np.zeros(0), 22050, "the audio is empty"),
        (np.zeros((2, 3, 4)), 22050, "expected audio"),
        (np.zeros((2, 9000)), 22050, "transpose it"),
        (np.array(["a"]), 22050, "expected audio"),
        (np.zeros(10), 0, "sample_rate must be"),
        (np.zeros(10), 22050.5, "sample_rate must be"),
    ],
)
def test_bad_audio(signal: NDArray[Any], rate: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        spectrogram(signal, rate)
