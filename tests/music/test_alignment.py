from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccal.music.alignment import USUAL, align, evidence, follow_melody, melody
from ccal.music.rendering import ONSET

BEND, JUMP = USUAL.bend, USUAL.jump


def slow_score(found: np.ndarray, notes: np.ndarray) -> float:
    """The best sum over all paths, position by position."""
    total = np.zeros(len(notes))
    for step, row in enumerate(found):
        # A path begins anywhere.
        best = total.max() - JUMP if step else 0.0
        new = np.empty(len(notes))
        for here in range(len(notes)):
            ways = [best, total[here] - BEND]
            if here >= 1:
                ways.append(total[here - 1])
            if here >= 2:
                ways.append(total[here - 2] - BEND)
            new[here] = max(ways) + row[notes[here]]
        total = new
    return float(total.max())


@given(st.integers(0, 10_000), st.integers(1, 8), st.integers(1, 3))
def test_scores_are_the_best_of_all_paths(seed: int, steps: int, tunes: int) -> None:
    rng = np.random.default_rng(seed)
    found = (20 * rng.normal(size=(steps, 12))).astype(np.float32)
    melodies = [rng.integers(0, 12, size=rng.integers(3, 12)).astype(np.int8) for _ in range(tunes)]
    scores = align(found, melodies)
    for score, notes in zip(scores.tolist(), melodies, strict=True):
        assert score == pytest.approx(slow_score(found, notes), abs=1e-2)
        path = follow_melody(found, notes)
        change = np.diff(path)
        costs = np.where(change == 1, 0, np.where((change == 0) | (change == 2), BEND, JUMP))
        along = found[np.arange(steps), notes[path]].sum() - costs.sum()
        assert along >= score - BEND - 1e-2


def test_a_melody_has_a_pitch_class_for_each_sixteenth() -> None:
    onsets = np.zeros(3, dtype=ONSET)
    onsets["tick"], onsets["pitch"] = [960, 1440, 1680], [62, 69, 74]
    assert melody(onsets).tolist() == [2, 2, 9, 2, 2, 2, 2]


@pytest.mark.parametrize(("tempo", "shift"), [(120.0, 0), (208.0, 5)])
def test_a_clear_recording_has_all_the_evidence_of_its_own_notes(tempo: float, shift: int) -> None:
    rng = np.random.default_rng(0)
    notes = np.repeat(rng.integers(0, 12, size=32), 2).astype(np.int8)
    frames = int(64 * 31.25 * 15 / tempo)
    played = notes[(np.arange(frames) * tempo / 15 / 31.25).astype(int).clip(max=63)]
    chroma = np.eye(12, dtype=np.float32)[(played + shift) % 12]
    found, notes = evidence(chroma, tempo), (notes + np.int8(shift)) % np.int8(12)
    right, backwards = align(found, [notes, notes[::-1]]) / (len(chroma) * USUAL.certain)
    assert right > 0.8
    assert backwards < 0.5
    path = follow_melody(found, notes)
    assert np.abs(path - np.arange(len(path))).max() <= 1


def test_the_shortest_recording_has_one_step() -> None:
    chroma = np.full((2, 12), 1 / 12, dtype=np.float32)
    assert evidence(chroma, 60.0).shape == (1, 12)
