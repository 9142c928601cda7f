"""Files that are whole or not there."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ccal.errors import InputError

__all__ = ["write_atomically", "write_described"]


def write_atomically(path: Path, *parts: bytes | memoryview) -> None:
    """Write parts to a file that appears under its name only when it is complete and on disk."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        os.fchmod(handle, 0o666 & ~_umask())
        with os.fdopen(handle, "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_described(
    folder: Path, config: str, about: Mapping[str, Any], key: str, content: bytes
) -> None:
    """Write weights, and a JSON file `config` that describes them and names their file under `key`.

    The description is replaced last, in one step: whatever happens meanwhile, the folder holds what
    it held before or what it is to hold. A folder with other things in it is refused.
    """
    if folder.exists() and not (folder.is_dir() and _holds_only(folder, config, key)):
        raise InputError(f"{str(folder)!r} exists and holds other things; nothing was written.")
    name = f"{key}-{hashlib.sha256(content).hexdigest()[:16]}.safetensors"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / name, content)
    text = json.dumps({**about, key: name}, indent=1) + "\n"
    write_atomically(folder / config, text.encode())
    for stale in folder.glob(f"{key}-*.safetensors"):
        if stale.name != name:
            stale.unlink()


def _holds_only(folder: Path, config: str, key: str) -> bool:
    """Whether a folder is empty or holds what `write_described` writes, perhaps half-written."""
    return all(f.name == config or f.name.startswith((f"{key}-", ".")) for f in folder.iterdir())


def _umask() -> int:
    """What the user takes from the rights of new files; it cannot be read without setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
