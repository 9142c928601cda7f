"""Files that are complete or absent, and the lock that keeps two processes out of one folder."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ccal.errors import CcalError, InputError

__all__ = [
    "FileLock",
    "LockedError",
    "alone_in",
    "intact",
    "named_by_hash",
    "new_file",
    "sync_folder",
    "write_atomically",
    "write_described",
]


def write_atomically(path: Path, *parts: bytes | memoryview) -> None:
    """Write parts to a file that appears under its name only when it is complete and on disk."""
    with new_file(path) as file:
        file.writelines(parts)


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which appears under its name at the end, complete and on disk.

    If anything fails meanwhile, nothing is left of it.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with new_file(Path(folder, "out.bin")) as file:
    ...         _ = file.write(b"abc")
    ...     Path(folder, "out.bin").read_bytes()
    b'abc'
    """
    prefix = f".{path.name}."
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=prefix)
        try:
            with os.fdopen(handle, "wb") as file:
                os.fchmod(handle, 0o666 & ~_umask())
                yield file
                file.flush()
                os.fsync(handle)
            os.replace(temporary, path)
            sync_folder(path.parent)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        # The temporary file's name says nothing to a person, and a full disk names none at all.
        hidden = error.filename is None or Path(str(error.filename)).name.startswith(prefix)
        if error.errno is not None and hidden:
            error.filename, error.filename2 = str(path), None
        raise


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to disk, where the system can do that for a folder."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class LockedError(CcalError):
    """Another process, or another object of this one, has the lock; `holder` says who."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(f"{path} is locked by {holder}.")
        self.holder = holder


class FileLock:
    """A lock of the operating system on a file; it ends with its process, even by kill -9.

    The file stays and holds the number of the last process that had the lock. Only whoever takes
    the lock needs the right to write.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object has the lock."""
        return self._handle is not None

    def acquire(self) -> None:
        """Take the lock at once, or raise `LockedError`."""
        if self.held:
            return
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise InputError(
                f"{self.path.parent}: cannot be written ({error.strerror})."
            ) from error
        try:
            _flock(handle)
        except BlockingIOError as error:
            holder = os.read(handle, 32).decode(errors="replace").strip()
            os.close(handle)
            raise LockedError(self.path, f"process {holder or '?'}") from error
        os.truncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
        self._handle = handle

    def release(self) -> None:
        """Give the lock back."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder, which is made if need be; its file `.lock` stays."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire()
    except LockedError as error:
        raise CcalError(
            f"another process is at work in {folder}; wait for its end, or name another folder."
        ) from error
    try:
        yield
    finally:
        lock.release()


def write_described(
    folder: Path, config: str, about: Mapping[str, Any], key: str, content: bytes
) -> None:
    """Write weights, and a JSON file `config` that describes them and names their file under `key`.

    The description is replaced last, in one step: whatever happens meanwhile, the folder holds what
    it held before or what it is to hold. A folder with other things in it is refused.
    """
    if folder.exists() and not (folder.is_dir() and _holds_only(folder, config, key)):
        raise InputError(f"{str(folder)!r} exists and holds other things; nothing was written.")
    name = named_by_hash(key, content)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / name, content)
    text = json.dumps({**about, key: name}, indent=1) + "\n"
    write_atomically(folder / config, text.encode())
    for stale in folder.glob(f"{key}-*.safetensors"):
        if stale.name != name:
            stale.unlink()


def named_by_hash(key: str, content: bytes) -> str:
    """The name of a file of weights, by which `intact` knows whether it still holds them."""
    return f"{key}-{hashlib.sha256(content).hexdigest()[:16]}.safetensors"


def intact(file: Path) -> Path:
    """A file of weights, if its content has the hash that is in its name."""
    if not file.is_file():
        raise ValueError(f"{file.name} is missing; copy it again, or save anew.")
    with file.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if file.stem.rpartition("-")[2] != found[:16]:
        raise ValueError(
            f"the content of {file.name} has changed, its hash is now {found[:16]}; copy it "
            "again, or save anew."
        )
    return file


def _holds_only(folder: Path, config: str, key: str) -> bool:
    """Whether a folder is empty or holds what `write_described` writes, perhaps half-written."""
    return all(f.name == config or f.name.startswith((f"{key}-", ".")) for f in folder.iterdir())


def _flock(handle: int) -> None:
    """Lock an open file, or raise `BlockingIOError` if another has it."""
    try:
        import fcntl
    except ImportError:  # Windows, where nothing keeps two processes apart
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        # A file system without locks: refusing to work there would help nobody.
        pass


def _umask() -> int:
    """What the user takes from the rights of new files; it cannot be read without setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
