from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ccal.errors import InputError
from ccal.music import (
    Augmentation,
    AugmentedPairs,
    JoinedPairs,
    SheetAudioPairs,
    SheetAudioStore,
    ThinnedPairs,
    Wear,
    build_store,
)
from ccal.training.batches import Features
from tests.music.tunes import needs_music, tunes

pytestmark = needs_music

NOTHING = Augmentation.none()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> SheetAudioStore:
    return build_store(tunes(), tmp_path_factory.mktemp("music") / "store")


def test_pairs_are_the_hundred_columns_and_frames_before_an_onset(store: SheetAudioStore) -> None:
    pairs = SheetAudioPairs(store, [2, 0])
    ready_for_training: Features = pairs
    assert len(ready_for_training) > 20
    sheet, audio = pairs.batch(np.arange(len(pairs)))
    assert sheet.shape == (len(pairs), 1, 40, 100)
    assert audio.shape == (len(pairs), 1, 136, 100)
    assert sheet.dtype == audio.dtype == torch.float32
    assert sheet.is_contiguous()
    assert audio.is_contiguous()
    row = 0
    for number in (2, 0):
        tune = store.tune(number)
        for onset in tune.onsets:
            x, frame = int(onset["left"]), int(onset["frame"])
            if x < 100 or frame < 100:
                continue
            ink = 1 - tune.sheet[x - 100 : x].T.astype(np.float32) / 255
            np.testing.assert_allclose(sheet[row, 0], ink, atol=1e-6)
            np.testing.assert_array_equal(audio[row, 0], tune.audio[frame - 100 : frame].T)
            assert pairs.tune[row] == number
            row += 1
    assert row == len(pairs)
    some = pairs.batch([3, 1])
    assert torch.equal(some[0], sheet[[3, 1]])
    assert torch.equal(some[1], audio[[3, 1]])


def test_centred_pairs_have_the_note_in_the_middle(store: SheetAudioStore) -> None:
    pairs = SheetAudioPairs(store, centred=True)
    sheet, audio = pairs.batch(np.arange(len(pairs)))
    assert len(pairs) > len(SheetAudioPairs(store)) // 2
    onset = store.onsets[pairs.onset]
    start = np.array([store.tunes[number].sheet[0] for number in pairs.tune])
    np.testing.assert_array_equal(pairs.column - start + 50, np.rint(onset["centre"]))
    # The head is black in the middle, and the sound begins there.
    assert (sheet[:, 0, :, 49:51].amax(dim=(1, 2)) > 0.7).all()
    loud = audio[:, 0].sum(dim=1)
    assert (loud[:, 51:53].mean(dim=1) > loud[:, 46:48].mean(dim=1)).float().mean() > 0.9


def test_pairs_of_some_tunes(store: SheetAudioStore) -> None:
    pairs = SheetAudioPairs(store, [2, 1, 0])
    assert set(SheetAudioPairs(store, [2]).tune) == {2}
    parts = (SheetAudioPairs(store, [0]), SheetAudioPairs(store, [1, 2]))
    assert sum(map(len, parts)) == len(pairs)
    assert len(SheetAudioPairs(store, [])) == 0
    with pytest.raises(InputError, match="has the tunes 0 to 2"):
        SheetAudioPairs(store, [3])
    with pytest.raises(InputError, match="row numbers"):
        pairs.batch([[1]])


@pytest.mark.parametrize("centred", [False, True])
def test_no_augmentation_changes_nothing(store: SheetAudioStore, centred: bool) -> None:
    pairs = SheetAudioPairs(store, centred=centred)
    rows = np.arange(len(pairs))
    sheet, audio = pairs.batch(rows)
    same_sheet, same_audio = AugmentedPairs(pairs, NOTHING).batch(rows)
    torch.testing.assert_close(same_sheet, sheet, rtol=0, atol=1e-5)
    torch.testing.assert_close(same_audio, audio, rtol=0, atol=1e-4)


def test_augmentation_keeps_shapes_and_repeats_by_the_seed(store: SheetAudioStore) -> None:
    pairs = SheetAudioPairs(store, centred=True)
    augmented = AugmentedPairs(pairs)
    rows = np.arange(0, len(pairs), 2)
    torch.manual_seed(1)
    sheet, audio = augmented.batch(rows)
    again = augmented.batch(rows)
    torch.manual_seed(1)
    same = augmented.batch(rows)
    assert sheet.shape == (len(rows), 1, 40, 100)
    assert audio.shape == (len(rows), 1, 136, 100)
    assert torch.equal(sheet, same[0])
    assert torch.equal(audio, same[1])
    assert not torch.equal(audio, again[1])
    for view in (sheet, audio):
        assert view.isfinite().all()
        assert view.min() >= -1e-6
    assert sheet.max() <= 1 + 1e-5


@pytest.mark.parametrize("centred", [False, True])
def test_another_tempo_keeps_the_note_where_it_is(store: SheetAudioStore, centred: bool) -> None:
    """Frame by frame, a faster snippet is the plain one looked at closer to its anchor."""
    pairs = SheetAudioPairs(store, centred=centred)
    how = replace(NOTHING, tempo=0.2)
    anchor = 50 if centred else 99
    rows = np.arange(len(pairs))
    plain = pairs.batch(rows)[1]
    torch.manual_seed(0)
    changed = AugmentedPairs(pairs, how).batch(rows)[1]
    near = (changed - plain)[..., anchor].abs().mean()
    far = (changed - plain)[..., 0].abs().mean()
    assert near < 0.3 * far


def test_louder_is_a_factor_before_the_logarithm(store: SheetAudioStore) -> None:
    pairs = SheetAudioPairs(store)
    how = replace(NOTHING, loudness=6)
    rows = np.arange(len(pairs))
    plain, changed = (p.batch(rows)[1] for p in (pairs, AugmentedPairs(pairs, how)))
    loud = plain > 0.5
    for before, after, where in zip(plain, changed, loud, strict=True):
        factors = (10 ** after[where] - 1) / (10 ** before[where] - 1)
        torch.testing.assert_close(factors, factors.mean().expand_as(factors), rtol=1e-2, atol=0)
        assert 10 ** (-6 / 20) - 0.01 <= factors.mean() <= 10 ** (6 / 20) + 0.01


@pytest.mark.parametrize("changes", [{"tempo": 0.5}, {"noise": -1}, {"frames": float("nan")}])
def test_impossible_augmentation_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="must be"):
        Augmentation(**changes)


@pytest.mark.parametrize("changes", [{"scale": 0.5}, {"stretch": 0.7}, {"blur": float("nan")}])
def test_impossible_wear_is_refused(changes: dict[str, float]) -> None:
    with pytest.raises(InputError, match="must be"):
        Wear(**changes)


def test_a_worn_staff_keeps_the_column_of_its_note() -> None:
    sheet = torch.zeros(64, 1, 40, 180)
    sheet[..., 18:22, 89:91] = 1
    torch.manual_seed(0)
    worn = Wear(noise=0, shade=0)(sheet, 100, 50.0)
    middle = (worn.sum(2) * (torch.arange(100) + 0.5)).sum(2) / worn.sum((2, 3))
    assert worn.shape == (64, 1, 40, 100)
    torch.testing.assert_close(middle, torch.full_like(middle, 50), rtol=0, atol=0.1)


def test_joined_pairs_are_those_of_their_parts(store: SheetAudioStore) -> None:
    parts = [SheetAudioPairs(store, [0]), SheetAudioPairs(store, [2, 1])]
    joined = JoinedPairs(parts)
    assert len(joined) == len(parts[0]) + len(parts[1])
    rows = np.array([len(joined) - 1, 0, len(parts[0]), 1, len(joined) - 1])
    for view, views in zip(joined.batch(rows), _one_by_one(parts, rows), strict=True):
        assert torch.equal(view, views)
    assert joined.batch([])[0].shape == (0, 1, 40, 100)
    with pytest.raises(InputError, match="others were asked for"):
        joined.batch([len(joined)])
    with pytest.raises(InputError, match="no parts"):
        JoinedPairs([])


def _one_by_one(parts: list[SheetAudioPairs], rows: np.ndarray) -> list[torch.Tensor]:
    found = []
    for row in rows:
        part = parts[0] if row < len(parts[0]) else parts[1]
        found.append(part.batch([row if part is parts[0] else row - len(parts[0])]))
    return [torch.cat(view) for view in zip(*found, strict=True)]


def test_thinned_pairs_are_spread_over_all(store: SheetAudioStore, tmp_path: Path) -> None:
    pairs = SheetAudioPairs(store)
    thin = ThinnedPairs(pairs, 5)
    assert len(thin) == 5
    assert (np.diff(thin.rows) >= len(pairs) // 5).all()
    assert torch.equal(thin.batch([2, 4])[1], pairs.batch(thin.rows[[2, 4]])[1])
    assert len(ThinnedPairs(pairs, 10**6)) == len(pairs)
    with pytest.raises(InputError, match="count must be"):
        ThinnedPairs(pairs, 0)
