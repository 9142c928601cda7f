"""Files that are complete or absent, saved parts of models, and the lock on a folder."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from weakref import WeakSet

from ccal.errors import CcalError, InputError

if TYPE_CHECKING:
    from torch import Tensor


def write_atomically(path: Path, *parts: bytes | memoryview) -> None:
    """Write parts to a file that appears under its name only when it is complete and on disk."""
    with new_file(path) as file:
        file.writelines(parts)


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which appears under its name at the end, complete and on disk.

    If anything fails meanwhile, nothing is left of it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with new_file(Path(folder, "out.bin")) as file:
    ...         _ = file.write(b"abc")
    ...     Path(folder, "out.bin").read_bytes()
    b'abc'
    """
    temporary: Path | None = None
    try:
        temporary, file = _temporary(path)
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if os.name == "nt":  # which renames no open file
                file.close()
            temporary.replace(path)
        sync_folder(path.parent)
    except BaseException as error:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink()
        # The temporary file's name says nothing to a person, and a full disk names none at all.
        if isinstance(error, OSError) and error.errno:
            named = Path(str(error.filename or "")).name
            if not named or named.startswith(f".{path.name}."):
                error.filename, error.filename2 = str(path), None
        raise


def _temporary(path: Path) -> tuple[Path, BinaryIO]:
    """An empty file beside `path`, locked: what a killed process has left, unless one writes it."""
    usual = path.with_name(f".{path.name}.new")
    for temporary in (usual, path.with_name(f".{path.name}.{secrets.token_hex(8)}")):
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
        try:
            _flock(handle)
            # Whoever had the lock may have given the file its name meanwhile.
            if os.path.samestat(os.fstat(handle), os.stat(temporary)):
                os.truncate(handle, 0)
                return temporary, os.fdopen(handle, "wb")
        except (BlockingIOError, FileNotFoundError):
            pass
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
    raise InputError(f"{path}: several processes write it at the same time.")


def write_document(path: Path, content: Mapping[str, Any]) -> None:
    """Write plain data as JSON, with the SHA-256 of its content under the key "sha256"."""
    write_atomically(path, document(content))


def document(content: Mapping[str, Any]) -> bytes:
    """What `write_document` writes."""
    signed = {**content, "sha256": _content_hash(content)}
    return (json.dumps(signed, indent=1) + "\n").encode()


def read_document(path: Path) -> dict[str, Any]:
    """Read what `write_document` wrote; `ValueError` if it is damaged or no JSON object.

    Documents of earlier versions have no hash and are read all the same.
    """
    return parse_document(path.read_bytes(), path.name)


def parse_document(written: bytes, name: str) -> dict[str, Any]:
    """What a document of this name holds."""
    content = json.loads(written)
    if not isinstance(content, dict):
        raise ValueError(f"{name} holds a {type(content).__name__}, not an object")
    if content.pop("sha256", expected := _content_hash(content)) != expected:
        raise ValueError(f"the content of {name} has changed: its SHA-256 does not match")
    return content


def _content_hash(content: Mapping[str, Any]) -> str:
    """SHA-256 of the content, independent of the order of its keys.

    Going through JSON first makes tuples lists and keys texts, as they are when read back.
    """
    plain = json.loads(json.dumps({key: content[key] for key in content if key != "sha256"}))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def file_hash(path: Path) -> str:
    """The SHA-256 of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
    the lock needs the right to write. A forked process does not have the locks of its parent.
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
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
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
        _locks.add(self)

    def release(self) -> None:
        """Give the lock back."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


_locks: WeakSet[FileLock] = WeakSet()


def _release_all() -> None:
    """In a forked process: a fork copies open files, and a lock lasts as long as any copy."""
    for lock in list(_locks):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_all)


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


def save_part(
    folder: str | os.PathLike[str],
    config: str,
    about: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    *,
    key: str = "weights",
) -> None:
    """Save a model, or a part of one: tensors as safetensors, all else as JSON.

    The JSON file `config` holds `about`, plain data with a number "format", its own hash, and under
    `key` the name of the file of tensors, in which there is theirs. It is replaced last, in one
    step: whatever happens meanwhile, the folder holds the old part or the new one. A folder with
    other files in it is refused.
    """
    from safetensors.torch import save

    content = save({name: t.detach().contiguous() for name, t in tensors.items()})
    target, ours = Path(folder), (f"{key}-", ".")
    if target.exists() and not (
        target.is_dir()
        and all(f.name == config or f.name.startswith(ours) for f in target.iterdir())
    ):
        raise InputError(f"{str(target)!r} exists and holds other things; nothing was written.")
    name = f"{key}-{hashlib.sha256(content).hexdigest()[:16]}.safetensors"
    target.mkdir(parents=True, exist_ok=True)
    sync_folder(target.parent)
    for left in target.glob(".*"):
        # Of a process that was killed while it wrote.
        if left.name.startswith((f".{key}-", f".{config}.")):
            left.unlink(missing_ok=True)
    write_atomically(target / name, content)
    write_document(target / config, {**about, key: name})
    for stale in target.glob(f"{key}-*.safetensors"):
        if stale.name != name:
            stale.unlink()


@contextmanager
def load_part(
    folder: str | os.PathLike[str],
    config: str,
    *,
    kind: str,
    formats: Collection[int],
    key: str = "weights",
) -> Iterator[tuple[dict[str, Any], dict[str, Tensor]]]:
    """Read what `save_part` wrote, without pickle: `about` and the tensors.

    Build the part within the context: whatever fails there means that the folder is damaged, and
    becomes an `InputError` that says so. `kind` names the part in messages, such as "model".
    """
    from safetensors.torch import load_file

    source = Path(folder)
    if not (source / config).is_file():
        raise InputError(f"{str(source)!r} holds no {kind}: {config} is missing.")
    try:
        about = read_document(source / config)
        # Refuses NaN, as in the weights of words.
        json.dumps(about, allow_nan=False)
        if about["format"] not in formats:
            readable = " or ".join(map(str, formats))
            raise InputError(
                f"{str(source)!r} has format {about['format']!r}, and this version reads "
                f"{readable}; save the {kind} anew."
            )
        file = source / about[key]
        if not file.is_file():
            raise ValueError(f"{file.name} is missing; copy it again, or save anew.")
        found = file_hash(file)[:16]
        if file.stem.rpartition("-")[2] != found:
            raise ValueError(
                f"the content of {file.name} has changed, its hash is now {found}; copy it "
                "again, or save anew."
            )
        tensors = load_file(file)
        if broken := [name for name, tensor in tensors.items() if tensor.isnan().any()]:
            raise ValueError(f"there is NaN in {', '.join(broken[:3])}; train it again.")
        yield about, tensors
    except (CcalError, ImportError, OSError):
        # A missing package, or a file that may not be read, is no damage, and says so itself.
        raise
    # safetensors has an exception of its own, derived from nothing narrower.
    except Exception as error:
        raise InputError(f"The {kind} in {str(source)!r} is damaged: {error}") from error


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
        # Some file systems have no locks; work there without them.
        pass
