"""A connection to Milvus: its requests, with errors that name the place."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ccal.errors import CcalError, InputError
from ccal.optional import require
from ccal.retrieval.backends.milvus.location import Address
from ccal.retrieval.backends.milvus.state import PROPERTY, State

__all__ = ["LIMIT", "GoneError", "Server"]

LIMIT = 16_384
"""Milvus gives no more rows than this to one request."""

_TIMEOUT = 60.0
# What is older than Milvus' bound of staleness, five seconds, is seen without waiting for its log.
_SETTLED = 10.0
_GONE = {100, 101, 503, 700}  # no such collection; not loaded; a segment lacks; no index


class GoneError(CcalError):
    """A collection is not there, or not yet; whoever reads asks for the state again."""


class Server:
    """Requests for one index, of which any number of threads may make some."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.pymilvus = require("pymilvus", extra="milvus", purpose="An index in Milvus")
        # It prints every refusal with a traceback; ours are told by exceptions.
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
        self._seen: tuple[int, float] = (-1, 0.0)
        self.graves: tuple[int, set[int]] = (-1, set())
        """Rows that are removed and still there, as of a change."""
        self._guard = threading.Lock()
        with self._named_errors():
            self.client = self.pymilvus.MilvusClient(
                address.uri, token=address.token, db_name=address.database, timeout=_TIMEOUT
            )

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """A request by the name of the client's method."""
        with self._named_errors():
            return getattr(self.client, method)(*arguments, **options)

    def state(self) -> State | None:
        """The state of the index that the alias points to; None if there is no such alias."""
        name = self.address.name
        try:
            found = self.call("describe_collection", name)
        except GoneError:
            return None
        text = found["properties"].get(PROPERTY)
        if text is None:
            raise InputError(
                f"{self.address.shown} is no index: there is a collection {name} of something else."
            )
        state = State.from_json(text)
        with self._guard:
            if self._seen[0] != state.change:
                self._seen = (state.change, time.monotonic())
        return state

    def commit(self, state: State) -> None:
        """Make a state true."""
        self.call("alter_collection_properties", state.collection, {PROPERTY: state.to_json()})

    def consistency(self, state: State) -> str:
        """What it takes to see all rows of a state, whichever replica answers."""
        with self._guard:
            change, since = self._seen
        settled = change == state.change and time.monotonic() - since > _SETTLED
        return "Bounded" if settled else "Strong"

    def query(
        self, state: State, condition: str, fields: Sequence[str], partitions: Sequence[str]
    ) -> list[dict[str, Any]]:
        """All rows that meet a condition, by rising row numbers."""
        rows: list[dict[str, Any]] = []
        level, last = self.consistency(state), -1
        while True:
            page = self.call(
                "query",
                state.collection,
                filter=f"row > {last} and {condition}",
                output_fields=["row", *fields],
                partition_names=list(partitions),
                limit=LIMIT,
                consistency_level=level,
            )
            rows += sorted(page, key=lambda row: int(row["row"]))
            if len(page) < LIMIT:
                return rows
            last = int(rows[-1]["row"])

    def close(self) -> None:
        """Close the connection."""
        self.client.close()

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """What Milvus says, with the location."""
        try:
            yield
        except self.pymilvus.MilvusException as error:
            text = " ".join(str(error.message).split())
            kind = GoneError if error.code in _GONE else CcalError
            raise kind(f"{self.address.shown}: {text}.") from error
