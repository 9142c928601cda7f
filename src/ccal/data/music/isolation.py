"""A function in a child process, which may crash or hang without harm to this one."""

from __future__ import annotations

import faulthandler
import os
import pickle
import select
import signal
import time
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from ccal.errors import CcalError, InputError

__all__ = ["ChildFailedError", "in_child"]

Result = TypeVar("Result")


class ChildFailedError(InputError):
    """A child process crashed, or did not come back in time."""


def in_child(function: Callable[..., Result], *arguments: Any, timeout: float) -> Result:
    """function(*arguments), computed in a forked child of this process.

    The child sees everything that this process has loaded, and leaves no trace in it. Raises
    `InputError` if the function does, and `ChildFailedError` if the child crashes or takes longer
    than `timeout` seconds. The function must use no threads: a fork does not copy them.

    >>> in_child(divmod, 17, 5, timeout=10)
    (3, 2)
    """
    if not hasattr(os, "fork"):
        raise CcalError("Engraving needs a system with fork, such as Linux or macOS.")
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _run(function, arguments, writing)
    os.close(writing)
    content: bytes | None = None
    try:
        content = _read(reading, time.monotonic() + timeout)
    finally:
        os.close(reading)
        if content is None:
            os.kill(pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if content is None:
        raise ChildFailedError(f"no result after {timeout:g} seconds.")
    if status != 0 or not content:
        how = signal.Signals(-status).name if status < 0 else f"exit code {status}"
        raise ChildFailedError(f"the child process crashed ({how}).")
    result, error = pickle.loads(content)
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def _run(function: Callable[..., Any], arguments: tuple[Any, ...], writing: int) -> NoReturn:
    """The child's whole life: its answer goes to the pipe, its last words nowhere."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        faulthandler.disable()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        answer: tuple[Any, CcalError | None]
        try:
            answer = (function(*arguments), None)
        except CcalError as error:
            answer = (None, error)
        except Exception as error:
            answer = (None, InputError(f"{type(error).__name__}: {error}"))
        with os.fdopen(writing, "wb") as file:
            pickle.dump(answer, file, protocol=pickle.HIGHEST_PROTOCOL)
        code = 0
    finally:
        # Not sys.exit: what the parent does at its end must not happen twice.
        os._exit(code)


def _read(reading: int, deadline: float) -> bytes | None:
    """All that comes through the pipe; None if it does not end before the deadline."""
    parts: list[bytes] = []
    while (remaining := deadline - time.monotonic()) > 0:
        if select.select([reading], [], [], remaining)[0]:
            part = os.read(reading, 1 << 20)
            if not part:
                return b"".join(parts)
            parts.append(part)
    return None
