from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ccal.experiments import folk_tunes
from ccal.music import SheetAudioPairs, SheetAudioStore
from ccal.training import embed


def test_melodies_stay_on_one_side_over_all_stores(store: SheetAudioStore, tmp_path: Path) -> None:
    """The same tunes in two stores, as by two instruments, are split alike."""
    one, other = folk_tunes.split_stores([store, store])
    for mine, theirs in zip(
        (one.train, one.valid, one.test), (other.train, other.valid, other.test), strict=True
    ):
        assert mine.tolist() == theirs.tolist()
    assert len(one.train) + len(one.valid) + len(one.test) == len(store)


def test_folk_tunes_are_trained(
    store: SheetAudioStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One of 25 would be none of the few.
    monkeypatch.setattr(folk_tunes, "_VALID", 2)
    settings = folk_tunes.SETTINGS.changed(
        max_epochs=1, epoch_pairs=130, refit_pairs=200, batch_size=130
    )
    model = folk_tunes.train_folk_tunes([store], tmp_path, settings, progress=False)
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 1
    sheet, audio = embed(model, SheetAudioPairs(store, [0], centred=True))
    assert sheet.shape == audio.shape
    assert torch.isfinite(sheet).all()
