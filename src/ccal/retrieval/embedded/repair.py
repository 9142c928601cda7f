"""Files of segments that are missing or damaged, written again from the truth."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ccal.array_files import DamagedFileError
from ccal.errors import InputError
from ccal.files import FileLock, LockedError
from ccal.retrieval.embedded.sealing import Entry, describe, entries, rewrite
from ccal.retrieval.embedded.segments import ItemsFile, VectorsFile
from ccal.retrieval.embedded.truth import Truth
from ccal.retrieval.items import Binding

__all__ = ["describe_all", "repair"]


def repair(
    truth: Truth, folder: Path, binding: Binding, damaged: Mapping[str, Entry], lock: FileLock
) -> bool:
    """Write files again; False if they must wait, as another process writes or the disk is full."""
    with _writing(folder, truth, lock) as may:
        if not may:
            return False
        known = entries(truth)
        for name, entry in damaged.items():
            if entry not in known:
                continue
            if name == entry.vectors:
                rewrite(truth, folder, binding, entry)
            elif not _describe(truth, folder, entry):
                continue
            warnings.warn(
                f"{folder / name} was missing or damaged; it was written again from "
                f"{truth.path.name}.",
                stacklevel=2,
            )
        return True
    return False


def describe_all(truth: Truth, folder: Path, lock: FileLock) -> None:
    """Give a folder of an earlier version the files it lacks."""
    with _writing(folder, truth, lock) as may:
        lacking: Sequence[Entry] = entries(truth) if may else []
        if lacking:
            warnings.warn(
                f"{folder} was made by an earlier version: what is known of its items is written "
                f"to files, once, from {truth.path.name}.",
                stacklevel=2,
            )
        for entry in lacking:
            _describe(truth, folder, entry)


def _describe(truth: Truth, folder: Path, entry: Entry) -> bool:
    """Write the records of a segment whose vectors are whole; not if another process has."""
    try:
        ItemsFile(folder / entry.items, entry.count).verify()
        return False
    except DamagedFileError:
        pass
    try:
        file = VectorsFile(folder / entry.vectors)
        file.verify()
    except DamagedFileError:
        # Both are written again when this is found out.
        return False
    describe(truth, folder, entry, file.rows)
    return True


@contextmanager
def _writing(folder: Path, truth: Truth, lock: FileLock) -> Iterator[bool]:
    """The writer's lock, if it is to be had; says what could not be written."""
    held = lock.held
    try:
        lock.acquire()
    except (LockedError, InputError):
        yield False
        return
    try:
        yield True
    except OSError as error:
        warnings.warn(
            f"{folder} has files that are missing or damaged and cannot be written again "
            f"({error}); {truth.path.name} answers in their place, slower.",
            stacklevel=2,
        )
    finally:
        if not held:
            lock.release()
