"""What the routes share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from ccal.errors import InputError
from ccal.serve.answering import answer_json
from ccal.serve.batching import Batcher, BusyError, ClosedError
from ccal.serve.collection import Answer, Collection, Query, Question
from ccal.serve.limits import Limits
from ccal.serve.metrics import Metrics
from ccal.serve.problems import ProblemError
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

    async def search(self, query: Query, started: float | None = None) -> dict[str, Any]:
        """Ask the collection, together with whoever asks at the same time."""
        started = time.perf_counter() if started is None else started
        if query.k > self.limits.k:
            raise ProblemError(422, f"k must be {self.limits.k} or less, got {query.k}.")
        ask = self.collection.ask
        # Only what is an item has to be looked for.
        question = await self.look(ask, query) if query.kind == "item" else ask(query)
        try:
            answer = await self.batcher.ask(question)
        except (BusyError, ClosedError) as error:
            raise ProblemError(503, str(error), {"Retry-After": "1"}) from error
        return answer_json(answer, time.perf_counter() - started)

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

    def _decoded(self, kind: str, content: bytes) -> Any:
        if not content:
            raise InputError("The file is empty.")
        if kind == "audio":
            return decode_audio(content, self.limits)
        return decode_image(content, self.limits, whole=kind == "sheet")
