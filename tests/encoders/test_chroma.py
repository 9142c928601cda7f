from __future__ import annotations

import numpy as np
import pytest
import torch

from ccal.encoders import Chroma, ChromaTower, build_tower, tower_config
from ccal.errors import InputError

PITCHES = [float(pitch) for pitch in np.arange(36, 120, 0.5)]


def notes(*midi: int, harmonics: int = 4) -> torch.Tensor:
    """A spectrogram (1, rows, frames), one note a frame."""
    result = torch.zeros(1, len(PITCHES), len(midi))
    for frame, key in enumerate(midi):
        for harmonic in range(1, harmonics + 1):
            row = round(2 * (key + 12 * np.log2(harmonic) - PITCHES[0]))
            result[0, row, frame] = 1 / harmonic
    return result


def test_the_pitch_class_of_each_frame_is_found_in_any_octave() -> None:
    chroma = Chroma(PITCHES)
    melody = [62, 64, 66, 67, 69, 71, 73, 74]
    for octave in (-12, 0, 12):
        found = chroma(notes(*(key + octave for key in melody)))
        assert found.shape == (1, 12, 8)
        torch.testing.assert_close(found.sum(1), torch.ones(1, 8))
        assert found[0].argmax(0).tolist() == [key % 12 for key in melody]


def test_loudness_does_not_matter_and_silence_says_nothing() -> None:
    chroma, sound = Chroma(PITCHES), notes(60, 67, 64)
    torch.testing.assert_close(chroma(5 * sound), chroma(sound), atol=1e-4, rtol=0)
    silent = chroma(torch.zeros(1, len(PITCHES), 4))
    torch.testing.assert_close(silent, torch.full((1, 12, 4), 1 / 12))


def test_a_transposed_melody_is_rotated() -> None:
    chroma = Chroma(PITCHES)
    written, higher = chroma(notes(60, 64, 67)), chroma(notes(65, 69, 72))
    torch.testing.assert_close(higher.roll(-5, dims=1), written, atol=0.02, rtol=0)


def test_the_tower_takes_spectrograms_and_their_chroma() -> None:
    torch.manual_seed(0)
    tower = ChromaTower(PITCHES, out_features=8, maps=(4, 6))
    tower(torch.rand(16, 1, len(PITCHES), 100))
    tower.eval()
    sound = torch.rand(3, 1, len(PITCHES), 100)
    wanted = tower(sound)
    assert wanted.shape == (3, 8)
    torch.testing.assert_close(tower(tower.chroma(sound[:, 0])), wanted)
    torch.testing.assert_close(tower.fused()(sound), wanted, atol=1e-5, rtol=1e-4)
    again = build_tower(tower_config(tower))
    again.load_state_dict(tower.state_dict())
    torch.testing.assert_close(again.eval()(sound), wanted)


def test_other_shapes_are_refused() -> None:
    with pytest.raises(InputError, match="spectrograms"):
        ChromaTower(PITCHES)(torch.rand(2, 1, 100, 100))
    with pytest.raises(InputError, match="more than 12 pitches"):
        ChromaTower(PITCHES[:12])


def test_what_sounds_on_counts_less() -> None:
    pitches = [36 + 0.5 * row for row in range(168)]
    sound = torch.zeros(1, 168, 120)
    sound[0, pitches.index(69.0)] = 1
    sound[0, pitches.index(74.0), 60:66] = 0.8
    plain, moving = (Chroma(pitches, lasting)(sound)[0, :, 62] for lasting in (0.0, 0.7))
    assert plain[9] > plain[2]
    assert moving[2] > moving[9]
