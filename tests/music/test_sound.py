from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from ccal.errors import CcalError, InputError
from ccal.music import audio_spectrogram, engrave, parse_abc, read_audio, spectrogram, synthesise
from ccal.music.score import Bar, Note, Pitch, Score
from ccal.music.sound import RENDER_RATE, default_sound_font, onset_seconds
from tests.music.tunes import needs_music


@needs_music
@pytest.mark.parametrize("tempo", [120.0, 75.0])
def test_notes_are_heard_at_their_onsets_with_their_pitches(tempo: float) -> None:
    score = parse_abc("X:1\nM:4/4\nL:1/4\nK:C\nA z a z|A- A z2|c z3|]")
    sound = synthesise(score, tempo=tempo)
    onsets = onset_seconds(score, tempo=tempo)
    np.testing.assert_allclose(onsets, np.array([0, 2, 4, 8]) * 60 / tempo)
    level = np.abs(sound)
    for onset in onsets[1:]:
        sample = round(onset * RENDER_RATE)
        before = level[sample - 2000 : sample].max()
        assert level[sample : sample + 1000].max() > 2 * before
        assert level[sample : sample + 1000].max() > 0.03
    for onset, frequency in zip(onsets, (440, 880, 440, 523.25), strict=True):
        piece = sound[round(onset * RENDER_RATE) :][:16384]
        power = np.abs(np.fft.rfft(piece * np.hanning(len(piece))))
        assert power.argmax() * RENDER_RATE / len(piece) == pytest.approx(frequency, rel=0.01)


@needs_music
@pytest.mark.parametrize("program", [0, 24, 40])
def test_every_key_is_in_tune(program: int) -> None:
    for key in range(55, 89, 3):
        score = Score([Bar([Note((_pitch(key),), Fraction(1, 2))])])
        piece = synthesise(score, program=program)[2000:30_000].astype(np.float64)
        # The fundamental is the lowest strong part.
        power = np.abs(np.fft.rfft(piece * np.hanning(len(piece)), 4 * RENDER_RATE))
        low = np.flatnonzero(power > 0.3 * power.max())[0]
        peak = low + power[low : low + 40].argmax()
        assert 12 * np.log2(peak / 4 / 440) + 69 == pytest.approx(key, abs=0.15)


def _pitch(key: int) -> Pitch:
    return Pitch("c", key // 12 - 1, alter=key % 12)


@needs_music
def test_instruments_differ() -> None:
    score = parse_abc("X:1\nL:1/4\nK:C\nA")
    piano, flute = synthesise(score), synthesise(score, program=73)
    n = min(len(piano), len(flute), 20_000)
    assert np.abs(piano[:n] - flute[:n]).max() > 0.05
    with pytest.raises(InputError, match="has no instrument 500"):
        synthesise(score, program=500)


@needs_music
def test_files_that_are_no_sound_fonts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    score = parse_abc("X:1\nK:C\nA")
    with pytest.raises(InputError, match=r"the sound font .*none\.sf2' is not there"):
        synthesise(score, sound_font=str(tmp_path / "none.sf2"))
    (tmp_path / "text.sf2").write_text("hello")
    with pytest.raises(InputError, match="is not a sound font"):
        synthesise(score, sound_font=str(tmp_path / "text.sf2"))
    (tmp_path / "half.sf2").write_bytes(default_sound_font().read_bytes()[:1000])
    with pytest.raises(InputError, match="lacks ibag"):
        synthesise(score, sound_font=str(tmp_path / "half.sf2"))
    copy = tmp_path / "copy.sf2"
    copy.write_bytes(default_sound_font().read_bytes())
    assert np.array_equal(synthesise(score, sound_font=str(copy)), synthesise(score))
    monkeypatch.setattr("ccal.music.sound.find_spec", lambda name: None)
    with pytest.raises(CcalError, match=r"pip install '\.\[music\]'"):
        default_sound_font()


@needs_music
@pytest.mark.parametrize(
    ("name", "tolerance"), [("a.wav", 0.001), ("a.flac", 0.001), ("a.ogg", 0.3), ("a.mp3", 0.3)]
)
def test_audio_files(tmp_path: Path, name: str, tolerance: float) -> None:
    import soundfile  # type: ignore[import-untyped]

    signal = 0.5 * np.sin(2 * np.pi * 440 * np.arange(44100) / 44100)
    soundfile.write(tmp_path / name, np.stack([signal, signal], axis=1), 44100)
    samples, rate = read_audio(tmp_path / name)
    assert (samples.ndim, rate) == (1, 44100)
    frames, expected = audio_spectrogram(tmp_path / name), spectrogram(signal, 44100)
    torch.testing.assert_close(frames[8:20], expected[8:20], atol=tolerance, rtol=0)


@needs_music
def test_unreadable_audio(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        read_audio(tmp_path / "none.wav")
    (tmp_path / "text.mp3").write_text("this is no sound")
    with pytest.raises(InputError, match=r"text\.mp3': it cannot be read as sound"):
        audio_spectrogram(tmp_path / "text.mp3")


@pytest.mark.parametrize("name", ["verovio", "soundfile"])
def test_missing_packages_are_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(CcalError, match=rf"{name}; install it with: pip install '\.\[music\]'"):
        engrave(parse_abc("X:1\nK:C\nC")) if name == "verovio" else read_audio(__file__)
