"""What the routes share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from ccal.errors import InputError
from ccal.serve.batching import Batcher, BusyError, ClosedError
from ccal.serve.collection import Answer, Collection, Query, Question
from ccal.serve.limits import Limits
from ccal.serve.metrics import Metrics
from ccal.serve.problems import ProblemError, is_theirs
from ccal.serve.sniffing import AUDIO, IMAGES, sniff
from ccal.serve.uploads import decode_audio, decode_image

__all__ = ["Service"]

Value = TypeVar("Value")
_THREADS = 8


class Service:
    """A collection and how it is asked: checked at the door, in a batch, within the limits."""

    def __init__(
        self,
        collection: Collection,
        batcher: Batcher[Question, Answer],
        limits: Limits,
        metrics: Metrics,
        *,
        has_token: bool = False,
    ) -> None:
        self.collection, self.batcher, self.limits = collection, batcher, limits
        self.metrics, self.has_token = metrics, has_token
        self._lookups: CapacityLimiter | None = None
        self._decoders: CapacityLimiter | None = None

    async def look(self, function: Callable[..., Value], *arguments: Any) -> Value:
        """Run what reads files or the index in a thread, a few at a time."""
        if self._lookups is None:  # made inside of a loop
            self._lookups = CapacityLimiter(_THREADS)
        return await run_sync(lambda: function(*arguments), limiter=self._lookups)

    async def search(self, query: Query) -> Answer:
        """Ask the collection, together with whoever asks at the same time."""
        self._check_k(query)
        ask = self.collection.ask
        # Only what is an item has to be looked for.
        question = await self.look(ask, query) if query.kind == "item" else ask(query)
        (answer,) = await self._answers([question])
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def search_many(self, queries: Sequence[Query]) -> list[Answer | str]:
        """Answers in order, or why there is none; if there is no answer at all, that is raised."""
        self._check_k(queries[0])
        asked = [self._asked(query) for query in queries]
        answers = iter(await self._answers([one for one in asked if isinstance(one, Question)]))
        found = [next(answers) if isinstance(one, Question) else one for one in asked]
        refusals = [one for one in found if isinstance(one, Exception)]
        ours = [error for error in refusals if not is_theirs(error)]
        if ours or len(refusals) == len(found):
            raise (ours or refusals)[0]
        return [str(one) if isinstance(one, Exception) else one for one in found]

    async def decode(self, content: bytes, wanted: str | None) -> tuple[str, Any]:
        """The kind of a file that was sent, and what is in it."""
        type, known = sniff(content[:64]), self.collection.queries()
        kinds = [kind for kind in known if type in self.accepts()[kind]] if known else []
        if wanted is not None and wanted not in kinds:
            kinds = []
        if not kinds:
            accepted = sorted({name for types in self.accepts().values() for name in types})
            raise ProblemError(
                415,
                f"The file is {type or 'of no known type'}; accepted are "
                f"{', '.join(accepted) or 'no files'}.",
            )
        kind = wanted or kinds[0]
        if self._decoders is None:
            self._decoders = CapacityLimiter(self.limits.decoding)
        return kind, await run_sync(lambda: self._decoded(kind, content), limiter=self._decoders)

    def accepts(self) -> dict[str, list[str]]:
        """Types of files that each kind of query can be."""
        types = {"image": IMAGES, "sheet": IMAGES, "audio": AUDIO}
        return {kind: list(types.get(kind, ())) for kind in self.collection.queries()}

    def _check_k(self, query: Query) -> None:
        if query.k > self.limits.k:
            raise ProblemError(422, f"k must be {self.limits.k} or less, got {query.k}.")

    def _asked(self, query: Query) -> Question | InputError:
        try:
            return self.collection.ask(query)
        except InputError as error:
            return error

    async def _answers(self, questions: Sequence[Question]) -> list[Answer | Exception]:
        try:
            return await self.batcher.ask(questions)
        except (BusyError, ClosedError) as error:
            raise ProblemError(503, str(error), {"Retry-After": "1"}) from error

    def _decoded(self, kind: str, content: bytes) -> Any:
        if not content:
            raise InputError("The file is empty.")
        if kind == "audio":
            return decode_audio(content, self.limits)
        return decode_image(content, self.limits, whole=kind == "sheet")
