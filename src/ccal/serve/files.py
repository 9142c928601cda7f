"""The files of items: opened with care, shown only if they are pictures or sounds."""

from __future__ import annotations

import os
import stat
import threading
from collections import OrderedDict
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from ccal.errors import CcalError
from ccal.optional import require
from ccal.serve.collection import Media, UnknownItemError
from ccal.serve.sniffing import AUDIO, IMAGES, SHOWN, sniff

__all__ = ["ItemFiles"]

_HEAD, _LARGEST_IMAGE = 64, 256 * 2**20
_THUMBNAIL, _KEPT = 480, 512


class ItemFiles:
    """Reads what the items of an index point to.

    A path comes from the index, never from a request. It is resolved first, so that symbolic links
    count as what they point to: a regular file, inside of `root` if there is one, and by its first
    bytes a picture or a sound. Paths that are not absolute start from `root`, or the folder that
    the server was started in.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = None if root is None else root.resolve()
        self._start = self.root or Path.cwd()
        self._thumbnails: OrderedDict[tuple[str, int, int], Media] = OrderedDict()
        self._guard = threading.Lock()

    def image(self, path: str) -> Media:
        """The picture as it is, or as PNG if browsers do not show its format."""
        file, type = self._open(path, IMAGES, "picture")
        if type in SHOWN:
            return Media(file, type)
        with file:
            return Media(self._encoded(file, None), "image/png")

    def thumbnail(self, path: str) -> Media:
        """The picture, 480 pixels on its longer side at most, encoded anew."""
        file, _ = self._open(path, IMAGES, "picture")
        with file:
            found = os.fstat(file.fileno())
            key = (path, found.st_mtime_ns, found.st_size)
            with self._guard:
                if key in self._thumbnails:
                    self._thumbnails.move_to_end(key)
                    return self._thumbnails[key]
            made = Media(self._encoded(file, _THUMBNAIL), "image/jpeg")
        with self._guard:
            self._thumbnails[key] = made
            while len(self._thumbnails) > _KEPT:
                self._thumbnails.popitem(last=False)
        return made

    def audio(self, path: str) -> Media:
        """The sound as it is."""
        return Media(*self._open(path, AUDIO, "sound"))

    def _open(self, path: str, types: tuple[str, ...], what: str) -> tuple[BinaryIO, str]:
        missing = UnknownItemError("The file of this item is gone, or cannot be read.")
        try:
            place = (self._start / path).resolve(strict=True)
        # A loop of links is a RuntimeError for some versions of Python.
        except (OSError, ValueError, RuntimeError) as error:
            raise missing from error
        if self.root is not None and not place.is_relative_to(self.root):
            raise UnknownItemError("The file of this item is outside of the folder of media.")
        # Not through a link that has come since, and without waiting for the writer of a pipe.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        try:
            number = os.open(place, flags)
        except OSError as error:
            raise missing from error
        if not stat.S_ISREG(os.fstat(number).st_mode):
            os.close(number)
            raise missing
        file = os.fdopen(number, "rb")
        try:
            type = sniff(file.read(_HEAD))
            if type not in types:
                raise UnknownItemError(f"The file of this item is no {what} that can be shown.")
            file.seek(0)
        except BaseException:
            file.close()
            raise
        return file, type

    def _encoded(self, file: BinaryIO, side: int | None) -> bytes:
        """Decoded and written again: nothing but pixels comes through."""
        from ccal.features.loading import load_image

        require("PIL.Image", extra="images", purpose="Showing images")
        if os.fstat(file.fileno()).st_size > _LARGEST_IMAGE:
            raise UnknownItemError("The file of this item is too large to be shown.")
        try:
            image = load_image(file.read(), name="the picture", at_least=side or 0)
        except CcalError as error:
            raise UnknownItemError("The picture of this item cannot be read.") from error
        content = BytesIO()
        if side is None:
            image.save(content, "PNG")
        else:
            image.thumbnail((side, side), reducing_gap=3.0)
            image.save(content, "JPEG", quality=85)
        return content.getvalue()
