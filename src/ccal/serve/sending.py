"""Pictures and sounds as answers: with a tag to ask by again, and parts of them on demand."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from typing import BinaryIO

from starlette.datastructures import Headers
from starlette.responses import Response, StreamingResponse

from ccal.serve.collection import Media

__all__ = ["send_media"]

_CHUNK = 128 * 1024
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def send_media(media: Media, asked: Headers) -> Response:
    """The whole, a part of it (Range), or that nothing has changed (If-None-Match)."""
    content = media.content
    if isinstance(content, bytes):
        size, tag = len(content), hashlib.sha256(content).hexdigest()[:24]
    else:
        found = os.fstat(content.fileno())
        size, tag = found.st_size, f"{found.st_mtime_ns:x}-{found.st_size:x}"
    headers = {
        "ETag": f'"{tag}"',
        "Cache-Control": "private, no-cache",
        "Accept-Ranges": "bytes",
        # Whatever a browser makes of it, it may not run or load anything.
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    if asked.get("if-none-match") == f'"{tag}"':
        return _closed(content, Response(status_code=304, headers=headers))
    status, first, last = _part(asked, size, tag)
    if status == 416:
        headers["Content-Range"] = f"bytes */{size}"
        return _closed(content, Response(status_code=416, headers=headers))
    if status == 206:
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
    if isinstance(content, bytes):
        return Response(content[first : last + 1], status, headers, media.type)
    headers["Content-Length"] = str(last + 1 - first)
    chunks = _chunks(content, first, last + 1 - first)
    return StreamingResponse(chunks, status, headers, media.type)


def _part(asked: Headers, size: int, tag: str) -> tuple[int, int, int]:
    """Status, first and last byte of what is asked for."""
    whole = 200, 0, size - 1
    match = _RANGE.fullmatch(asked.get("range", ""))
    if match is None or not any(match.groups()) or asked.get("if-range", f'"{tag}"') != f'"{tag}"':
        return whole
    begin, end = match.groups()
    if not begin:
        first, last = max(size - int(end), 0), size - 1
    else:
        first, last = int(begin), min(int(end or size - 1), size - 1)
    return (206, first, last) if first <= last else (416, 0, 0)


def _chunks(file: BinaryIO, first: int, length: int) -> Iterator[bytes]:
    with file:
        file.seek(first)
        while length > 0 and (chunk := file.read(min(_CHUNK, length))):
            length -= len(chunk)
            yield chunk


def _closed(content: bytes | BinaryIO, response: Response) -> Response:
    if not isinstance(content, bytes):
        content.close()
    return response
