from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ccal.errors import InputError
from ccal.music import SheetAudioPairs, SheetAudioStore, write_preview
from ccal.music.pictures import staff_picture

Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def engraved(store: SheetAudioStore) -> np.ndarray:
    """400 columns of a staff (40, 400), black 0."""
    return np.ascontiguousarray(store.tune(1).sheet[60:460].T)


def test_a_picture_of_a_marked_part(engraved: np.ndarray, tmp_path: Path) -> None:
    sheet = np.ascontiguousarray(engraved.T)
    (tmp_path / "staff.png").write_bytes(staff_picture(sheet, (100, 300), (150, 200)))
    pixels = np.asarray(Image.open(tmp_path / "staff.png").convert("RGB")).astype(int)
    assert pixels.shape == (120, 600, 3)
    coloured = np.flatnonzero((pixels.max(axis=2) - pixels.min(axis=2)).max(axis=0) > 50)
    assert (coloured[0], coloured[-1]) == (150, 299)
    grey = np.delete(pixels, np.s_[150:300], axis=1)
    wanted = np.delete(np.kron(engraved[:, 100:300], np.ones((3, 3))), np.s_[150:300], axis=1)
    # Enlarged smoothly, so that the middle of each pixel is nearly what it was.
    assert np.abs(grey[1::3, 1::3, 0] - wanted[1::3, 1::3]).mean() < 8
    with pytest.raises(InputError, match=r"from\.\.to"):
        staff_picture(sheet, (300, 100))


def test_a_preview_marks_heads_and_onsets(store: SheetAudioStore, tmp_path: Path) -> None:
    pairs = SheetAudioPairs(store)
    write_preview(pairs, tmp_path / "preview.png", tunes=2)
    pixels = np.asarray(Image.open(tmp_path / "preview.png").convert("RGB"))
    red = (pixels == [255, 0, 0]).all(axis=2)
    onsets = pairs.store.tune(0).onsets
    assert np.flatnonzero(red[0]).tolist()[:5] == [int(x) * 3 + 1 for x in onsets["centre"][:5]]
    with pytest.raises(InputError, match="no pairs to show"):
        write_preview(SheetAudioPairs(pairs.store, []), tmp_path / "none.png")
