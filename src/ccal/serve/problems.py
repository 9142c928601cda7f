"""Errors as application/problem+json: one sentence for people, never a traceback."""

from __future__ import annotations

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
from ccal.serve.collection import NotReadyError
from ccal.serve.sizes import CutShortError

__all__ = ["PROBLEM", "ProblemError", "add_handlers", "is_theirs", "problem_bytes", "problem_of"]

PROBLEM = "application/problem+json"
_FRAMEWORK = {
    404: "There is nothing at this address.",
    405: "This address does not know that method.",
}
_log = logging.getLogger("ccal.serve")


class ProblemError(Exception):
    """What is answered in place of a result."""

    def __init__(
        self,
        status: int,
        detail: str,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, dict(headers or {})
        self.more = dict(more or {})


def problem_bytes(problem: ProblemError) -> bytes:
    """The body of an answer.

    >>> problem_bytes(ProblemError(404, "There is none."))
    b'{"type": "about:blank", "title": "Not Found", "status": 404, "detail": "There is none."}'
    """
    content = {
        "type": "about:blank",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": problem.detail,
        **problem.more,
    }
    # Escaped, since a name that is no text could not be encoded otherwise.
    return json.dumps(content).encode()


def is_theirs(error: Exception) -> bool:
    """Whether whoever asked can do something about it, and may read it."""
    return isinstance(error, InputError) and not isinstance(error, OtherModelError)


def problem_of(error: Exception) -> ProblemError:
    """What is answered to an error; what is wrong with the collection is told to the log alone.

    >>> problem_of(InputError("k must be 1 or more.")).status, problem_of(KeyError("x")).status
    (422, 500)
    """
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, RequestValidationError):
        return ProblemError(422, _faults(error))
    # Of the framework: no such path, no such method, a body that is no JSON.
    if isinstance(error, HTTPException):
        detail = _FRAMEWORK.get(error.status_code, str(error.detail))
        return ProblemError(error.status_code, detail, error.headers)
    if is_theirs(error):
        return ProblemError(422, str(error))
    if isinstance(error, NotReadyError):
        more = {"done": error.done, "total": error.total}
        return ProblemError(503, str(error), {"Retry-After": "1"}, more)
    if isinstance(error, CutShortError):
        _log.error("%s", error)
        return ProblemError(503, str(error))
    # The index is damaged, in use or of another model by now; its place is nobody's business.
    if isinstance(error, CcalError):
        _log.error("%s", error)
        reason = "is damaged" if isinstance(error, DamagedIndexError) else "cannot be searched"
        said = f"The collection {reason} at the moment; the server's log says more."
        return ProblemError(503, said)
    return ProblemError(500, "Something went wrong here; the server's log says more.")


def add_handlers(app: FastAPI) -> None:
    """Let every error of the application end as a problem."""
    for kind in (ProblemError, RequestValidationError, HTTPException, CcalError, Exception):
        app.add_exception_handler(kind, _answer)


async def _answer(_: Request, error: Exception) -> Response:
    problem = problem_of(error)
    return Response(problem_bytes(problem), problem.status, problem.headers, PROBLEM)


def _faults(error: Any) -> str:
    """Only where and what: the value itself may be huge, or something JSON cannot say."""
    faults = []
    for fault in error.errors()[:5]:
        place = ".".join(str(part) for part in fault["loc"][1:]) or "the request"
        faults.append(f"{place}: {fault['msg']}")
    return "; ".join(faults) + "."
