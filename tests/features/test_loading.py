"""Every kind of image comes out as upright RGB; what is broken is named."""

from __future__ import annotations

import os
import struct
import sys
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageOps

from ccal.errors import CcalError, InputError
from ccal.features import centre_crop, load_image
from tests.features.pictures import gradient, picture
from tests.fresh import loaded


def pixels(item: Any) -> NDArray[np.uint8]:
    image = load_image(item)
    assert image.mode == "RGB"
    return np.array(image)


@pytest.mark.parametrize("suffix", ["png", "bmp", "tiff", "ppm", "webp"])
def test_lossless_formats_are_exact(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    picture().save(path, lossless=True)  # only WebP would lose something
    for item in (path, str(path), path.read_bytes(), Image.open(path)):
        assert np.array_equal(pixels(item), gradient())
    assert np.array_equal(pixels(gradient()), gradient())


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_orientation_of_the_camera(tmp_path: Path, orientation: int, suffix: str) -> None:
    path, exif = tmp_path / f"a.{suffix}", Image.Exif()
    exif[0x0112] = orientation
    picture().save(path, exif=exif)
    with Image.open(path) as image:
        expected = ImageOps.exif_transpose(image)
    assert expected.size == ((32, 48) if orientation >= 5 else (48, 32))
    assert np.array_equal(pixels(path), np.array(expected))


def test_a_camera_held_on_its_side(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the stored picture is to be turned clockwise
    picture().save(tmp_path / "a.png", exif=exif)
    assert np.array_equal(pixels(tmp_path / "a.png"), np.rot90(gradient(), -1))


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_broken_metadata_do_not_spoil_a_picture(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.png", exif=b"Exif\0\0II*\0\xff\xff\xff\x7f nonsense")
    assert np.array_equal(pixels(tmp_path / "a.png"), gradient())


@pytest.mark.parametrize("mode", ["L", "1", "P"])
def test_grey_and_palette(tmp_path: Path, mode: str) -> None:
    image = picture().convert(mode)
    image.save(tmp_path / "a.png")
    assert np.array_equal(pixels(tmp_path / "a.png"), np.array(image.convert("RGB")))


def test_cmyk(tmp_path: Path) -> None:
    picture().convert("CMYK").save(tmp_path / "a.jpg", quality=100)
    difference = np.abs(pixels(tmp_path / "a.jpg").astype(int) - gradient())
    assert difference.mean() < 2


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparency_is_laid_over_white(tmp_path: Path, mode: str) -> None:
    image = Image.new("RGBA", (3, 1), (0, 0, 0, 255))
    image.putpixel((1, 0), (0, 0, 0, 0))
    image.putpixel((2, 0), (0, 0, 0, 102))
    image.convert(mode).save(tmp_path / "a.png")
    assert pixels(tmp_path / "a.png")[0].tolist() == [[0] * 3, [255] * 3, [153] * 3]


@pytest.mark.parametrize(("mode", "clear"), [("P", 1), ("L", 7), ("RGB", (7, 7, 7))])
def test_one_colour_may_be_transparent(tmp_path: Path, mode: str, clear: Any) -> None:
    image = Image.new(mode, (2, 1), 0)
    if mode == "P":
        image.putpalette([0, 0, 0, 9, 9, 9])
    image.putpixel((1, 0), clear)
    image.save(tmp_path / "a.png", transparency=clear)
    assert pixels(tmp_path / "a.png")[0].tolist() == [[0] * 3, [255] * 3]


@pytest.mark.parametrize("suffix", ["png", "tiff", "pgm"])
def test_sixteen_bits(tmp_path: Path, suffix: str) -> None:
    values = np.array([[0, 257, 32896, 65535]], dtype=np.uint16)
    Image.fromarray(values).save(tmp_path / f"a.{suffix}")
    assert pixels(tmp_path / f"a.{suffix}")[0, :, 0].tolist() == [0, 1, 128, 255]


def test_whole_numbers_of_32_bits() -> None:
    assert pixels(Image.new("I", (1, 1), 200))[0, 0, 0] == 200
    assert pixels(Image.new("I", (1, 1), 65535))[0, 0, 0] == 255
    with pytest.raises(InputError, match="grey values go from 70000 to 70000"):
        load_image(Image.new("I", (1, 1), 70000))
    with pytest.raises(InputError, match="floating-point"):
        load_image(Image.new("F", (1, 1), 0.5))


@pytest.mark.parametrize("suffix", ["gif", "png", "webp", "tiff"])
def test_the_first_frame_counts(tmp_path: Path, suffix: str) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue", "lime")]
    frames[0].save(tmp_path / f"a.{suffix}", save_all=True, append_images=frames[1:], lossless=True)
    assert pixels(tmp_path / f"a.{suffix}")[4, 4].tolist() == [255, 0, 0]


def encoded(kind: str) -> bytes:
    buffer = BytesIO()
    picture(200, 200).save(buffer, kind)
    return buffer.getvalue()


def huge_png(side: int) -> bytes:
    """A well-formed beginning of a PNG of side x side pixels, in a few bytes."""
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )


BAD = {
    "cut.jpg": (encoded("JPEG")[:-400], "truncated"),
    "cut.png": (encoded("PNG")[: len(encoded("PNG")) // 2], "cannot be read as an image"),
    "head.jpg": (encoded("JPEG")[:30], "a"),
    "empty.jpg": (b"", "the file is empty"),
    "words.jpg": (b"not a picture at all", "not an image of a known format"),
    "vector.jpg": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image of a known"),
    "bomb.png": (huge_png(100_000), "MAX_IMAGE_PIXELS"),
}


@pytest.mark.parametrize("name", BAD)
def test_unreadable_files_are_named(tmp_path: Path, name: str) -> None:
    content, reason = BAD[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=reason) as caught:
        load_image(tmp_path / name)
    assert str(caught.value).startswith(str(tmp_path / name))
    if content:
        with pytest.raises(InputError, match=reason):
            load_image(content, name="upload")


def test_missing_files_folders_and_names_no_system_takes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.jpg: file not found"):
        load_image(tmp_path / "gone.jpg")
    with pytest.raises(InputError, match="not a file"):
        load_image(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        load_image("a\0b.jpg")
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(InputError, match="not a file"):
        load_image(tmp_path / "pipe.jpg")


def test_names_that_are_no_text_can_be_printed(tmp_path: Path) -> None:
    path = os.fsdecode(bytes(tmp_path) + b"/caf\xe9.png")
    picture().save(path, "PNG")
    assert np.array_equal(pixels(path), gradient())
    Path(path).write_bytes(b"words")
    with pytest.raises(InputError, match=r"caf\?\.png: not an image"):
        load_image(path)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("limit", [1500, 500])
def test_too_many_pixels(monkeypatch: pytest.MonkeyPatch, limit: int, tmp_path: Path) -> None:
    picture().save(tmp_path / "a.png")  # 1,536 pixels
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with pytest.raises(InputError, match=r"a\.png.*MAX_IMAGE_PIXELS"):
        load_image(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert load_image(tmp_path / "a.png").size == (48, 32)


@pytest.mark.parametrize(
    "item", [np.zeros((4, 4)), np.zeros((4, 4, 3)), np.zeros((0, 4, 3), dtype=np.uint8), 7, None]
)
def test_other_items_are_refused(item: Any) -> None:
    with pytest.raises(InputError, match="expected"):
        load_image(item)


@pytest.mark.parametrize("shape", [(300, 200), (200, 300), (40, 57), (224, 224)])
def test_the_crop_is_scaling_and_cutting(shape: tuple[int, int]) -> None:
    image = picture(*shape)
    scale = 64 / min(shape)
    size = (round(shape[0] * scale), round(shape[1] * scale))
    scaled = image.resize(size, Image.Resampling.BICUBIC)
    left, top = (scaled.width - 56) // 2, (scaled.height - 56) // 2
    expected = np.array(scaled.crop((left, top, left + 56, top + 56))).astype(int)
    assert np.abs(centre_crop(image, 56, 0.875) - expected).max() <= 4


def test_the_crop_turns_with_the_image() -> None:
    image = picture(51, 34)
    turned = centre_crop(image.transpose(Image.Transpose.ROTATE_90), 20, 0.8)
    assert np.abs(turned.astype(int) - np.rot90(centre_crop(image, 20, 0.8))).max() <= 1


def test_thin_images() -> None:
    assert centre_crop(picture(5000, 1), 32, 0.875).shape == (32, 32, 3)
    assert centre_crop(picture(1, 1), 32, 0.875).shape == (32, 32, 3)


def test_a_large_jpeg_is_decoded_coarsely_but_looks_the_same(tmp_path: Path) -> None:
    picture(2400, 1600).save(tmp_path / "a.jpg", quality=95)
    coarse = load_image(tmp_path / "a.jpg", at_least=200)
    assert coarse.size == (300, 200)
    fine = centre_crop(load_image(tmp_path / "a.jpg"), 90, 0.875).astype(int)
    assert np.abs(centre_crop(coarse, 90, 0.875) - fine).max() <= 3


def test_pillow_is_imported_when_needed_and_missed_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "PIL" not in loaded("import ccal.features")
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(CcalError, match=r"Reading images needs .*\.\[images\]"):
        load_image(gradient())
