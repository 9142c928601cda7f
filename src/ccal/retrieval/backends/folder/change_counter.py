"""ChangeCounter: tells that the last changes of a database are lost."""

import os
import zlib
from contextlib import suppress
from pathlib import Path


class ChangeCounter:
    """The number of a database's last change, in a file beside it, written after the change.

    The last changes of a process that was killed are in SQLite's log, and SQLite takes a damaged
    page there for the end of the log. If the database has an earlier number, changes are lost.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     counter = ChangeCounter(Path(folder, "items.sqlite"))
    ...     counter.noted(), counter.note(7), counter.noted()
    (0, None, 7)
    """

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + "-changes")

    def note(self, number: int) -> None:
        """Note the number of a change that was committed.

        Nothing is brought to disk, which would take as long as the change: what a killed process
        has written stays, and after a power cut an earlier number notices less and does no harm.
        """
        content = number.to_bytes(8, "little")
        with suppress(OSError):
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o666)
            try:
                os.write(handle, content + _checksum(content))
            finally:
                os.close(handle)

    def noted(self) -> int:
        """The number that was noted last; 0 if it is not known."""
        try:
            content = self._path.read_bytes()
        except OSError:
            return 0
        sound = content[8:] == _checksum(content[:8])
        return int.from_bytes(content[:8], "little") if sound else 0


def _checksum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(4, "little")
