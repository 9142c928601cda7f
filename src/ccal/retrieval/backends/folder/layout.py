"""The layout of the folder of an index: the names in it, and what may be there before a build."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ccal.errors import InputError
from ccal.files import FileLock, LockedError, sync_folder
from ccal.retrieval.items import in_use

DATABASE, LOCK = "items.sqlite", "writer.lock"
# The name in folders of earlier versions, which stay as they are.
_OLD_DATABASE = "truth.sqlite"


def database_of(folder: Path) -> Path:
    """The database of a folder, under its earlier name if it has that."""
    new, old = folder / DATABASE, folder / _OLD_DATABASE
    return old if old.exists() and not new.exists() else new


def become_writer(lock: FileLock) -> None:
    """Take the writer's lock, or say which process has it."""
    try:
        lock.acquire()
    except LockedError as error:
        raise in_use(lock.path.parent, error.holder) from error


def prepare(folder: Path) -> bool:
    """Make a folder for an index, or refuse one that holds something else; True if it is new."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; an index needs a folder of its own.")
    if folder.is_dir() and not database_of(folder).exists():
        strange = sorted(path.name for path in folder.iterdir() if path.name != LOCK)
        if strange:
            raise InputError(
                f"{folder} is not empty and no index: it holds {strange[0]!r}. Name another folder."
            )
    fresh = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror}).") from error
    sync_folder(folder.parent)
    return fresh


def discard(folder: Path, fresh: bool) -> None:
    """Remove what a failed build has left, and the folder if it was new."""
    remove_database(folder)
    (folder / LOCK).unlink(missing_ok=True)
    if fresh:
        with suppress(OSError):
            folder.rmdir()


def remove_database(folder: Path) -> None:
    """Remove the database with its log."""
    for path in folder.glob(f"{database_of(folder).name}*"):
        path.unlink(missing_ok=True)
