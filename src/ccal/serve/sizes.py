"""Mapped files must not become shorter: to read beyond the end of one kills the process."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from ccal.errors import CcalError

__all__ = ["CutShortError", "Sizes"]


class CutShortError(CcalError):
    """A file became shorter while it was served; says which, by its name alone."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"Cut short while it was served: {', '.join(names)}. Restart the server.")


class Sizes:
    """How long the files of a folder were when they were last looked at.

    A file that is replaced by another one of its name does no harm, since what was mapped stays; so
    their numbers on disk count, too. Looking takes microseconds a file.

    Args:
        matters: by its name, whether a file is mapped; others may shrink as they like.
    """

    def __init__(self, folder: Path, matters: Callable[[str], bool] = lambda name: True) -> None:
        self._folder, self._matters = folder, matters
        self._known = self._look()

    def cut(self) -> list[str]:
        """Names of the files that are shorter than the last time; each is told once."""
        before, self._known = self._known, self._look()
        return sorted(
            file[0] for file, size in self._known.items() if file in before and size < before[file]
        )

    def _look(self) -> dict[tuple[str, int], int]:
        found = {}
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    if self._matters(entry.name) and entry.is_file():
                        about = entry.stat()
                        found[entry.name, about.st_ino] = about.st_size
        except OSError:
            # Who reads the files says it better.
            pass
        return found
