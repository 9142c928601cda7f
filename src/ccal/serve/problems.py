"""Errors as application/problem+json (RFC 9457): one sentence for people, never a traceback."""

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ccal.errors import CcalError, InputError
from ccal.retrieval import DamagedIndexError, OtherModelError
from ccal.serve.batching import BusyError
from ccal.serve.collection import CutShortError, NotReadyError, UnknownItemError

PROBLEM = "application/problem+json"
_FRAMEWORK = {
    404: "There is nothing at this address.",
    405: "This address does not know that method.",
}
_log = logging.getLogger("ccal.serve")


class ProblemError(Exception):
    """An answer that says why there is no result; `more` are further members of its JSON."""

    def __init__(
        self, status: int, detail: str, headers: Mapping[str, str] | None = None, **more: int
    ) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail
        self.headers, self.more = dict(headers or {}), more

    def body(self) -> bytes:
        """The answer as JSON.

        >>> ProblemError(404, "There is none.").body()
        b'{"type": "about:blank", "title": "Not Found", "status": 404, "detail": "There is none."}'
        """
        title = HTTPStatus(self.status).phrase
        content = {"type": "about:blank", "title": title, "status": self.status}
        # Escaped, since a detail may quote half of a surrogate pair, which UTF-8 cannot encode.
        return json.dumps({**content, "detail": self.detail, **self.more}).encode()


def size_text(number: int) -> str:
    """A number of bytes as people write it.

    >>> size_text(20_000_000), size_text(65_536), size_text(1)
    ('20 MB', '65.5 kB', '1 byte')
    """
    for power, unit in ((3, "GB"), (2, "MB"), (1, "kB")):
        if number >= 1000**power:
            return f"{number / 1000**power:.3g} {unit}"
    return f"{number} byte{'' if number == 1 else 's'}"


def time_text(seconds: float) -> str:
    """A number of seconds as people say it.

    >>> time_text(120.0), time_text(90.0), time_text(1.0)
    ('2 minutes', '90 seconds', '1 second')
    """
    minutes, left = divmod(seconds, 60)
    number, unit = (minutes, "minute") if minutes >= 2 and not left else (seconds, "second")
    return f"{number:g} {unit}{'' if number == 1 else 's'}"


def is_users_error(error: Exception) -> bool:
    """Whether the client can do something about an error, and may read its message."""
    return isinstance(error, InputError) and not isinstance(error, OtherModelError)


def problem_of(error: Exception) -> ProblemError:
    """The answer to an error; details about the server go to its log alone.

    >>> problem_of(InputError("k must be 1 or more.")).status, problem_of(KeyError("x")).status
    (422, 500)
    """
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, RequestValidationError):
        return ProblemError(422, _faults(error))
    # From the framework: no such path, no such method, a body that is not JSON.
    if isinstance(error, HTTPException):
        detail = _FRAMEWORK.get(error.status_code, str(error.detail))
        return ProblemError(error.status_code, detail, error.headers)
    if is_users_error(error):
        return ProblemError(404 if isinstance(error, UnknownItemError) else 422, str(error))
    if isinstance(error, BusyError):
        return ProblemError(503, str(error), {"Retry-After": "1"})
    if isinstance(error, NotReadyError):
        soon = {"Retry-After": "1"}
        return ProblemError(503, str(error), soon, done=error.done, total=error.total)
    if isinstance(error, CcalError):
        _log.error("%s", error)
        if isinstance(error, CutShortError):
            return ProblemError(503, str(error))
        # The index is damaged, locked, or has another model by now. The message may have paths.
        reason = "is damaged" if isinstance(error, DamagedIndexError) else "cannot be searched"
        return ProblemError(
            503, f"The collection {reason} at the moment; the server's log says more."
        )
    return ProblemError(500, "Something went wrong here; the server's log says more.")


def add_handlers(app: FastAPI) -> None:
    """Answer every error of the application with a problem."""
    for kind in (ProblemError, RequestValidationError, HTTPException, CcalError, Exception):
        app.add_exception_handler(kind, _answer)


async def _answer(_: Request, error: Exception) -> Response:
    problem = problem_of(error)
    return Response(problem.body(), problem.status, problem.headers, PROBLEM)


def _faults(error: Any) -> str:
    """The place and the message of each fault; its value may be huge, or impossible in JSON."""
    faults = []
    for fault in error.errors()[:5]:
        where = ".".join(map(str, fault["loc"][1:])) or "the request"
        faults.append(f"{where}: {fault['msg']}")
    return "; ".join(faults) + "."
