"""A batch of questions to an index: embedded together, searched together, explained one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ccal.model import DualEncoder
from ccal.retrieval.backends.base import Vectors
from ccal.retrieval.embedding import embed
from ccal.serve.collection import Answer, Entry, Question
from ccal.serve.explaining import Word, shares, split_words, without, word_weights
from ccal.serve.shelf import Shelf

__all__ = ["Answering"]


class Answering:
    """Answers questions by a model and what is on the shelf.

    `dims` are the leading dimensions that the index keeps, None for all; `knows` says whether the
    model knows a word.
    """

    def __init__(
        self, shelf: Shelf, model: DualEncoder, dims: int | None, knows: Callable[[str], bool]
    ) -> None:
        self._shelf, self._model, self._dims, self._knows = shelf, model, dims, knows

    def answer(self, questions: Sequence[Question]) -> list[Answer | Exception]:
        """Embed by modality and search by place, as few times as the questions allow."""
        vectors = self._vectors(questions)
        replies: list[Any] = list(vectors)
        groups: dict[tuple[str, str], list[int]] = {}
        for place, (question, rows) in enumerate(zip(questions, vectors, strict=True)):
            if not isinstance(rows, Exception):
                groups.setdefault((question.within, repr(question.where)), []).append(place)
        for places in groups.values():
            asked = [questions[place] for place in places]
            found = _tried(self._shelf.search, asked, np.stack([vectors[p][0] for p in places]))
            for number, place in enumerate(places):
                replies[place] = (
                    found
                    if isinstance(found, Exception)
                    else _tried(self._explain, questions[place], vectors[place], found[number])
                )
        return replies

    def words(self, text: str) -> list[Word]:
        """The words of a query."""
        return split_words(text, self._knows)

    def embed(self, modality: str, items: list[Any]) -> Vectors:
        """Unit vectors (n, d) of raw items."""
        return embed(self._model, modality, items, self._dims)

    def _vectors(self, questions: Sequence[Question]) -> list[Any]:
        """For each question its vector, and one without each of its words, (1 + words, d)."""
        found: list[Any] = [None] * len(questions)
        wanted: dict[str, list[tuple[int, list[Any]]]] = {}
        for place, question in enumerate(questions):
            if question.kind == "item":
                found[place] = _tried(self._shelf.vectors, [question.data])
                continue
            data = [question.data]
            if question.explain and question.kind == "text":
                data += without(question.data, self.words(question.data))
            wanted.setdefault(question.modality, []).append((place, data))
        for modality, parts in wanted.items():
            whole = _tried(self.embed, modality, [item for _, data in parts for item in data])
            start = 0
            for place, data in parts:
                stop = start + len(data)
                # One that cannot be embedded does not spoil the others.
                found[place] = (
                    _tried(self.embed, modality, data)
                    if isinstance(whole, Exception)
                    else whole[start:stop]
                )
                start = stop
        return found

    def _explain(self, question: Question, rows: Vectors, found: list[Entry]) -> Answer:
        shelf, item = self._shelf, None
        if question.kind == "item":
            item = Entry(shelf.card(shelf.item(question.data)))
        if not question.explain:
            return Answer(question, found, item=item)
        stored = shelf.vectors([entry.card.id for entry in found])
        why = shares(self._model, rows[0], stored)
        words = None
        if question.kind == "text":
            known = self.words(question.data)
            cosines = rows.astype(np.float64) @ stored.astype(np.float64).T
            lost = cosines[:1] - cosines[1:]
            why = [
                {**reason, "words": word_weights(known, lost[:, place].tolist())}
                for place, reason in enumerate(why)
            ]
            words = word_weights(known, lost.mean(1).tolist()) if found else None
        explained = [entry._replace(why=reason) for entry, reason in zip(found, why, strict=True)]
        return Answer(question, explained, words=words, item=item)


def _tried(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result, or the exception in its place."""
    try:
        return function(*arguments)
    except Exception as error:
        return error
