"""Arrays in files, with checksums, in three forms.

`ArrayFile` is one file that describes itself: a header of 4096 bytes (JSON, padded with zeros) and
a body of arrays, each but the last padded to a multiple of 4096 bytes. The header holds the CRC-32
of the body and ends with its own.

`ArrayFolder` is a folder of `.npy` files and a manifest in JSON, which names every file with its
size and SHA-256, and has a hash of its own. The manifest is written last, in one step: a folder
holds all arrays or none. Every byte is compared with its hash when the folder is opened.

An archive is one `.npz` file of small arrays and a header in JSON, read whole and without pickle.

Opening an `ArrayFile` looks at its header and size only; `verify` reads every byte. Mapped memory
is private and writable, as torch warns of memory that it may not write to: writing changes no file.
"""

import io
import json
import math
import mmap
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ccal.errors import CcalError, InputError
from ccal.files import file_hash, read_document, sync_folder, write_atomically, write_document

Layout = Callable[[dict[str, Any]], Sequence[tuple[DTypeLike, tuple[int, ...]]]]
"""From the header of an `ArrayFile` to the type and shape of each of its arrays."""

_PAGE = 4096
# No archive of real numbers shrinks to a thousandth.
_INFLATION = 1000
_FORMAT = 1


class DamagedFileError(Exception):
    """A file is missing or not as it was written; the message names it."""


class ArrayFile:
    """An open file of arrays: `about` is what its header says, `arrays` are the arrays.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "numbers")
    >>> write_array_file(path, {"count": 3}, np.arange(3), np.ones(3, np.float32))
    >>> layout = lambda about: [(np.int64, (about["count"],)), (np.float32, (about["count"],))]
    >>> ArrayFile(path, layout).arrays
    [array([0, 1, 2]), array([1., 1., 1.], dtype=float32)]
    >>> folder.cleanup()
    """

    def __init__(self, path: Path, layout: Layout) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self.about = _header(file.read(_PAGE))
                places, size = [], _PAGE
                for dtype, shape in layout(self.about):
                    start = size + -size % _PAGE
                    places.append((np.dtype(dtype), shape, start))
                    size = start + np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64))
                found = os.fstat(file.fileno()).st_size
                if found != size:
                    raise ValueError(f"it has {found:,} bytes, not {size:,}")
                self._map = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
            self.arrays: list[NDArray[Any]] = [
                np.ndarray(shape, dtype, self._map, start) for dtype, shape, start in places
            ]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DamagedFileError(f"{path}: {error}") from error

    def verify(self) -> None:
        """Compare the content with its checksum; do so before the first use."""
        if zlib.crc32(memoryview(self._map)[_PAGE:]) != self.about["crc"]:
            raise DamagedFileError(f"{self.path}: the checksum does not match")


def write_array_file(path: Path, about: Mapping[str, Any], *arrays: NDArray[Any]) -> None:
    """Write arrays to one file, which gets its name when it is complete and on disk."""
    body: list[bytes | memoryview] = []
    for array in arrays:
        if body:
            body.append(bytes(-sum(map(len, body)) % _PAGE))
        body.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    crc = 0
    for part in body:
        crc = zlib.crc32(part, crc)
    text = json.dumps({"format": _FORMAT, **about, "crc": crc}).encode()
    header = text.ljust(_PAGE - 4, b"\0")
    write_atomically(path, header, zlib.crc32(header).to_bytes(4, "little"), *body)


class ArrayFolder:
    """Arrays in a folder, under a manifest whose key "files" describes each of them.

    Args:
        folder: where they are; `files.alone_in` keeps a second writer out.
        manifest: the name of the manifest.
        format: the number of the format that this version reads and writes.
        kind: what the folder is, for messages: "store" gives "the store 'x' is damaged: ...".
        error: raised for what is damaged.
    """

    def __init__(
        self,
        folder: Path,
        manifest: str,
        format: int,
        *,
        kind: str,
        error: type[CcalError] = InputError,
    ) -> None:
        self.folder, self.manifest, self.format = folder, manifest, format
        self.kind, self._error = kind, error

    def read(self, keys: Sequence[str]) -> dict[str, Any]:
        """The manifest, which must have these keys."""
        path = self.folder / self.manifest
        with self._damage():
            try:
                about = read_document(path)
                found = about["format"]
                missing = [key for key in keys if key not in about]
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise DamagedFileError(f"{path.name} cannot be read ({error})") from error
            if found != self.format:
                raise InputError(
                    f"{str(path)!r} has the format {found}, and this version of ccal reads "
                    f"{self.format}; build it again in a new folder."
                )
            if missing:
                raise DamagedFileError(f"{path.name} cannot be read ({missing[0]!r} is missing)")
        return about

    def array(
        self, about: Mapping[str, Any], name: str, dtype: DTypeLike, shape: tuple[int, ...]
    ) -> NDArray[Any]:
        """An array as the manifest describes it, compared with its hash."""
        entry = about["files"][name]
        path = self.folder / entry["name"]
        with self._damage():
            if not path.is_file():
                raise DamagedFileError(f"{path.name} is missing")
            if (size := path.stat().st_size) != entry["bytes"]:
                raise DamagedFileError(f"{path.name} has {size:,} bytes, not {entry['bytes']:,}")
            if file_hash(path) != entry["sha256"]:
                raise DamagedFileError(f"the content of {path.name} ({name}) has changed")
            try:
                array = np.load(path, mmap_mode="c")
            except (ValueError, OSError) as error:
                raise DamagedFileError(f"{path.name} cannot be read ({error})") from error
            if array.dtype != np.dtype(dtype) or array.shape != shape:
                raise DamagedFileError(f"{path.name} has the shape {array.shape} of {array.dtype}")
        # A plain array over the same map: every slice of np.memmap costs microseconds more.
        return np.asarray(array)

    def write_array(
        self, name: str, dtype: DTypeLike, shape: tuple[int, ...], parts: Iterable[NDArray[Any]]
    ) -> dict[str, Any]:
        """Write rows, part by part; returns their entry for the manifest's "files".

        The file is named by its content. If anything fails, nothing is left of it.
        """
        path = self.folder / f".{name}.npy"
        try:
            row = 0
            # Not mapped: a full disk would kill the process.
            with path.open("wb") as file:
                about = np.lib.format.header_data_from_array_1_0(np.empty(0, dtype))
                np.lib.format.write_array_header_1_0(file, {**about, "shape": shape})
                for part in parts:
                    if part.shape[1:] != shape[1:]:
                        raise ValueError(f"{name}: rows of {shape[1:]}, got {part.shape[1:]}")
                    file.write(np.ascontiguousarray(part, dtype).data)
                    row += len(part)
                if row != shape[0]:
                    raise ValueError(f"{name}: expected {shape[0]} rows, got {row}")
                file.flush()
                os.fsync(file.fileno())
            digest = file_hash(path)
            final = path.replace(self.folder / f"{name}-{digest[:12]}.npy")
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return {"name": final.name, "bytes": final.stat().st_size, "sha256": digest}

    def finish(self, about: Mapping[str, Any]) -> None:
        """Write the manifest, which makes the folder complete, and remove files of earlier ones."""
        sync_folder(self.folder)
        write_document(self.folder / self.manifest, {"format": self.format, **about})
        for name, entry in about["files"].items():
            for path in self.folder.glob(f"{name}-*.npy"):
                if path.name != entry["name"]:
                    # Windows keeps a file that is mapped somewhere.
                    with suppress(OSError):
                        path.unlink()

    @contextmanager
    def _damage(self) -> Iterator[None]:
        """Say which folder has the damaged file, and what to do."""
        try:
            yield
        except DamagedFileError as error:
            raise self._error(
                f"the {self.kind} {str(self.folder)!r} is damaged: {error}. "
                "Delete the folder and build it again."
            ) from error


def _header(page: bytes) -> dict[str, Any]:
    if len(page) < _PAGE or zlib.crc32(page[:-4]) != int.from_bytes(page[-4:], "little"):
        raise ValueError("the header is damaged")
    about = json.loads(page[:-4].rstrip(b"\0"))
    if about["format"] != _FORMAT:
        raise ValueError(f"it has the format {about['format']}, this version reads {_FORMAT}")
    return dict(about)


@contextmanager
def open_npz(path: str | os.PathLike[str]) -> Iterator[Any]:
    """A `.npz` file of NumPy, without pickle; `ValueError` if it cannot be what it claims to be.

    NumPy allocates as much as the header of an array claims, before it reads the array.
    """
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if entry.file_size > _INFLATION * max(entry.compress_size, 1):
                raise ValueError(
                    f"{entry.filename} grows from {entry.compress_size:,} to {entry.file_size:,} "
                    "bytes, more than a thousandfold; if it shall, save it as .npy"
                )
            if not entry.filename.endswith(".npy"):
                continue
            with archive.open(entry) as file:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0
                if version != (1, 0):
                    read = np.lib.format.read_array_header_2_0
                shape, _, dtype = read(file)
            if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > entry.file_size:
                raise ValueError(f"{entry.filename} is too short for its shape {shape}")
    with np.load(path, allow_pickle=False) as arrays:
        yield arrays


def write_archive(
    path: str | os.PathLike[str], kind: str, header: dict[str, Any], arrays: dict[str, NDArray[Any]]
) -> None:
    """Write `arrays` and the JSON `header` to an .npz file at exactly `path`.

    The file appears under its name only when it is complete and on disk.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise InputError(f"There is no folder {str(target.parent)!r} to write {target.name!r} to.")
    text = json.dumps({"kind": kind, **header}, default=_plain)
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, header=np.array(text), **arrays)
    write_atomically(target, stream.getvalue())


def read_archive(
    path: str | os.PathLike[str], kind: str
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header and arrays of a file that `write_archive` wrote as `kind`; others are refused."""
    if not Path(path).is_file():
        raise InputError(f"There is no file {str(path)!r}.")
    try:
        with open_npz(path) as file:
            arrays = {name: file[name] for name in file.files}
        header: dict[str, Any] = json.loads(str(arrays.pop("header")))
        found = header.pop("kind")
    except Exception as error:  # of many kinds: from zipfile, zlib, NumPy and json
        raise InputError(
            f"{str(path)!r} is not a complete {kind!r} file: it was cut short, damaged, or written "
            "by another program. Save it again."
        ) from error
    if found != kind:
        raise InputError(f"{str(path)!r} holds {found!r}, not {kind!r}.")
    return header, arrays


def _plain(value: object) -> object:
    """NumPy scalars, such as a parameter search sets, in JSON's types."""
    if isinstance(value, np.generic):
        return value.item()
    raise InputError(f"Cannot save a parameter of type {type(value).__name__}: {value!r}.")
