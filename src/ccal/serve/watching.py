"""For those who look after the server: is it there, does it work, how much."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.responses import Response

from ccal.errors import CcalError
from ccal.serve.answering import json_response
from ccal.serve.collection import NotReadyError
from ccal.serve.problems import ProblemError
from ccal.serve.schemas import Problem, Status
from ccal.serve.service import Service
from ccal.serve.sizes import CutShortError

__all__ = ["add_watching"]


def add_watching(app: FastAPI, service: Service) -> None:
    """Add `/health`, `/ready` and `/metrics`."""

    @app.get("/health", response_model=Status, tags=["watching"])
    async def health() -> Response:
        """Whether the process answers."""
        return json_response({"status": "ok"})

    @app.get(
        "/ready",
        response_model=Status,
        responses={503: {"model": Problem}},
        tags=["watching"],
    )
    async def ready() -> Response:
        """Whether the collection can be searched."""
        try:
            await service.look(service.collection.check)
        except (CutShortError, NotReadyError):
            raise
        except CcalError as error:
            raise ProblemError(503, "The collection cannot be read.") from error
        if not service.batcher.alive:
            raise ProblemError(503, "Queries are not being answered.")
        return json_response({"status": "ready"})

    @app.get("/metrics", response_class=Response, tags=["watching"])
    async def metrics() -> Response:
        """Counts and times, for Prometheus."""
        items = await service.look(service.collection.counts)
        text = service.metrics.text(service.batcher.waiting, items)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
