"""`POST /v1/embeddings`: vectors of texts, in the shape of OpenAI's API, for its clients."""

# FastAPI reads the annotations of the routes, so that they cannot be strings here.
import base64
from typing import Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from ccal.serve.guard import EMBEDDINGS
from ccal.serve.problems import ProblemError
from ccal.serve.schemas import Plain, described
from ccal.serve.service import Service, json_response


class EmbeddingRequest(BaseModel):
    """Texts to embed; what other servers know besides is ignored."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"input": ["a red square"]}]})

    input: Plain | list[Plain] = Field(description="A text, or a list of texts.")
    model: Plain | None = Field(None, description="Ignored: a server has one model.")
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="Numbers, or the bytes of float32 as base64."
    )


class Embedding(BaseModel):
    """The unit vector of one text."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Usage(BaseModel):
    """Words, counted at blanks."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingAnswer(BaseModel):
    """Vectors in the order of the texts."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


def add_embedding_routes(app: FastAPI, service: Service) -> None:
    """Add `/v1/embeddings`."""
    limits, collection = service.limits, service.collection

    @app.post(EMBEDDINGS, **described("search", EmbeddingAnswer, 400, 413))
    async def embeddings(body: EmbeddingRequest) -> Response:
        """Unit vectors of texts, as the index compares them; OpenAI's clients can call it."""
        texts = [body.input] if isinstance(body.input, str) else body.input
        if not 1 <= len(texts) <= limits.queries:
            detail = (
                f"input has {len(texts):,} texts; 1 to {limits.queries:,} are embedded at once."
            )
            raise ProblemError(413 if texts else 422, detail)
        if any(len(text) > limits.text for text in texts):
            raise ProblemError(422, f"A text has more than {limits.text:,} characters.")
        vectors = await service.read(lambda: collection.embed(texts))
        shown: list[Any] = vectors.tolist()
        if body.encoding_format == "base64":
            little_endian = vectors.astype("<f4")
            shown = [base64.b64encode(row.tobytes()).decode() for row in little_endian]
        words = sum(len(text.split()) for text in texts)
        return json_response(
            {
                "object": "list",
                "data": [
                    {"object": "embedding", "index": number, "embedding": vector}
                    for number, vector in enumerate(shown)
                ],
                "model": collection.title,
                "usage": {"prompt_tokens": words, "total_tokens": words},
            }
        )
