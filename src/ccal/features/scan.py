"""Image files in a folder, which of them cannot be read, and threads that read ahead."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ccal.errors import Faults, InputError
from ccal.features.loading import load_image, path_name

Item = TypeVar("Item")
Result = TypeVar("Result")

_MOST_THREADS = 8
_BOX = 4  # Pillow's Resampling.BOX, which is only there if Pillow is


def in_order(
    function: Callable[[Item], Result], items: Iterable[Item], *, ahead: int
) -> Generator[Result]:
    """function(item) of each item, in order; threads work on up to `ahead` items in advance.

    The first exception ends the work and reaches the caller.

    >>> list(in_order(abs, [-1, 2, -3], ahead=2))
    [1, 2, 3]
    """
    threads = min(_MOST_THREADS, os.cpu_count() or 1)
    with ThreadPoolExecutor(threads, thread_name_prefix="ccal-images") as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


SUFFIXES = (
    *(".avif", ".bmp", ".gif", ".jp2", ".jpe", ".jpeg", ".jpg"),
    *(".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"),
)


@dataclass(kw_only=True)
class BadImages(Faults):
    """Images that cannot be read, among `images`.

    >>> bad = BadImages(images=4000)
    >>> bad.add("a.jpg: the file is empty.")
    >>> print(bad)
    1 of 4,000 images cannot be read:
      a.jpg: the file is empty.
    """

    images: int = 0

    def __str__(self) -> str:
        return self.listed(f"{self.total:,} of {self.images:,} images cannot be read:")


@dataclass(frozen=True)
class ImageScan:
    """What `scan_images` found: positions (m,) of readable paths, and a report on the others.

    `looks` has the picture of each readable path in 16 x 16 pixels, flat (768,) uint8, by which
    pictures that were saved again can be recognised.
    """

    good: NDArray[np.int64]
    bad: BadImages
    looks: dict[str, NDArray[np.uint8]]


def scan_images(
    paths: Sequence[str | PathLike[str]],
    *,
    strict: bool = True,
    limit: int = 20,
    progress: Callable[[int, int], None] | None = None,
) -> ImageScan:
    """Decode every image of a list once, before any work is built on it.

    Unreadable ones raise `InputError` that lists the first `limit`; with `strict=False` they are
    left out of `good` and reported in `bad`, as long as any can be read. Paths that occur several
    times are read and counted once. `progress` is called with the number done and their total.
    """
    files = [os.fspath(path) for path in paths]
    distinct = list(dict.fromkeys(files))
    bad, looks = BadImages(limit=limit, images=len(distinct)), {}
    for done, found in enumerate(in_order(_look, distinct, ahead=64)):
        if isinstance(found, str):
            bad.add(found)
        else:
            looks[distinct[done]] = found
        if progress is not None:
            progress(done + 1, len(distinct))
    if bad and (strict or bad.total == len(distinct)):
        raise InputError(str(bad))
    good = [position for position, file in enumerate(files) if file in looks]
    return ImageScan(np.array(good, dtype=np.int64), bad, looks)


def find_images(folder: str | PathLike[str]) -> list[str]:
    """All image files in a folder and the folders below it, by suffix, sorted by path.

    Names that begin with a dot are passed over, files and folders alike.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("b.PNG", "a.jpg", ".a.jpg", "notes.txt"):
    ...         Path(folder, name).touch()
    ...     [Path(path).name for path in find_images(folder)]
    ['a.jpg', 'b.PNG']
    """
    if not os.path.isdir(folder):
        raise InputError(f"{path_name(folder)!r} is no folder.")
    found = []
    for place, folders, files in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [
            os.path.join(place, name)
            for name in files
            if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES
        ]
    if not found:
        known = " ".join(SUFFIXES)
        raise InputError(f"{path_name(folder)!r} holds no image files ({known}).")
    return sorted(found)


def _look(path: str) -> NDArray[np.uint8] | str:
    """An image as `ImageScan.looks` has it, or why it cannot be read, beginning with its path."""
    try:
        image = load_image(path, at_least=512)
    except InputError as error:
        return str(error)
    return np.array(image.resize((16, 16), _BOX)).ravel()


def _refuse(error: OSError) -> None:
    raise InputError(
        f"{path_name(error.filename)!r} cannot be listed: {error.strerror}."
    ) from error
