"""Segments that are missing or damaged, written again from the truth."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from ccal.errors import InputError
from ccal.retrieval.embedded.lock import WriterLock
from ccal.retrieval.embedded.sealing import Entry, entries, rewrite
from ccal.retrieval.embedded.truth import Truth
from ccal.retrieval.errors import IndexInUseError
from ccal.retrieval.items import Binding

__all__ = ["repair"]


def repair(
    truth: Truth, folder: Path, binding: Binding, damaged: Sequence[Entry], lock: WriterLock
) -> None:
    """Write segments again; if another process writes, or the disk is full, they wait."""
    held = lock.held
    try:
        lock.acquire()
    except (IndexInUseError, InputError):
        return
    try:
        known = entries(truth)
        for entry in damaged:
            if entry in known:
                rewrite(truth, folder, binding, entry)
                warnings.warn(
                    f"{folder / entry.name}.vectors was missing or damaged; it was written again "
                    f"from {truth.path.name}.",
                    stacklevel=2,
                )
    except OSError as error:
        warnings.warn(
            f"{folder} has files that are missing or damaged and cannot be written again "
            f"({error}); {truth.path.name} answers in their place, slower.",
            stacklevel=2,
        )
    finally:
        if not held:
            lock.release()
