"""Files of shards, in folders of this machine or in object stores.

A place is a path, or a URL such as `s3://bucket/folder`, which fsspec opens by a package of its
own for each kind of store. That package finds keys and addresses as it always does, such as in
AWS_ACCESS_KEY_ID and AWS_ENDPOINT_URL.
"""

from __future__ import annotations

import glob
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

from ccal.errors import CcalError
from ccal.files import alone_in, write_atomically
from ccal.optional import require


def is_remote(place: str) -> bool:
    """Whether a place is in an object store.

    >>> is_remote("s3://bucket/photos"), is_remote("photos")
    (True, False)
    """
    return "://" in place


def join(folder: str, name: str) -> str:
    """The place of a file in a folder.

    >>> join("s3://bucket/photos/", "0.npy")
    's3://bucket/photos/0.npy'
    """
    return f"{folder.rstrip('/')}/{name}" if is_remote(folder) else str(Path(folder, name))


def files_of(place: str) -> dict[str, int]:
    """The files in a folder, or of a pattern, in the order of their names, with their sizes."""
    if not is_remote(place):
        folder = Path(place)
        paths = folder.iterdir() if folder.is_dir() else map(Path, glob.glob(place))
        return {str(path): path.stat().st_size for path in sorted(paths) if path.is_file()}
    scheme, _, name = place.partition("://")
    with _store(place) as store:
        pattern = f"{name.rstrip('/')}/*" if store.isdir(place) else name
        found = store.glob(pattern, detail=True).values()
    files = [entry for entry in found if entry["type"] == "file"]
    return {f"{scheme}://{entry['name']}": int(entry["size"]) for entry in files}


@contextmanager
def open_file(path: str) -> Iterator[BinaryIO]:
    """A file to read; of one in an object store only those parts are fetched that are read."""
    if is_remote(path):
        with _store(path) as store, store.open(path, "rb") as file:
            yield file
    else:
        with Path(path).open("rb") as file:
            yield file


def write_file(path: str, content: bytes) -> None:
    """Write a small file, which others see whole or not at all."""
    if is_remote(path):
        with _store(path) as store:
            store.pipe_file(path, content)
    else:
        write_atomically(Path(path), content)


def remove_file(path: str) -> None:
    """Remove a file."""
    if is_remote(path):
        with _store(path) as store:
            store.rm_file(path)
    else:
        Path(path).unlink()


@contextmanager
def written_here(path: str) -> Iterator[Path]:
    """Where to write a file; one for an object store is copied there when it is complete."""
    if is_remote(path):
        with tempfile.TemporaryDirectory() as folder:
            local = Path(folder, Path(path).name)
            yield local
            with _store(path) as store:
                store.put_file(str(local), path)
    else:
        yield Path(path)


def alone_at(place: str) -> AbstractContextManager[None]:
    """Keep other processes out of a folder, which is made if need be; an object store cannot."""
    return nullcontext() if is_remote(place) else alone_in(Path(place))


@contextmanager
def _store(place: str) -> Iterator[Any]:
    """The object store of a place; its errors name the place."""
    fsspec = require("fsspec", package="fsspec", purpose=f"Reading {place}")
    try:
        # What other workers have written meanwhile must be seen.
        yield fsspec.filesystem(place.partition("://")[0], use_listings_cache=False)
    except CcalError:
        raise
    except Exception as error:  # of many kinds, by the package of each store
        raise CcalError(f"{place}: {error or type(error).__name__}") from error
