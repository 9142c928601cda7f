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

__all__ = ["ProblemError", "add_handlers", "problem_bytes"]

_TYPE = "application/problem+json"
_log = logging.getLogger("ccal.serve")


class ProblemError(Exception):
    """What is answered in place of a result."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, dict(headers or {})


def problem_bytes(status: int, detail: str) -> bytes:
    """The body of an answer.

    >>> problem_bytes(404, "There is none.")
    b'{"type": "about:blank", "title": "Not Found", "status": 404, "detail": "There is none."}'
    """
    content = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }
    # Escaped, since a name that is no text could not be encoded otherwise.
    return json.dumps(content).encode()


def add_handlers(app: FastAPI) -> None:
    """Let every error of the application end as a problem."""
    app.add_exception_handler(ProblemError, _problem)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(InputError, _input)
    app.add_exception_handler(CcalError, _unavailable)
    app.add_exception_handler(Exception, _ours)


def _answer(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(problem_bytes(status, detail), status, headers, _TYPE)


async def _problem(_: Request, error: Any) -> Response:
    return _answer(error.status, error.detail, error.headers)


async def _http(_: Request, error: Any) -> Response:
    """Of the framework: no such path, no such method, a body that is no JSON."""
    detail = {
        404: "There is nothing at this address.",
        405: "This address does not know that method.",
    }.get(error.status_code, str(error.detail))
    return _answer(error.status_code, detail, error.headers)


async def _invalid(_: Request, error: Any) -> Response:
    # Only where and what: the value itself may be huge, or something JSON cannot say.
    faults = []
    for fault in error.errors()[:5]:
        place = ".".join(str(part) for part in fault["loc"][1:]) or "the request"
        faults.append(f"{place}: {fault['msg']}")
    return _answer(422, "; ".join(faults) + ".")


async def _input(_: Request, error: Any) -> Response:
    if isinstance(error, OtherModelError):
        return await _unavailable(_, error)
    return _answer(422, str(error))


async def _ours(_: Request, error: Any) -> Response:
    # The log has it, and the answer does not.
    return _answer(500, "Something went wrong here; the server's log says more.")


async def _unavailable(_: Request, error: Any) -> Response:
    """The index is damaged, in use or of another model by now; the log has its name and place."""
    _log.error("%s", error)
    reason = "is damaged" if isinstance(error, DamagedIndexError) else "cannot be searched"
    return _answer(503, f"The collection {reason} at the moment; the server's log says more.")
