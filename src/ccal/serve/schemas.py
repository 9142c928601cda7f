"""The shapes of requests and answers, for the OpenAPI description and for checking requests."""

import json
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

from ccal.columns import is_text


def _plain(text: str) -> str:
    """Text that can be encoded and stored."""
    if not is_text(text):
        raise ValueError("has characters that are no text")
    return text


Plain = Annotated[str, AfterValidator(_plain)]

# Examples for the description.
_TEXT = "two dogs in the snow"
_BUS: dict[str, JsonValue] = {"to": "image", "where": {"year": {">=": 1990}}}
_RESULT = json.loads(
    """{"id": "photos/1.jpg", "modality": "image", "kind": "image", "score": 0.4213,
    "chance": 0.62, "match": "strong", "title": "1.jpg", "text": null,
    "metadata": {"year": 1999}, "media": {
    "image": "/media/image?id=photos%2F1.jpg", "thumbnail": "/media/thumbnail?id=photos%2F1.jpg",
    "audio": null, "staff": null}, "counterparts": [{"id": "photos/1.jpg#1", "modality": "text",
    "kind": "text", "title": "Two dogs play.", "text": "Two dogs play.", "media": {"image": null,
    "thumbnail": null, "audio": null, "staff": null}}], "counterparts_total": 1, "why": null,
    "place": null}"""
)
_QUERY = json.loads(
    """{"kind": "text", "modality": "text", "text": "two dogs in the snow", "words": [
    {"word": "dogs", "start": 4, "end": 8, "known": true, "weight": 0.21}], "item": null}"""
)
_UNKNOWN = "None of these words is known to the model; try others."
_FOUND: list[JsonValue] = [
    {"text": _TEXT, "results": [_RESULT], "problem": None},
    {"text": "xyzzy", "results": [], "problem": _UNKNOWN},
]


def _examples(*examples: JsonValue) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": list(examples)})


class Problem(BaseModel):
    """What went wrong (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str = Field(description="One sentence for people.")
    done: int | None = Field(None, description="Steps done, while the collection is being built.")
    total: int | None = Field(None, description="Steps to do in all; 0 if that is not known yet.")


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Problems of a route, for its description."""
    content = {"application/problem+json": {"schema": Problem.model_json_schema()}}
    every = (*statuses, 422, 503)
    return {status: {"description": "A problem.", "content": content} for status in every}


def described(tag: str, answer: type[BaseModel], *statuses: int) -> dict[str, Any]:
    """The description of a route that answers with a model, or with one of these problems."""
    return {"tags": [tag], "response_model": answer, "responses": documented(*statuses)}


def takes(type: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The description of a route that reads the body of a request itself."""
    body = {"required": True, "content": {type: {"schema": schema}}}
    return {"openapi_extra": {"requestBody": body}}


class _Options(BaseModel):
    """What queries in words have in common."""

    model_config = ConfigDict(extra="forbid")

    k: int = Field(10, ge=1, description="Number of results of each query.")
    to: Plain | None = Field(None, description="Modality to search in; the other one by default.")
    where: dict[str, Any] | None = Field(
        None, description="Conditions on metadata: a value, a list of values, or a range."
    )


class SearchRequest(_Options):
    """A query in words."""

    model_config = _examples({"text": _TEXT, "k": 5}, {"text": "a red bus", **_BUS})

    text: Plain = Field(min_length=1, description="What to look for.")
    explain: bool = Field(False, description="Say why each result matches.")


class BatchRequest(_Options):
    """Many queries in words, with the same options."""

    model_config = _examples(
        {"texts": [_TEXT, "a red bus"], "k": 5}, {"texts": ["a red bus"], **_BUS}
    )

    texts: list[Annotated[Plain, Field(min_length=1)]] = Field(
        min_length=1, description="What to look for."
    )


class Word(BaseModel):
    """A word of the query, and what the score loses without it."""

    word: str
    start: int = Field(description="First character in the text, by code points from 0.")
    end: int
    known: bool = Field(description="Whether the model's vocabulary has it.")
    weight: float | None


class Share(BaseModel):
    """What one dimension adds to the score."""

    dimension: int = Field(description="From 1, the most correlated one if `canonical`.")
    end: int = Field(description="The dimension, negative if the query lies at its low end.")
    contribution: float
    correlation: float | None = Field(
        description="Of the two modalities: on held-out pairs if the run of the model is known, on "
        "training pairs of a model that ends in CCA otherwise."
    )
    words: list[str] = Field(description="Words of the query that it comes from, two at most.")


class Why(BaseModel):
    """Where a score comes from: contributions, rest and correction sum to it."""

    dimensions: list[Share]
    canonical: bool = Field(description="Whether dimensions are those of CCA.")
    others: int = Field(description="Dimensions that `rest` sums.")
    rest: float
    correction: float | None
    words: list[Word] | None


class Addresses(BaseModel):
    """Addresses of an item's pictures and sounds."""

    image: str | None = None
    thumbnail: str | None = None
    audio: str | None = None
    staff: str | None = None


class Place(BaseModel):
    """The part of a tune that matches."""

    columns: tuple[float, float]
    seconds: tuple[float, float]
    width: int = Field(description="Columns of the whole staff.")
    duration: float = Field(description="Seconds of the whole sound.")
    onsets: list[tuple[float, float]] = Field(
        description="Second and column at which each note of the whole tune begins."
    )
    path: list[tuple[float, float, float]] = Field(
        description="The alignment: position in the query, column and second of the tune."
    )


class Counterpart(BaseModel):
    """An item that belongs to another one, as a caption to its photo."""

    id: str
    modality: str
    kind: str = Field(description="How to show it: image, text, audio, sheet or array.")
    title: str
    text: str | None
    media: Addresses


class Result(Counterpart):
    """An item."""

    model_config = _examples(_RESULT)

    score: float | None = Field(description="The cosine of query and item.")
    chance: float | None = Field(
        description="The chance that the item is right, estimated on validation pairs of the model."
    )
    match: str | None = Field(description="The chance in a word: strong, fair or weak.")
    metadata: dict[str, Any]
    counterparts: list[Counterpart] = Field(
        description="Items that it belongs to by the pairs of the index, five at most."
    )
    counterparts_total: int = Field(description="How many there were in the pairs.")
    why: Why | None
    place: Place | None


class Asked(BaseModel):
    """The query as the server understood it."""

    kind: str
    modality: str
    text: str | None
    words: list[Word] | None
    item: Result | None


class Line(BaseModel):
    """A staff line that was found on a page."""

    page: int = Field(description="Number of the page, from 0.")
    number: int = Field(description="Number of the line on its page, from 0.")
    outline: list[tuple[float, float]] = Field(
        description="Corners around it, as shares (x, y) of the page's width and height."
    )


class SheetTune(BaseModel):
    """A tune on a sheet of music: its lines, and what it may be, the best first."""

    lines: list[Line]
    results: list[Result]


class Sheet(BaseModel):
    """A sheet of music that was sent."""

    pages: list[str] = Field(
        description="Small pictures of its pages, JPEG in base64, if `explain` asks for them."
    )
    tunes: list[SheetTune] = Field(description="From top to bottom.")


class SearchAnswer(BaseModel):
    """Results, the best first."""

    model_config = _examples(
        {"query": _QUERY, "within": "image", "took_ms": 3.2, "results": [_RESULT], "sheet": None}
    )

    query: Asked
    within: str
    took_ms: float
    results: list[Result]
    sheet: Sheet | None = Field(
        description="All tunes of a sheet of music that was sent; `results` are of that with most "
        "lines."
    )


class BatchResult(BaseModel):
    """Results of one query of many, or why it has none."""

    text: str
    results: list[Result]
    problem: str | None = Field(description="One sentence for people.")


class BatchAnswer(BaseModel):
    """Answers in the order of the queries, each with the best result first."""

    model_config = _examples({"within": "image", "took_ms": 5.1, "answers": _FOUND})

    within: str
    took_ms: float
    answers: list[BatchResult]


class ItemsAnswer(BaseModel):
    """Some of the items."""

    total: int
    offset: int
    items: list[Result]


class DimensionEnd(BaseModel):
    """Words and items at one end of a dimension."""

    end: int
    terms: list[str] = Field(description="Words that are typical of the texts there.")
    words: list[tuple[str, float]] = Field(
        description="Words of the training texts and their correlations with the dimension, those "
        "with the largest first; none if the run of the model is not known."
    )
    examples: list[Result] = Field(description="The outermost items.")


class DimensionsAnswer(BaseModel):
    """Ends of dimensions in the order of the request."""

    ends: list[DimensionEnd]


class Region(BaseModel):
    """A part of the map, named by the words that are typical of its texts."""

    level: int = Field(description="0 for large regions, 1 for smaller ones.")
    x: float
    y: float
    count: int
    terms: list[str]


class MapAnswer(BaseModel):
    """Points as columns: entry i of each list belongs to one item."""

    total: int
    projection: str = Field(description="pacmap, umap or pca; the first two keep neighbours.")
    pending: str | None = Field(description="A projection under way; ask again for it.")
    explained: list[float] = Field(description="Shares of the variance, if it is pca.")
    regions: list[Region]
    ids: list[str]
    modalities: list[str]
    kinds: list[str]
    labels: list[str]
    x: list[float]
    y: list[float]


class Info(BaseModel):
    """What is served."""

    kind: str
    title: str
    count: int
    modalities: list[dict[str, Any]]
    queries: list[dict[str, Any]]
    limits: dict[str, float]
    accepts: dict[str, list[str]]
    has: dict[str, bool]
    examples: dict[str, list[str]]
    model: dict[str, Any]
    version: str
    token: bool


class EvaluationAnswer(BaseModel):
    """Measures of the model on held-out pairs."""

    part: str | None
    directions: list[dict[str, Any]]
    facts: dict[str, str]
    correlations: dict[str, Any] | None
    reliability: list[dict[str, Any]] = Field(
        description="How many hits that a search calls strong, fair or weak were right."
    )
    warnings: list[str]
    plots: list[dict[str, str]]
    report: str | None


class Status(BaseModel):
    """State of the server."""

    status: str
