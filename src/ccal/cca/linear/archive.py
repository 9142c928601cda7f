"""One file of arrays and JSON, written whole or not at all, and read without pickle."""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.errors import InputError
from ccal.files import write_atomically

__all__ = ["read_archive", "write_archive"]


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
    """Read what `write_archive` wrote as `kind`; anything else is named and refused."""
    if not Path(path).is_file():
        raise InputError(f"There is no file {str(path)!r}.")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header: dict[str, Any] = json.loads(str(arrays.pop("header")))
        found = header.pop("kind")
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _broken(path, kind) from error
    except (zipfile.BadZipFile, zlib.error, RuntimeError) as error:
        raise _broken(path, kind) from error
    if found != kind:
        raise InputError(f"{str(path)!r} holds {found!r}, not {kind!r}.")
    return header, arrays


def _broken(path: str | os.PathLike[str], kind: str) -> InputError:
    return InputError(
        f"{str(path)!r} is not a complete {kind!r} file: it was cut short, damaged, or written by "
        "another program. Save it again."
    )


def _plain(value: object) -> object:
    """NumPy scalars, as a parameter search hands them out, in JSON's types."""
    if isinstance(value, np.generic):
        return value.item()
    raise InputError(f"Cannot save a parameter of type {type(value).__name__}: {value!r}.")
