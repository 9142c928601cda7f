"""One writer at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ccal.errors import InputError
from ccal.retrieval.refusals import in_use

__all__ = ["WriterLock"]


class WriterLock:
    """A lock of the operating system on a file: it ends with its process, however that ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object has the lock."""
        return self._handle is not None

    def acquire(self) -> None:
        """Take the lock, or say who has it."""
        if self._handle is not None:
            return
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise InputError(
                f"{self.path.parent}: cannot be written ({error.strerror})."
            ) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(handle, 32).decode(errors="replace").strip()
            os.close(handle)
            raise in_use(self.path.parent, f"process {holder or '?'}") from error
        os.truncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
        self._handle = handle

    def release(self) -> None:
        """Let others write."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
