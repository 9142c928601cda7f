"""What can be served: an index or a library of tunes, behind one set of questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple, Protocol

from ccal.errors import CcalError, InputError
from ccal.serve.card import Card
from ccal.serve.evaluation import Evaluation

__all__ = [
    "Answer",
    "Collection",
    "Entry",
    "Media",
    "NotReadyError",
    "Query",
    "Question",
    "UnknownItemError",
]


class NotReadyError(CcalError):
    """The collection is still being made; `done` of `total` says how far it is, 0 of 0 nothing."""

    def __init__(self, what: str, done: int = 0, total: int = 0) -> None:
        how_far = f", {done:,} of {total:,}" if total else ""
        super().__init__(f"Getting ready: {what}{how_far}.")
        self.done, self.total = done, total


class UnknownItemError(InputError):
    """There is no such item, or it has nothing of this kind to show."""


@dataclass(frozen=True)
class Query:
    """What somebody looks for.

    `kind` is text, image, sheet, audio or item, `data` the words, the decoded picture, samples with
    their rate, or the id; `to` the modality to search in, if it matters.
    """

    kind: str
    data: Any
    to: str | None = None
    k: int = 10
    where: Mapping[str, Any] | None = None
    explain: bool = False


@dataclass(frozen=True)
class Question:
    """A query that was checked, on its way to a batch: its modality, and the one to search in."""

    kind: str
    modality: str
    data: Any
    within: str
    k: int
    where: Mapping[str, Any] = field(default_factory=dict)
    explain: bool = False


class Entry(NamedTuple):
    """An item that was found with a score, or just looked at. A tuple, since searches make many."""

    card: Card
    score: float | None = None
    why: Mapping[str, Any] | None = None
    place: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Answer:
    """What was found; `words` have their weights if the question was words to be explained."""

    question: Question
    results: Sequence[Entry]
    words: Sequence[Mapping[str, Any]] | None = None
    item: Entry | None = None


@dataclass(frozen=True)
class Media:
    """A picture or a sound to send, as bytes or as an open file."""

    content: bytes | BinaryIO
    type: str


class Collection(Protocol):
    """Items of two modalities that are asked for, looked at and listened to. Threads share it."""

    kind: str
    title: str

    def counts(self) -> dict[str, int]:
        """Items of each modality."""
        ...

    def check(self) -> None:
        """Raises `CcalError` if the collection cannot be read."""
        ...

    def info(self) -> dict[str, Any]:
        """Modalities, queries, examples and the model, as plain values for JSON."""
        ...

    def queries(self) -> Mapping[str, str]:
        """Kinds of queries (text, image, sheet, audio), each with the modality it is of."""
        ...

    def ask(self, query: Query) -> Question:
        """A question, checked: what cannot be answered is refused here."""
        ...

    def answer(self, questions: Sequence[Question]) -> list[Answer | Exception]:
        """Answers to a batch, in order; one that fails does not spoil the others."""
        ...

    def entries(
        self, modality: str | None, contains: str | None, offset: int, limit: int
    ) -> tuple[int, list[Entry]]:
        """How many items have all words of `contains` in their names, and some of them in order."""
        ...

    def entry(self, id: str) -> Entry:
        """One item; `UnknownItemError` if there is none."""
        ...

    def media(self, kind: str, id: str) -> Media:
        """Image, thumbnail, audio or staff of an item; `UnknownItemError` if it has none."""
        ...

    def points(self) -> dict[str, Any]:
        """A map of the space: items with two coordinates, as columns."""
        ...

    def evaluation(self) -> Evaluation | None:
        """What is known of the model's quality."""
        ...

    def warm(self) -> None:
        """Run everything once, so that the first who asks does not wait."""
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...
