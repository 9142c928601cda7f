"""Uploaded files: types by first bytes, and limits on what they decode to."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from io import BytesIO
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from ccal.errors import InputError
from ccal.media_types import AUDIO, IMAGES, MIDI, PDF, sniff
from ccal.serve.guard import Limits
from ccal.serve.problems import ProblemError
from ccal.serve.uploads import decode_audio, decode_image
from tests.serve.conftest import problem
from tests.serve.live import Live

soundfile = pytest.importorskip("soundfile")


def picture(format: str, size: tuple[int, int] = (40, 30), **options: Any) -> bytes:
    file = BytesIO()
    Image.new("RGB", size, "red").save(file, format, **options)
    return file.getvalue()


def sound(
    format: str, seconds: float = 0.5, subtype: str | None = None, channels: int = 1
) -> bytes:
    file = BytesIO()
    samples = np.zeros((int(8000 * seconds), channels), np.float32)
    soundfile.write(file, samples, 8000, format=format, subtype=subtype)
    return file.getvalue()


def png_header(width: int, height: int) -> bytes:
    """A tiny PNG whose header claims this size."""
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))
    data = b"IDAT" + zlib.compress(b"\0" * 1000)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk
        + struct.pack(">I", len(data) - 4)
        + data
        + struct.pack(">I", zlib.crc32(data))
    )


def flac_that_lies(samples: int) -> bytes:
    """A FLAC file whose header claims this many samples."""
    content = bytearray(sound("FLAC"))
    place = 8 + 10  # rate, channels and bits fill 28 bits, the number of samples the next 36
    packed = int.from_bytes(content[place : place + 8], "big")
    packed = (packed >> 36 << 36) | samples
    content[place : place + 8] = packed.to_bytes(8, "big")
    return bytes(content)


def test_the_first_bytes_decide_the_type() -> None:
    for format, type in (
        ("JPEG", "image/jpeg"),
        ("PNG", "image/png"),
        ("GIF", "image/gif"),
        ("WEBP", "image/webp"),
        ("BMP", "image/bmp"),
        ("TIFF", "image/tiff"),
    ):
        assert sniff(picture(format)[:64]) == type
    for format, type in (
        ("WAV", "audio/wav"),
        ("FLAC", "audio/flac"),
        ("OGG", "audio/ogg"),
        ("MP3", "audio/mpeg"),
    ):
        assert sniff(sound(format)[:64]) == type
    for other in (b"", b"<svg/>", b"%PD", b"GIF", b"\xff\xd8", b"PK\3\4", b"#!/bin/sh"):
        assert sniff(other) is None


@given(st.binary(max_size=64))
def test_any_bytes_have_a_type_or_none(head: bytes) -> None:
    assert sniff(head) in (*IMAGES, *AUDIO, PDF, MIDI, "image/heic", None)


def test_the_content_type_header_does_not_count(client: httpx.Client) -> None:
    lie = {"content-type": "image/jpeg"}
    for content in (b"<script>alert(1)</script>", b"%PDF-1.7", b"\0" * 100, sound("WAV")):
        detail = problem(client.post("/api/search/file", content=content, headers=lie), 415)
        assert "image/png" in detail
    odd = {"content-type": "application/x-sh"}
    response = client.post("/api/search/file", content=picture("PNG"), headers=odd)
    assert response.status_code == 200
    problem(client.post("/api/search/file", content=b""), 415)
    wrong = client.post("/api/search/file", content=picture("PNG"), params={"kind": "sheet"})
    problem(wrong, 415)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF"])
def test_pictures_whole_and_cut_short(client: httpx.Client, format: str) -> None:
    whole = picture(format)
    assert client.post("/api/search/file", content=whole).status_code == 200
    for length in (20, len(whole) // 2):
        response = client.post("/api/search/file", content=whole[:length])
        # Some decoders accept half a picture.
        if response.status_code != 200:
            problem(response, 422)


def test_too_many_pixels_are_refused_before_they_are_decoded(
    client: httpx.Client, serve: Callable[..., Live]
) -> None:
    for size in ((8000, 8000), (2**31 - 1, 1), (60_000, 60_000)):
        detail = problem(client.post("/api/search/file", content=png_header(*size)), 413)
        assert "50 megapixels" in detail
    with serve(pixels=1000).client() as strict:
        problem(strict.post("/api/search/file", content=picture("JPEG")), 413)
        small = picture("JPEG", (20, 20))
        assert strict.post("/api/search/file", content=small).status_code == 200


def test_decoded_pictures_are_small() -> None:
    assert decode_image(picture("PNG", (3000, 40)), Limits()).size == (40, 40)
    assert decode_image(picture("PNG", (3000, 2000)), Limits()).size == (1024, 1024)


def test_text_bombs_in_pictures() -> None:
    from PIL.PngImagePlugin import PngInfo

    notes = PngInfo()
    notes.add_text("bomb", "a" * 70_000_000, zip=True)
    file = BytesIO()
    Image.new("RGB", (4, 4)).save(file, "PNG", pnginfo=notes)
    assert len(file.getvalue()) < 200_000
    with pytest.raises(InputError):
        decode_image(file.getvalue(), Limits())


@pytest.mark.parametrize("format", ["WAV", "FLAC", "OGG", "MP3"])
def test_sounds_within_limits(format: str) -> None:
    samples, rate = decode_audio(sound(format, 0.5, channels=2), Limits(seconds=2))
    assert rate == 8000
    assert samples.ndim == 1
    assert len(samples) == pytest.approx(4000, rel=0.5)


@pytest.mark.parametrize("format", ["WAV", "FLAC", "OGG", "MP3"])
def test_sounds_that_are_too_long(format: str) -> None:
    long = sound(format, 100)
    with pytest.raises(ProblemError, match="2 seconds") as error:
        decode_audio(long, Limits(seconds=2))
    assert error.value.status == 413


def test_compressed_silence_cannot_exceed_the_limit() -> None:
    bomb = sound("FLAC", 3600, subtype="PCM_16")
    assert len(bomb) < 400_000
    with pytest.raises(ProblemError, match="longer"):
        decode_audio(bomb, Limits())
    # A header may claim less than there is, or absurdly much.
    with pytest.raises(ProblemError, match="longer"):
        decode_audio(flac_that_lies(2**36 - 1), Limits())
    for claimed in (0, 10):
        try:
            samples, _ = decode_audio(flac_that_lies(claimed), Limits(seconds=1))
        except InputError:
            continue
        assert len(samples) <= 8000


def test_files_without_sound_are_refused() -> None:
    infinite = BytesIO()
    soundfile.write(infinite, np.array([0, np.nan, np.inf]), 8000, format="WAV", subtype="FLOAT")
    wide = BytesIO()
    soundfile.write(wide, np.zeros((10, 20)), 8000, format="WAV")
    for content, match in (
        (infinite.getvalue(), "NaN"),
        (wide.getvalue(), "20 channels"),
        (sound("WAV", 0), "0 samples"),
        (sound("FLAC")[:50], "damaged|0 samples"),
        (b"RIFF\xff\xff\xff\xffWAVE" + b"\xff" * 200, "damaged"),
    ):
        with pytest.raises(InputError, match=match):
            decode_audio(content, Limits())


@given(st.binary(max_size=200), st.sampled_from(["WAV", "FLAC", "OGG", "PNG", "JPEG", "GIF"]))
def test_damaged_files_are_refused_with_a_reason(noise: bytes, format: str) -> None:
    is_sound = format in ("WAV", "FLAC", "OGG")
    whole = bytearray(sound(format, 0.05) if is_sound else picture(format))
    half = len(whole) // 2
    whole[half : half + len(noise)] = noise
    try:
        if is_sound:
            decode_audio(bytes(whole), Limits())
        else:
            decode_image(bytes(whole), Limits())
    except (InputError, ProblemError):
        pass
