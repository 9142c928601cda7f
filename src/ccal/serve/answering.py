"""Answers as JSON.

What is written of an item is the same in every answer, so its card keeps it, and answers are put
together of such texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any

from starlette.responses import Response

from ccal.serve.card import encode
from ccal.serve.collection import Answer, Entry
from ccal.serve.evaluation import Evaluation

__all__ = [
    "answer_text",
    "entries_text",
    "entry_text",
    "evaluation_json",
    "json_response",
    "many_text",
    "text_response",
]

_PLOT = "/api/evaluation/plot?name="


def json_response(content: Any, status: int = 200) -> Response:
    """Plain values as an answer; NaN would be a mistake of ours and is not sent."""
    return text_response(encode(content), status)


def text_response(text: str, status: int = 200) -> Response:
    """What is JSON already as an answer."""
    return Response(text.encode(), status, media_type="application/json")


def entry_text(entry: Entry) -> str:
    """An item, with the addresses of its media."""
    card, score, why, place = entry
    number = "null" if score is None else _number(score)
    if why is None and place is None:
        return f'{card.opening},"score":{number},"why":null,"place":null}}'
    rest = f'"why":{encode(why)},"place":{encode(place)}'
    return f'{card.opening},"score":{number},{rest}}}'


def entries_text(entries: Iterable[Entry]) -> str:
    """Items in their order."""
    return f"[{','.join(map(entry_text, entries))}]"


def answer_text(answer: Answer, seconds: float) -> str:
    """What was found, with the query as it was understood."""
    question = answer.question
    query = encode(
        {
            "kind": question.kind,
            "modality": question.modality,
            "text": question.data if question.kind == "text" else None,
            "words": answer.words,
        }
    )
    item = "null" if answer.item is None else entry_text(answer.item)
    return (
        f'{{"query":{query[:-1]},"item":{item}}},"within":{encode(question.within)},'
        f'"took_ms":{1000 * seconds:.3f},"results":{entries_text(answer.results)}}}'
    )


def many_text(texts: Sequence[str], answers: Sequence[Answer | str], seconds: float) -> str:
    """What each of many queries found, or the sentence that says why it cannot be answered."""
    within = next(answer.question.within for answer in answers if isinstance(answer, Answer))
    parts = []
    for text, answer in zip(texts, answers, strict=True):
        results, problem = "[]", "null"
        if isinstance(answer, str):
            problem = encode(answer)
        else:
            results = entries_text(answer.results)
        parts.append(f'{{"text":{encode(text)},"results":{results},"problem":{problem}}}')
    return (
        f'{{"within":{encode(within)},"took_ms":{1000 * seconds:.3f},'
        f'"answers":[{",".join(parts)}]}}'
    )


def evaluation_json(evaluation: Evaluation) -> dict[str, Any]:
    """What is known of a model's quality, with the addresses of its plots."""
    content = evaluation.as_dict()
    for plot in content["plots"]:
        for kind in ("svg", "png"):
            plot[kind] = f"{_PLOT}{plot['name']}&type={kind}"
    content["report"] = "/api/evaluation/report" if content["report"] else None
    return content


def _number(value: float) -> str:
    if not isfinite(value):
        raise ValueError(f"a score of {value}")
    return repr(value)
