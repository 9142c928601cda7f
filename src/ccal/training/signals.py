"""Ctrl-C and SIGTERM as a request that training meets at a good moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Interrupted", "Signals", "catch_signals"]


class Interrupted(KeyboardInterrupt):
    """Training was stopped by a signal; the message says how to go on.

    `signal` is its number, such as signal.SIGINT.
    """

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.signal = number


class Signals:
    """`requested` is the number of the signal that came, None before."""

    requested: int | None = None


@contextmanager
def catch_signals() -> Iterator[Signals]:
    """Within, a first SIGINT or SIGTERM is only noted; a second raises `Interrupted` at once.

    Python delivers signals to the main thread; in others nothing changes. Signals that the process
    ignores, as under nohup, stay ignored.

    >>> with catch_signals() as signals:
    ...     signal.raise_signal(signal.SIGINT)
    ...     signals.requested == signal.SIGINT
    True
    """
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return

    def note(number: int, frame: FrameType | None) -> None:
        if signals.requested is not None:
            raise Interrupted("Stopped at once by a second signal.", number)
        signals.requested = number

    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    ours = [n for n, handler in before.items() if handler is not signal.SIG_IGN]
    for number in ours:
        signal.signal(number, note)
    try:
        yield signals
    finally:
        for number in ours:
            # None stands for a handler that Python did not install.
            signal.signal(number, before[number] or signal.SIG_DFL)
