"""What a person sees while a command works: notes and errors on stderr, results on stdout."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from ccal.errors import CcalError

__all__ = ["StoppedError", "is_first_rank", "note", "progress_line", "quiet_errors", "warn_plainly"]


class StoppedError(CcalError):
    """A signal came, Ctrl-C for one; says what to do to go on."""

    def __init__(self, message: str, signal: int = 2) -> None:
        super().__init__(message)
        self.code = 128 + signal


def is_first_rank() -> bool:
    """Whether this process speaks; under torchrun only the first one does."""
    return os.environ.get("RANK", "0") == "0"


def note(text: str) -> None:
    """Say something on stderr, where it does not get into results."""
    # Closed by `2>&-`, stderr is None, and print would take stdout for it.
    if is_first_rank() and sys.stderr is not None:
        print(text, file=sys.stderr, flush=True)


@contextmanager
def quiet_errors(debug: bool) -> Iterator[list[int]]:
    """Show what went wrong in one line instead of a traceback; yields the list of exit codes."""
    codes: list[int] = []
    try:
        yield codes
    except BrokenPipeError:  # the reader went away, as `head` does
        _give_up_stdout()
        codes.append(141)
    except OSError as error:
        if debug:
            raise
        place = f"{os.fsdecode(name)}: " if isinstance(name := error.filename, str | bytes) else ""
        note(f"error: {place}{error.strerror or error}")
        _give_up_stdout()
        codes.append(2)
    except KeyboardInterrupt:
        note("\nstopped")
        codes.append(130)
    except CcalError as error:
        if debug:
            raise
        note(f"\nstopped; {error}" if isinstance(error, StoppedError) else f"error: {error}")
        codes.append(error.code if isinstance(error, StoppedError) else 2)


def _give_up_stdout() -> None:
    """Let what stdout cannot take go; a second failure, when Python exits, would be loud."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def warn_plainly() -> None:
    """Print warnings as one line each, without the line of code they came from."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        note(f"warning: {message}")

    warnings.showwarning = show


class _Line:
    """Rows done, their rate and the time that remains, on one line of a terminal."""

    def __init__(self, what: str) -> None:
        self.what, self.started, self.shown = what, time.perf_counter(), 0.0

    def __call__(self, done: int, total: int) -> None:
        now = time.perf_counter()
        if (
            sys.stderr is None
            or not sys.stderr.isatty()
            or (done < total and now - self.shown < 0.1)
        ):
            return
        self.shown = now
        rate = done / max(now - self.started, 1e-9)
        text = (
            f"{self.what}: {done:,}/{total:,}, {rate:,.0f}/s, {(total - done) / rate:.0f} s left "
        )
        print(text, end="\n" if done == total else "\r", file=sys.stderr, flush=True)


def progress_line(what: str) -> _Line:
    """A function of (done, total) that keeps a line on the terminal up to date."""
    return _Line(what)
