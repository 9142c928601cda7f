"""What a person sees of a command: notes, progress and errors on stderr, results on stdout."""

import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ccal.columns import printable
from ccal.errors import CcalError, InputError


class StoppedError(CcalError):
    """A signal, such as Ctrl-C, stopped the work; the message says how to continue it."""

    def __init__(self, message: str, signal: int = 2) -> None:
        super().__init__(message)
        self.code = 128 + signal


def is_first_rank() -> bool:
    """Whether this process may print; under torchrun only the first one does."""
    return os.environ.get("RANK", "0") == "0"


def note(text: str) -> None:
    """Print a line on stderr, apart from the results on stdout."""
    # After `2>&-` stderr is None, and print would write to stdout instead.
    if not is_first_rank() or sys.stderr is None:
        return
    # A place to search that was given as a file is named in full.
    text = re.sub(r"(:/+[^/:@\s]*):[^/@\s]*@", r"\1:***@", text)
    text = "\n".join(map(printable, text.split("\n")))
    if sys.stderr.isatty() and not text.startswith("\n"):
        # Erase a progress line; otherwise the note would overwrite its beginning only.
        text = f"\r\x1b[K{text}"
    print(text, file=sys.stderr, flush=True)


def note_warnings(text: str) -> None:
    """The same for `--quiet`: of the remarks of `ccal.runs` only the warnings."""
    if text.startswith("warning: "):
        note(text)


@contextmanager
def training(go_on: str) -> Iterator[None]:
    """Tell a person who stops training how to `go_on`, and which option mends rare words."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise StoppedError(go_on, getattr(error, "signal", 2)) from error
    except InputError as error:
        if "lower min_count" in str(error):
            raise InputError(f"{error} Here: --set min_count=1") from error
        raise


@contextmanager
def quiet_errors(debug: bool) -> Iterator[list[int]]:
    """Report an error in one line instead of a traceback; yields the list of exit codes."""
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
    """Drop output that stdout cannot take; Python would report it a second time when it exits."""
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


def note_skipped(skipped: Sequence[tuple[str, str]], *, most: int = 10) -> None:
    """Name the tunes that were left out, each with the reason."""
    for title, reason in skipped[:most]:
        note(f"left out: {title}: {reason}")
    if len(skipped) > most:
        note(f"left out: {len(skipped) - most:,} more, which `ccal data build` names")
