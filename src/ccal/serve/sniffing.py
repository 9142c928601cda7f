"""What a file is, by its first bytes: names and headers can say anything."""

from __future__ import annotations

__all__ = ["AUDIO", "IMAGES", "SHOWN", "sniff"]

IMAGES = (
    "image/jpeg",
    "image/png",
    "image/webp",
    "image/gif",
    "image/bmp",
    "image/tiff",
    "image/avif",
)
AUDIO = ("audio/wav", "audio/flac", "audio/ogg", "audio/mpeg")
# What every browser shows; the rest is sent as PNG.
SHOWN = ("image/jpeg", "image/png", "image/webp", "image/gif")

_STARTS = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"fLaC", "audio/flac"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
)


def sniff(head: bytes) -> str | None:
    """The type of a picture or a sound by its first 16 bytes or more; None for anything else.

    >>> sniff(b"RIFF....WAVEfmt "), sniff(b"<svg onload=alert(1)>")
    ('audio/wav', None)
    """
    for start, type in _STARTS:
        if head.startswith(start):
            return type
    if head[:4] in (b"RIFF", b"RF64") and head[8:12] in (b"WAVE", b"WEBP"):
        return "audio/wav" if head[8:12] == b"WAVE" else "image/webp"
    if head[4:8] == b"ftyp" and head[8:12] in (b"avif", b"avis"):
        return "image/avif"
    # A frame of MPEG-1 or 2, layer III, with a rate that exists.
    if len(head) > 2 and head[0] == 0xFF and head[1] & 0xE6 == 0xE2 and head[2] & 0xF0 != 0xF0:
        return "audio/mpeg"
    return None
