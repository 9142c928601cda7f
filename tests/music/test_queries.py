from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ccal.errors import InputError
from ccal.music import SheetAudioStore
from ccal.music.queries import find_staff, level_of, listen, read_staff, sounding, spots

soundfile = pytest.importorskip("soundfile")
Image = pytest.importorskip("PIL.Image")

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
    with pytest.raises(InputError, match="cannot be read as audio"):
        listen(tmp_path / "broken.wav", 0.5)


@pytest.fixture
def engraved(store: SheetAudioStore) -> np.ndarray:
    """400 columns of a staff (40, 400), black 0."""
    return np.ascontiguousarray(store.tune(1).sheet[60:460].T)


def likeness(found: np.ndarray, engraved: np.ndarray) -> float:
    """Correlation with the staff line as it was engraved."""
    wanted = 1 - engraved.T / 255
    width = min(len(found), len(wanted))
    return float(np.corrcoef(found[:width].ravel(), wanted[:width].ravel())[0, 1])


def test_an_engraved_staff_stays_unchanged(engraved: np.ndarray) -> None:
    staff = read_staff(engraved)
    assert staff.scale == pytest.approx(1, abs=1e-3)
    np.testing.assert_allclose(staff.ink, 1 - engraved.T / 255, atol=0.02)


@pytest.mark.parametrize("zoom", [1.4, 2.0, 3.3, 7.0])
def test_a_staff_of_any_size_is_found(engraved: np.ndarray, zoom: float) -> None:
    size = (round(400 * zoom), round(40 * zoom))
    large = np.asarray(Image.fromarray(engraved).resize(size, Image.Resampling.BICUBIC))
    page = np.pad(large, ((31, 90), (0, 0)), constant_values=255)
    staff = read_staff(page)
    assert staff.scale == pytest.approx(zoom, rel=0.01)
    assert likeness(staff.ink, engraved) > 0.95


def test_colours_shades_and_forms(engraved: np.ndarray, tmp_path: Path) -> None:
    plain = read_staff(engraved).ink
    colour = np.repeat(engraved[:, :, None], 3, axis=2)
    np.testing.assert_allclose(read_staff(colour).ink, plain, atol=0.01)
    np.testing.assert_allclose(read_staff(engraved / 255).ink, plain, atol=0.01)
    np.testing.assert_allclose(read_staff(255 - engraved).ink, plain, atol=0.01)
    # Ink on nothing, as programs that draw scores write it.
    clear = np.zeros((40, 400, 4), dtype=np.uint8)
    clear[:, :, 3] = 255 - engraved
    Image.fromarray(clear).save(tmp_path / "clear.png")
    np.testing.assert_allclose(read_staff(tmp_path / "clear.png").ink, plain, atol=0.01)
    Image.fromarray(engraved).save(tmp_path / "staff.jpg", quality=90)
    assert likeness(read_staff(tmp_path / "staff.jpg").ink, engraved) > 0.97


def test_grey_scans_are_read(engraved: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    size = (1200, 120)
    large = np.asarray(Image.fromarray(engraved).resize(size, Image.Resampling.BICUBIC))
    scan = np.clip(60 + 0.7 * large + rng.normal(0, 12, size=large.shape), 0, 255)
    staff = read_staff(scan.astype(np.uint8))
    assert staff.scale == pytest.approx(3, rel=0.01)
    assert likeness(staff.ink, engraved) > 0.93


def test_snippets_lie_within_the_written_part(engraved: np.ndarray) -> None:
    margins = np.pad(engraved, ((0, 0), (70, 50)), constant_values=255)
    middles = spots(read_staff(margins), 10)
    assert 70 <= middles[0] <= 100
    assert middles[-1] <= 70 + 400 - 5
    assert set(np.diff(middles)) == {10}
    short = spots(read_staff(engraved[:, :15]), 10)
    assert len(short) == 1


def test_pictures_without_a_staff_are_refused(engraved: np.ndarray, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for nothing in (
        np.full((80, 300), 255, dtype=np.uint8),
        rng.integers(0, 255, size=(80, 300)).astype(np.uint8),
        engraved.T,
    ):
        with pytest.raises(InputError, match="no staff was found"):
            read_staff(np.ascontiguousarray(nothing))
    with pytest.raises(InputError, match="12 pixels high"):
        read_staff(engraved[:8])
    with pytest.raises(InputError, match=r"must be an array .* got \(3,\)"):
        read_staff(np.zeros(3))
    with pytest.raises(InputError, match="got int64"):
        read_staff(np.zeros((40, 40), dtype=np.int64))
    with pytest.raises(InputError, match="within 0"):
        read_staff(np.full((40, 40), np.nan))
    with pytest.raises(InputError, match="file not found"):
        read_staff(tmp_path / "none.png")
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing more")
    with pytest.raises(InputError, match=r"png: (not an image|cannot be read as)"):
        read_staff(tmp_path / "broken.png")


def test_five_lines_count_and_four_do_not() -> None:
    ink = np.zeros((100, 200))
    ink[[20, 30, 40, 50, 60]] = 1
    middle, space = find_staff(ink)
    assert middle == pytest.approx(40.5, abs=0.1)
    assert space == pytest.approx(10, abs=0.05)
    ink[60] = 0
    with pytest.raises(InputError, match="no staff"):
        find_staff(ink)
