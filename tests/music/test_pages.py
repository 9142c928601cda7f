from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from ccal.errors import InputError
from ccal.music import SheetAudioStore, TuneLibrary, engrave, parse_abc
from ccal.music.embedding import ink
from ccal.music.engraving import engrave_page
from ccal.music.heads import find_heads
from ccal.music.pages import ink_of, read_lines
from ccal.music.reading import heads_of, lay_along, spots
from ccal.music.staves import find_staves
from tests.music.conftest import random_abc
from tests.music.tunes import needs_music

Image = pytest.importorskip("PIL.Image")
Filter = pytest.importorskip("PIL.ImageFilter")

SCANS = Path(__file__).parents[2].parent / "shared/data/scans/pages"
PRINTED = Path(__file__).parents[2].parent / "shared/data/printed"


@pytest.fixture
def engraved(store: SheetAudioStore) -> np.ndarray:
    """400 columns of a staff (40, 400), black 0."""
    return np.ascontiguousarray(store.tune(1).sheet[60:460].T)


@pytest.fixture(scope="module")
def page() -> np.ndarray:
    """A page of a tune of 12 bars, 12 pixels from line to line."""
    return engrave_page(parse_abc(random_abc(7)), look=3)


def likeness(found: np.ndarray, engraved: np.ndarray) -> float:
    """Correlation with the staff line as it was engraved, at the best shift of a few columns."""
    wanted = 1 - engraved.T / 255
    values = []
    for shift in range(-8, 9):
        one, other = found[max(0, shift) :], wanted[max(0, -shift) :]
        width = min(len(one), len(other))
        values.append(np.corrcoef(one[:width].ravel(), other[:width].ravel())[0, 1])
    return float(max(values))


@needs_music
@pytest.mark.parametrize("zoom", [1.0, 1.4, 3.3, 7.0])
def test_a_staff_of_any_size_is_found(engraved: np.ndarray, zoom: float) -> None:
    size = (round(400 * zoom), round(40 * zoom))
    large = np.asarray(Image.fromarray(engraved).resize(size, Image.Resampling.BICUBIC))
    (line,) = read_lines(np.pad(large, ((31, 90), (0, 0)), constant_values=255))
    assert len(line.ink) == pytest.approx(400, abs=12)
    assert likeness(line.ink, engraved) > 0.9


@needs_music
def test_colours_shades_and_forms(engraved: np.ndarray, tmp_path: Path) -> None:
    large = np.kron(engraved, np.ones((2, 2), np.uint8))
    plain = read_lines(large)[0].ink
    colour = np.repeat(large[:, :, None], 3, axis=2)
    np.testing.assert_allclose(read_lines(colour)[0].ink, plain, atol=0.01)
    np.testing.assert_allclose(read_lines(large / 255)[0].ink, plain, atol=0.01)
    np.testing.assert_allclose(read_lines(255 - large)[0].ink, plain, atol=0.01)
    # Ink on nothing, as programs that draw scores write it.
    clear = np.zeros((*large.shape, 4), dtype=np.uint8)
    clear[:, :, 3] = 255 - large
    Image.fromarray(clear).save(tmp_path / "clear.png")
    np.testing.assert_allclose(read_lines(tmp_path / "clear.png")[0].ink, plain, atol=0.01)
    Image.fromarray(large).convert("P").save(tmp_path / "palette.png")
    assert likeness(read_lines(tmp_path / "palette.png")[0].ink, engraved) > 0.9
    # Lying on its side, and marked so.
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = Image.fromarray(np.rot90(large))
    turned.save(tmp_path / "turned.jpg", exif=exif, quality=95)
    assert likeness(read_lines((tmp_path / "turned.jpg").read_bytes())[0].ink, engraved) > 0.9


@needs_music
def test_turned_bent_shaded_and_blurred_pages_have_the_same_lines(page: np.ndarray) -> None:
    height, width = page.shape
    lines = read_lines(page)
    picture = Image.fromarray(page)
    y, x = np.mgrid[0:height, 0:width]
    bend = (y - 14 * np.sin(3 * x / width)).round().astype(int).clip(0, height - 1)
    corners = [0, 0, -0.03 * width, height, width, height, 1.02 * width, 0.02 * height]
    seen = {
        "turned": picture.rotate(4, Image.Resampling.BICUBIC, expand=True, fillcolor=255),
        "bent": Image.fromarray(page[bend, x]),
        "shaded": Image.fromarray((page * (0.25 + 0.7 * x / width)).astype(np.uint8)),
        "blurred": picture.filter(Filter.GaussianBlur(2)),
        "small": picture.resize((width // 2, height // 2)),
        "from aside": picture.transform(
            (width, height), Image.Transform.QUAD, corners, Image.Resampling.BICUBIC, fillcolor=255
        ),
    }
    for how, other in seen.items():
        found = read_lines(np.asarray(other))
        assert len(found) == len(lines), how
        for one, plain in zip(found, lines, strict=True):
            assert len(one.ink) == pytest.approx(len(plain.ink), rel=0.06), how
            x, y = np.array(one.outline).T
            assert 0 <= x.min() < x.max() <= 1, how
            assert 0 <= y.min() < y.max() <= 1, how
        # From top to bottom.
        tops = [min(y for _, y in one.outline) for one in found]
        assert all(a < b for a, b in pairwise(tops)), how


@needs_music
def test_pdf_files_are_read_page_by_page(page: np.ndarray, tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    path = tmp_path / "book.pdf"
    picture = Image.fromarray(page)
    picture.save(path, save_all=True, append_images=[picture], resolution=150)
    numbers = [line.page for line in read_lines(path)]
    count = len(read_lines(page))
    assert numbers == [0] * count + [1] * count
    with pytest.raises(InputError, match="cannot be read as a PDF"):
        read_lines(b"%PDF-1.7 and nothing more")


@needs_music
def test_pictures_without_a_staff_are_refused(engraved: np.ndarray, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    text = Image.new("L", (900, 500), 255)
    pen = pytest.importorskip("PIL.ImageDraw").Draw(text)
    for row in range(15):
        pen.text((20, 20 + 30 * row), "Come all ye maidens young and fair " * 4, fill=0)
    for nothing in (
        np.full((80, 300), 255, dtype=np.uint8),
        rng.integers(0, 255, size=(300, 300)).astype(np.uint8),
        engraved.T,
        engraved[:8],
        np.asarray(text),
    ):
        with pytest.raises(InputError, match=r"no staff was found .* pixels: five lines"):
            read_lines(np.ascontiguousarray(nothing))
    with pytest.raises(InputError, match=r"must be an array .* got \(3,\)"):
        read_lines(np.zeros(3))
    with pytest.raises(InputError, match="got int64"):
        read_lines(np.zeros((40, 40), dtype=np.int64))
    with pytest.raises(InputError, match="within 0"):
        read_lines(np.full((40, 40), np.nan))
    with pytest.raises(InputError, match="file not found"):
        read_lines(tmp_path / "none.png")
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing more")
    with pytest.raises(InputError, match=r"png: (not an image|cannot be read as)"):
        read_lines(tmp_path / "broken.png")


def test_five_lines_count_and_four_do_not() -> None:
    lines = np.zeros((100, 300), dtype=np.float32)
    lines[[20, 30, 40, 50, 60]] = 1
    (staff,) = find_staves(lines)
    assert staff.y.mean() == pytest.approx(40.5, abs=0.3)
    assert staff.space.mean() == pytest.approx(10, abs=0.1)
    lines[60] = 0
    assert find_staves(lines) == []


def test_snippets_lie_within_the_line() -> None:
    assert spots(np.zeros((400, 40), np.float32), 10).tolist() == list(range(25, 376, 10))
    assert spots(np.zeros((30, 40), np.float32), 10).tolist() == [15]


@needs_music
def test_heads_are_found_on_their_lines_and_spaces() -> None:
    right, wanted = 0.0, 0
    for number in range(3):
        score = parse_abc(random_abc(number))
        written = engrave(score)
        found = find_heads(ink(written.pixels.T))
        heads = heads_of(score)
        wanted += len(heads.steps)
        right += float(lay_along(found["step"].astype(np.int64), [heads.steps])[0]) * len(found)
        assert (np.diff(found["column"]) > 0).all()
    assert right > 0.9 * wanted


@needs_music
def test_two_tunes_on_a_page_are_two_answers(library: TuneLibrary) -> None:
    pages = [engrave_page(parse_abc(library.abc(tune)), look=tune) for tune in (1, 3)]
    width = max(page.shape[1] for page in pages)
    wide = [
        np.pad(page, ((0, 0), (0, width - page.shape[1])), constant_values=255) for page in pages
    ]
    counts = [len(read_lines(page)) for page in wide]
    found = library.identify_page(np.concatenate(wide), k=2)
    assert [one.matches[0].tune for one in found] == [1, 3]
    assert [len(one.lines) for one in found] == counts
    for one in found:
        best, other = one.matches
        assert best.score > 0.7 > other.score


@pytest.mark.parametrize("folder", [SCANS, PRINTED])
def test_real_pages_have_lines(folder: Path) -> None:
    if not folder.is_dir():
        pytest.skip(f"no pages in {folder}")
    pictures = sorted([*folder.glob("*.jpg"), *folder.glob("*.png")])[:6]
    for path in pictures:
        lines = read_lines(path)
        assert 2 <= len(lines) <= 12, path.name
        assert all(300 < len(line.ink) < 500 for line in lines), path.name


def test_uneven_paper_becomes_even() -> None:
    x = np.linspace(40, 250, 400, dtype=np.float32)
    grey = np.tile(x, (200, 1))
    grey[50:52] *= 0.3
    found = ink_of(grey)
    assert found[50:52].min() > 0.6
    assert np.delete(found, range(45, 57), axis=0).max() < 0.2


def test_bytes_of_a_picture_are_read(page: np.ndarray) -> None:
    content = io.BytesIO()
    Image.fromarray(page).save(content, format="WEBP", lossless=True)
    assert len(read_lines(content.getvalue())) == len(read_lines(page))


@pytest.mark.parametrize("between", [66, 80, 110])
def test_staves_at_equal_distances_are_not_the_lines_of_a_giant_one(between: int) -> None:
    page = np.zeros((12 * between, 900), dtype=np.float32)
    for staff in range(10):
        top = between * (staff + 1)
        page[[top + 9 * line for line in range(5)], 60:840] = 1
    found = find_staves(page)
    assert len(found) == 10
    assert all(abs(float(staff.space.mean()) - 9) < 0.2 for staff in found)
