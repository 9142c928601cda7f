"""The folder of an embedded index: what may be there, and what is left behind."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ccal.errors import InputError
from ccal.files import FileLock, LockedError, sync_folder
from ccal.retrieval.embedded.truth import Truth
from ccal.retrieval.errors import DamagedIndexError
from ccal.retrieval.refusals import in_use

__all__ = ["LOCK", "TRUTH", "become_writer", "discard", "exists", "prepare", "remove_truth"]

TRUTH, LOCK = "truth.sqlite", "writer.lock"


def exists(folder: Path) -> bool:
    """Whether there is an index that was built to its end, or one that is damaged."""
    if not (folder / TRUTH).is_file():
        return False
    try:
        truth = Truth(folder / TRUTH)
        try:
            return truth.is_complete()
        finally:
            truth.close()
    except DamagedIndexError:
        return True


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
    if folder.is_dir() and not (folder / TRUTH).exists():
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
    """Remove what a build that failed has left, and the folder if it was new."""
    remove_truth(folder)
    (folder / LOCK).unlink(missing_ok=True)
    if fresh:
        with suppress(OSError):
            folder.rmdir()


def remove_truth(folder: Path) -> None:
    """Remove the database with its log."""
    for path in folder.glob(f"{TRUTH}*"):
        path.unlink(missing_ok=True)
