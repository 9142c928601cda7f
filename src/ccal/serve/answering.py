"""Answers as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from ccal.serve.collection import Answer, Entry
from ccal.serve.evaluation import Evaluation

__all__ = ["answer_json", "entry_json", "evaluation_json", "json_response", "many_json"]

_MEDIA = ("image", "thumbnail", "audio", "staff")
_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
).encode
_PLOT = "/api/evaluation/plot?name="


def json_response(content: Any, status: int = 200) -> Response:
    """Plain values as an answer; NaN would be a mistake of ours and is not sent."""
    return Response(_encode(content).encode(), status, media_type="application/json")


def entry_json(entry: Entry) -> dict[str, Any]:
    """An item, with the addresses of its media."""
    media: dict[str, str | None] = dict.fromkeys(_MEDIA)
    if entry.media:
        id = quote(entry.id, safe="")
        media |= {name: f"/media/{name}?id={id}" for name in entry.media}
    return {
        "id": entry.id,
        "modality": entry.modality,
        "kind": entry.kind,
        "score": entry.score,
        "title": entry.title,
        "text": entry.text,
        "metadata": entry.metadata,
        "media": media,
        "why": entry.why,
        "place": entry.place,
    }


def answer_json(answer: Answer, seconds: float) -> dict[str, Any]:
    """What was found, with the query as it was understood."""
    question = answer.question
    return {
        "query": {
            "kind": question.kind,
            "modality": question.modality,
            "text": question.data if question.kind == "text" else None,
            "words": answer.words,
            "item": None if answer.item is None else entry_json(answer.item),
        },
        "within": question.within,
        "took_ms": round(1000 * seconds, 3),
        "results": [entry_json(entry) for entry in answer.results],
    }


def many_json(
    texts: Sequence[str], answers: Sequence[Answer | str], seconds: float
) -> dict[str, Any]:
    """What each of many queries found, or the sentence that says why it cannot be answered."""
    within = next(answer.question.within for answer in answers if isinstance(answer, Answer))
    return {
        "within": within,
        "took_ms": round(1000 * seconds, 3),
        "answers": [
            {"text": text, "results": [], "problem": answer}
            if isinstance(answer, str)
            else {
                "text": text,
                "results": [entry_json(entry) for entry in answer.results],
                "problem": None,
            }
            for text, answer in zip(texts, answers, strict=True)
        ],
    }


def evaluation_json(evaluation: Evaluation) -> dict[str, Any]:
    """What is known of a model's quality, with the addresses of its plots."""
    content = evaluation.as_dict()
    for plot in content["plots"]:
        for kind in ("svg", "png"):
            plot[kind] = f"{_PLOT}{plot['name']}&type={kind}"
    content["report"] = "/api/evaluation/report" if content["report"] else None
    return content
