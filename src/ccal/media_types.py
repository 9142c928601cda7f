"""The type of a file by its first bytes: pictures, sound, pages and notation.

Names and Content-Type headers do not count, as anybody can set them to anything.
"""

HEAD = 64
"""Bytes of a file that `sniff` needs at most."""

_STARTS = {
    b"\xff\xd8\xff": "image/jpeg",
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"BM": "image/bmp",
    b"II*\0": "image/tiff",
    b"MM\0*": "image/tiff",
    b"fLaC": "audio/flac",
    b"OggS": "audio/ogg",
    b"ID3": "audio/mpeg",
    b"#!AMR": "audio/amr",
    b"MThd": "audio/midi",
    b"\x1a\x45\xdf\xa3": "video/webm",
    b"%PDF-": "application/pdf",
}
# The brand in the first box of a file of the MPEG-4 family; all other brands are video.
_BRANDS = {
    b"avif": "image/avif",
    b"avis": "image/avif",
    b"heic": "image/heic",
    b"heix": "image/heic",
    b"mif1": "image/heic",
    b"M4A ": "audio/mp4",
    b"M4B ": "audio/mp4",
}
_RIFF = {b"WAVE": "audio/wav", b"WEBP": "image/webp"}
IMAGE_NAMES = ("jpeg", "png", "webp", "gif", "bmp", "tiff", "avif")
IMAGES = tuple(f"image/{name}" for name in IMAGE_NAMES)
AUDIO = (
    *(f"audio/{name}" for name in ("wav", "flac", "ogg", "mpeg", "mp4", "aac", "amr")),
    *(f"video/{name}" for name in ("mp4", "webm")),
)
"""Sound, also beside pictures in a video."""
PDF, MIDI = "application/pdf", "audio/midi"


def sniff(head: bytes) -> str | None:
    """The type of a file by its first bytes; None for what is none of these types.

    >>> sniff(b"RIFF....WAVEfmt "), sniff(b"<svg onload=alert(1)>")
    ('audio/wav', None)
    """
    for start, type in _STARTS.items():
        if head.startswith(start):
            return type
    if head[:4] in (b"RIFF", b"RF64"):
        return _RIFF.get(head[8:12])
    if head[4:8] == b"ftyp":
        return _BRANDS.get(head[8:12], "video/mp4")
    if len(head) > 2 and head[0] == 0xFF:
        # A frame of AAC (ADTS); a frame of MPEG-1 or 2, layer III, with a valid bit rate.
        if head[1] & 0xF6 == 0xF0:
            return "audio/aac"
        if head[1] & 0xE6 == 0xE2 and head[2] & 0xF0 != 0xF0:
            return "audio/mpeg"
    return None
