"""Files of items: which may be shown, and how they are sent.

A path comes from the index, never from a request, and still it may point anywhere. So the path is
resolved first (symbolic links count as their targets), the file is opened, and only then checked:
it must be a regular file, inside of the root if there is one, and by its first bytes a picture or a
sound. The file that was checked is the one that is sent, which is why `send_media` takes open files
and not, as Starlette's `FileResponse` does, a path that may lead elsewhere by then.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from starlette.datastructures import Headers
from starlette.responses import Response, StreamingResponse

from ccal.errors import CcalError
from ccal.media_types import AUDIO, HEAD, IMAGES, sniff
from ccal.optional import require
from ccal.serve.collection import Media, UnknownItemError

_LARGEST_IMAGE, _CHUNK = 256 * 2**20, 128 * 1024
_THUMBNAIL_SIDE, _THUMBNAILS = 480, 512
# Formats that every browser shows; others are sent as PNG.
_SHOWN = ("image/jpeg", "image/png", "image/webp", "image/gif")
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


class ItemFiles:
    """Opens the files that the items of an index name.

    Relative paths start from `root`, or from the folder in which the server was started.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = None if root is None else root.resolve()
        self._start = self.root or Path.cwd()
        self._thumbnail = lru_cache(maxsize=_THUMBNAILS)(self._make_thumbnail)

    def image(self, path: str) -> Media:
        """The picture as it is, or as PNG if browsers do not show its format."""
        file, type = self._open(path, IMAGES, "picture")
        if type in _SHOWN:
            return Media(file, type)
        with file:
            return Media(_encoded(file, None), "image/png")

    def thumbnail(self, path: str) -> Media:
        """The picture, at most 480 pixels on its longer side, encoded anew and cached."""
        file, _ = self._open(path, IMAGES, "picture")
        with file:
            about = os.fstat(file.fileno())
        return self._thumbnail(path, about.st_mtime_ns, about.st_size)

    def audio(self, path: str) -> Media:
        """The sound as it is."""
        return Media(*self._open(path, AUDIO, "sound"))

    def _make_thumbnail(self, path: str, _modified: int, _size: int) -> Media:
        file, _ = self._open(path, IMAGES, "picture")
        with file:
            return Media(_encoded(file, _THUMBNAIL_SIDE), "image/jpeg")

    def _open(self, path: str, types: tuple[str, ...], what: str) -> tuple[BinaryIO, str]:
        """The open file and its type, which must be one of `types`."""
        missing = UnknownItemError("The file of this item is gone, or cannot be read.")
        try:
            resolved = (self._start / path).resolve(strict=True)
        # Some versions of Python raise RuntimeError for a loop of links.
        except (OSError, ValueError, RuntimeError) as error:
            raise missing from error
        if self.root is not None and not resolved.is_relative_to(self.root):
            raise UnknownItemError("The file of this item is outside of the folder of media.")
        # Follow no link that was made since, and do not wait for the writer of a pipe.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        try:
            descriptor = os.open(resolved, flags)
        except OSError as error:
            raise missing from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise missing
        file = os.fdopen(descriptor, "rb")
        try:
            type = sniff(file.read(HEAD))
            if type not in types:
                raise UnknownItemError(f"The file of this item is no {what} that can be shown.")
            file.seek(0)
        except OSError as error:  # of the disk
            file.close()
            raise missing from error
        except BaseException:
            file.close()
            raise
        return file, type


def send_media(media: Media, request_headers: Headers) -> Response:
    """The whole, a part of it (Range), or that nothing has changed (If-None-Match)."""
    content = media.content
    if isinstance(content, bytes):
        size, tag = len(content), hashlib.sha256(content).hexdigest()[:24]
    else:
        about = os.fstat(content.fileno())
        size, tag = about.st_size, f"{about.st_mtime_ns:x}-{about.st_size:x}"
    status, first, stop = _part(request_headers, size, f'"{tag}"')
    headers = {
        "ETag": f'"{tag}"',
        "Cache-Control": "private, no-cache",
        "Accept-Ranges": "bytes",
        # Whatever a browser takes the file for, it may not run or load anything.
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    if status in (206, 416):
        part = f"{first}-{stop - 1}" if status == 206 else "*"
        headers["Content-Range"] = f"bytes {part}/{size}"
    if isinstance(content, bytes):
        return Response(content[first:stop], status, headers, media.type)
    if first == stop:
        content.close()
        return Response(b"", status, headers)
    headers["Content-Length"] = str(stop - first)
    return StreamingResponse(_chunks(content, first, stop - first), status, headers, media.type)


def _part(request_headers: Headers, size: int, tag: str) -> tuple[int, int, int]:
    """Status, first byte, and the byte to stop before."""
    # Several tags may be given, and a proxy that compresses marks them as weak.
    known = request_headers.get("if-none-match", "").split(",")
    if tag in [one.strip().removeprefix("W/") for one in known]:
        return 304, 0, 0
    match = _RANGE.fullmatch(request_headers.get("range", ""))
    if match is None or not any(match.groups()) or request_headers.get("if-range", tag) != tag:
        return 200, 0, size
    begin, end = match.groups()
    if begin:
        first, stop = int(begin), min(int(end) + 1 if end else size, size)
    else:
        first, stop = max(size - int(end), 0), size
    return (206, first, stop) if first < stop else (416, 0, 0)


def _chunks(file: BinaryIO, first: int, length: int) -> Iterator[bytes]:
    with file:
        file.seek(first)
        while length > 0 and (chunk := file.read(min(_CHUNK, length))):
            length -= len(chunk)
            yield chunk


def _encoded(file: BinaryIO, side: int | None) -> bytes:
    """A picture decoded and written again, so that nothing but pixels is sent."""
    from ccal.features.loading import load_image

    require("PIL.Image", extra="images", purpose="Showing images")
    if os.fstat(file.fileno()).st_size > _LARGEST_IMAGE:
        raise UnknownItemError("The file of this item is too large to be shown.")
    try:
        image = load_image(file.read(), name="the picture", at_least=side or 0)
    except (CcalError, OSError) as error:
        raise UnknownItemError("The picture of this item cannot be read.") from error
    content = BytesIO()
    if side is None:
        image.save(content, "PNG")
    else:
        image.thumbnail((side, side), reducing_gap=3.0)
        image.save(content, "JPEG", quality=85)
    return content.getvalue()
