"""Search in one state of an index in Milvus.

Milvus chooses candidates by its own float32 cosines; those that are returned are ordered by cosines
in float64. Where something outside the candidates could be as good, more are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ccal.errors import InputError
from ccal.retrieval.answers import best, scored
from ccal.retrieval.backends.base import Vectors
from ccal.retrieval.backends.milvus.facets import meets, milvus_condition
from ccal.retrieval.backends.milvus.rows import FACTS, buried, chunks, facts, partitions
from ccal.retrieval.backends.milvus.server import LIMIT, Server
from ccal.retrieval.backends.milvus.state import State
from ccal.retrieval.filters import Condition
from ccal.retrieval.items import Hit

__all__ = ["Search"]

_SPARE = 16
_BYTES = 32 << 20


@dataclass(frozen=True)
class Search:
    """What is asked: the k nearest in some modalities, under conditions."""

    server: Server
    state: State
    modalities: Sequence[str]
    k: int
    where: Sequence[Condition]
    exact: bool

    def run(self, queries: Vectors) -> list[list[Hit]]:
        """Hits of queries (q, d)."""
        if self.k > LIMIT:
            raise InputError(f"k must be {LIMIT:,} at most, which is Milvus' limit, got {self.k}.")
        gone = buried(self.server, self.state)
        # A filter costs Milvus a look at every row. Without one a row that does not count can only
        # take the place of one that does, which shows.
        strict = bool(self.where or gone)
        answers: dict[int, list[Hit]] = {}
        waiting = list(range(len(queries)))
        limit, probes = min(self.k + _SPARE, LIMIT), self._probes()
        while waiting:
            open_ones, all_count = [], True
            for part in chunks(waiting, max(1, _BYTES // (limit * (4 * queries.shape[1] + 256)))):
                condition = self._condition(gone) if strict else ""
                found = self._ask(queries[list(part)], condition, limit, probes)
                for number, rows in zip(part, found, strict=True):
                    all_count &= all(self._counts(row, gone) for row in rows)
                    hits, sure = self._judge(queries[number], rows, limit, probes)
                    answers[number] = hits
                    if not sure:
                        open_ones.append(number)
            if not all_count:
                strict = True
                continue
            waiting = open_ones
            if probes < self.state.cells:
                probes = self.state.cells
            elif limit == LIMIT:
                break  # more equal vectors than Milvus gives: which of them is its choice
            else:
                limit = min(4 * limit, LIMIT)
        return [answers[number] for number in range(len(queries))]

    def _probes(self) -> int:
        """How many cells to look into: with a filter all, since few may hold what it leaves."""
        every = self.exact or self.where or not self.state.probes
        return self.state.cells if every else self.state.probes

    def _condition(self, gone: set[int]) -> str:
        tests = [self.state.visible(), *map(milvus_condition, self.where)]
        if gone:
            tests.append(f"row not in {sorted(gone)}")
        return " and ".join(tests)

    def _counts(self, row: dict[str, Any], gone: set[int]) -> bool:
        return self.state.counts_change(int(row["born"])) and int(row["row"]) not in gone

    def _ask(
        self, queries: Vectors, condition: str, limit: int, probes: int
    ) -> list[list[dict[str, Any]]]:
        found = self.server.call(
            "search",
            self.state.collection,
            data=list(queries),
            filter=condition,
            limit=limit,
            output_fields=["row", "born", *FACTS, "vector"],
            partition_names=partitions(self.state.bound, self.modalities),
            search_params={"params": {"nprobe": probes} if probes else {}},
            consistency_level=self.server.consistency(self.state),
        )
        return [[{**hit["entity"], "near": hit["distance"]} for hit in hits] for hits in found]

    def _judge(
        self, query: Any, rows: list[dict[str, Any]], limit: int, probes: int
    ) -> tuple[list[Hit], bool]:
        """Hits of one query, and whether nothing outside the candidates could be among them."""
        fitting = [row for row in rows if meets(row["metadata"], self.where)]
        hits = best(
            scored(query, [facts(row) for row in fitting], [row["vector"] for row in fitting]),
            self.k,
        )
        if len(rows) < limit:
            held = sum(self.state.counts.get(name, 0) for name in self.modalities)
            complete = probes == self.state.cells or len(rows) >= min(limit, held)
            return hits, complete or len(hits) >= self.k
        if len(hits) < self.k:
            return hits, False
        slack = 1e-6 + len(query) * 6e-8
        return hits, bool(rows[-1]["near"] + slack < hits[-1].score)
