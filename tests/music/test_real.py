"""All of the Nottingham tunes, where they are at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ccal.music import SheetAudioPairs, build_store, read_tunes, split_tunes_by_melody
from tests.music.tunes import needs_music

NOTTINGHAM = Path(__file__).parents[2].parent / "shared/data/nottingham"


@needs_music
@pytest.mark.slow
@pytest.mark.skipif(not NOTTINGHAM.is_dir(), reason=f"{NOTTINGHAM} is not there")
def test_nottingham(tmp_path: Path) -> None:
    tunes = read_tunes(NOTTINGHAM)
    assert len(tunes) == 1034
    store = build_store(tunes, tmp_path)
    assert store.skipped == []
    assert len(store) == 1034
    assert len(store.onsets) == 105_115
    pairs = SheetAudioPairs(store)
    assert len(pairs) > 90_000
    groups = np.array(store.groups)
    assert 800 < len(set(groups.tolist())) < 1034
    assert np.bincount(groups).max() < 30
    split = split_tunes_by_melody(store.groups, valid=50, test=50)
    sheet, audio = SheetAudioPairs(store, split.train[:47]).batch(np.arange(1000))
    assert sheet.min() >= 0
    assert sheet.max() <= 1
    assert 0 < float(audio.mean()) < 1
