"""How good the model is, for those who want to know."""

from typing import Annotated

from fastapi import FastAPI, Query
from starlette.responses import Response

from ccal.serve.answering import evaluation_json, json_response
from ccal.serve.evaluation import Evaluation
from ccal.serve.problems import ProblemError
from ccal.serve.schemas import EvaluationAnswer, Plain, documented
from ccal.serve.service import Service

__all__ = ["add_evaluation"]


def add_evaluation(app: FastAPI, service: Service) -> None:
    """Add everything under `/api/evaluation`."""

    def known() -> Evaluation:
        found = service.collection.evaluation()
        if found is None:
            raise ProblemError(404, "Nothing is known of how good this model is.")
        return found

    @app.get(
        "/api/evaluation",
        response_model=EvaluationAnswer,
        responses=documented(404),
        tags=["evaluation"],
    )
    async def evaluation() -> Response:
        """How good the model was on pairs that were kept back."""
        return json_response(evaluation_json(known()))

    @app.get(
        "/api/evaluation/plot",
        response_class=Response,
        responses={
            200: {"content": {"image/svg+xml": {}, "image/png": {}}, "description": "The plot."},
            **documented(404),
        },
        tags=["evaluation"],
    )
    async def plot(
        name: Plain, type: Plain = "svg", theme: Annotated[Plain, Query()] = "light"
    ) -> Response:
        """A plot, as svg or png; svg also for a dark page."""
        found = await service.look(known().plot, name, type, theme == "dark")
        if found is None:
            raise ProblemError(404, "There is no such plot.")
        content, media_type = found
        return Response(content, media_type=media_type, headers=_still("'unsafe-inline'"))

    @app.get(
        "/api/evaluation/report",
        response_class=Response,
        responses={
            200: {"content": {"text/html": {}}, "description": "A page."},
            **documented(404),
        },
        tags=["evaluation"],
    )
    async def report() -> Response:
        """The run's whole report as a page that runs nothing."""
        content = await service.look(known().report)
        if content is None:
            raise ProblemError(404, "The run has no report.")
        headers = _still("'unsafe-inline'; img-src data:")
        return Response(content, media_type="text/html; charset=utf-8", headers=headers)


def _still(style: str) -> dict[str, str]:
    """For what others wrote: it may look as it likes, but neither run nor load anything."""
    return {"Content-Security-Policy": f"default-src 'none'; style-src {style}; sandbox"}
