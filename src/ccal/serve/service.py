"""What the routes share: queries through the batcher, uploads decoded, answers as JSON."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from math import isfinite
from typing import Any, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.responses import Response

from ccal.errors import InputError
from ccal.media_types import AUDIO, HEAD, IMAGES, PDF, sniff
from ccal.serve.batching import Batcher
from ccal.serve.collection import Answer, Collection, Entry, Query, SheetAnswer, encode
from ccal.serve.guard import Limits
from ccal.serve.memory import Lease, Memory
from ccal.serve.metrics import Metrics
from ccal.serve.problems import ProblemError, is_users_error
from ccal.serve.uploads import decode_audio, decode_image, memory_for, read_sheet

Value = TypeVar("Value")
_READERS = 8
_TYPES = {"image": IMAGES, "sheet": (*IMAGES, PDF), "audio": AUDIO}


class Service:
    """A collection with its limits, and the one thread that answers its queries."""

    def __init__(
        self, collection: Collection, limits: Limits, metrics: Metrics, *, has_token: bool
    ) -> None:
        self.collection, self.limits = collection, limits
        self.metrics, self.has_token = metrics, has_token
        self.batcher: Batcher[Query, Answer] = Batcher(
            # Looked up for each batch: a pending collection has no `answer` at first.
            lambda queries: collection.answer(queries),
            batch=limits.batch,
            window=limits.window,
            waiting=limits.waiting,
            observe=metrics.batch,
        )
        self._readers: CapacityLimiter | None = None
        self._decoders: CapacityLimiter | None = None
        self.memory = Memory(limits.memory)

    async def read(self, function: Callable[..., Value], *arguments: Any) -> Value:
        """Call a function that reads files or the index in a thread, a few at a time."""
        if self._readers is None:  # a limiter belongs to the event loop it is made in
            self._readers = CapacityLimiter(_READERS)
        return await run_sync(function, *arguments, limiter=self._readers)

    async def search(self, query: Query) -> Answer:
        """The answer to a query, in one batch with other requests."""
        self._check_k(query)
        resolve = self.collection.resolve
        # An item is read from the index; all else is checked at once.
        resolved = await self.read(resolve, query) if query.kind == "item" else resolve(query)
        (answer,) = await self.batcher.ask([resolved])
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def search_many(self, queries: Sequence[Query]) -> list[Answer | str]:
        """Answers in order, a sentence for a query without one; raises if none has an answer."""
        self._check_k(queries[0])
        resolved = [self._resolved(query) for query in queries]
        answers = iter(await self.batcher.ask([one for one in resolved if isinstance(one, Query)]))
        found = [next(answers) if isinstance(one, Query) else one for one in resolved]
        errors = [one for one in found if isinstance(one, Exception)]
        ours = [error for error in errors if not is_users_error(error)]
        if ours or len(errors) == len(found):
            raise (ours or errors)[0]
        return [str(one) if isinstance(one, Exception) else one for one in found]

    @asynccontextmanager
    async def decoded(self, content: bytes, wanted: str | None) -> AsyncIterator[tuple[str, Any]]:
        """The kind of query that a file is, `wanted` if there are several, and its content.

        What decoding takes, and then the content until it is not needed any more, is counted as
        memory.
        """
        type, accepted = sniff(content[:HEAD]), self.accepts()
        kinds = [kind for kind, types in accepted.items() if type in types]
        if type is None or not kinds or (wanted is not None and wanted not in kinds):
            names = ", ".join(sorted({name for types in accepted.values() for name in types}))
            if not names:
                raise ProblemError(
                    415,
                    "This model was trained on arrays of features and reads no files; search with "
                    "words if it takes them, or begin with an item.",
                )
            given = type or "of no known type"
            raise ProblemError(415, f"The file is {given}; accepted are {names}.")
        kind = wanted or kinds[0]
        if self._decoders is None:
            self._decoders = CapacityLimiter(self.limits.decoding)
        lease = Lease(self.memory)
        try:
            data = await run_sync(self._decode, content, kind, type, lease, limiter=self._decoders)
            yield kind, data
        finally:
            lease.close()

    def _decode(self, content: bytes, kind: str, type: str, lease: Lease) -> Any:
        lease.begin(memory_for(content, type, kind, self.limits), self.limits.timeout / 2)
        kept = 0
        try:
            if kind == "audio":
                samples, rate = decode_audio(content, self.limits)
                kept = samples.nbytes
                return samples, rate
            if kind == "sheet":
                sheet = read_sheet(content)
                kept = sheet.nbytes
                return sheet
            picture = decode_image(content, self.limits)
            kept = 4 * picture.width * picture.height
            return picture
        finally:
            lease.end(kept)

    def accepts(self) -> dict[str, list[str]]:
        """Types of files for each kind of query."""
        return {kind: list(_TYPES.get(kind, ())) for kind in self.collection.queries()}

    def _check_k(self, query: Query) -> None:
        if query.k > self.limits.k:
            raise ProblemError(422, f"k must be {self.limits.k} or less, got {query.k}.")

    def _resolved(self, query: Query) -> Query | InputError:
        try:
            return self.collection.resolve(query)
        except InputError as error:
            return error


def json_response(content: Any) -> Response:
    """Plain values as an answer."""
    return text_response(encode(content))


def text_response(text: str) -> Response:
    """A text that is JSON already as an answer."""
    return Response(text.encode(), media_type="application/json")


def entry_text(entry: Entry) -> str:
    """An item as JSON: what its card has rendered, and what this answer adds."""
    card, score, chance, match, why, place = entry
    if score is not None and not isfinite(score):
        raise ValueError(f"a score of {score}")
    scored = f'"score":{"null" if score is None else repr(score)}'
    if chance is None:
        judged = '"chance":null,"match":null'
    else:
        judged = f'"chance":{chance!r},"match":"{match}"'
    if why is None and place is None:
        return f'{card.opening},{scored},{judged},"why":null,"place":null}}'
    return f'{card.opening},{scored},{judged},"why":{encode(why)},"place":{encode(place)}}}'


def entries_text(entries: Iterable[Entry]) -> str:
    """Items as JSON, in their order."""
    return f"[{','.join(map(entry_text, entries))}]"


def answer_text(answer: Answer, seconds: float) -> str:
    """The results, with the query as the collection understood it."""
    query = answer.query
    query_json = encode(
        {
            "kind": query.kind,
            "modality": query.modality,
            "text": query.data if query.kind == "text" else None,
            "words": answer.words,
        }
    )
    item = "null" if answer.item is None else entry_text(answer.item)
    return (
        f'{{"query":{query_json[:-1]},"item":{item}}},"within":{encode(query.to)},'
        f'"took_ms":{1000 * seconds:.3f},"results":{entries_text(answer.results)},'
        f'"sheet":{_sheet_text(answer.sheet)}}}'
    )


def _sheet_text(sheet: SheetAnswer | None) -> str:
    """The pages that were sent, and the tunes on them."""
    if sheet is None:
        return "null"
    tunes = [
        f'{{"lines":{encode(lines)},"results":{entries_text(results)}}}'
        for lines, results in sheet.tunes
    ]
    return f'{{"pages":{encode(sheet.pages)},"tunes":[{",".join(tunes)}]}}'


def answers_text(texts: Sequence[str], answers: Sequence[Answer | str], seconds: float) -> str:
    """The results of each text, or the sentence that says why it has none."""
    to = next(answer.query.to for answer in answers if isinstance(answer, Answer))
    parts = []
    for text, answer in zip(texts, answers, strict=True):
        if isinstance(answer, str):
            results, problem = "[]", encode(answer)
        else:
            results, problem = entries_text(answer.results), "null"
        parts.append(f'{{"text":{encode(text)},"results":{results},"problem":{problem}}}')
    took = f"{1000 * seconds:.3f}"
    return f'{{"within":{encode(to)},"took_ms":{took},"answers":[{",".join(parts)}]}}'
