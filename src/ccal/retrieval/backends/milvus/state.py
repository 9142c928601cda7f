"""What a Milvus collection holds as an index: the one place where a change becomes true.

Milvus has no transactions. So every row says by which change it was written, and the collection has
a property, the state, that says up to which change rows count. Writing the property is the commit:
one step in Milvus' own metadata, which all who read see at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ccal.retrieval.items import Binding

__all__ = ["PROPERTY", "State"]

PROPERTY = "ccal.state"
_KEPT = 64


@dataclass(frozen=True)
class State:
    """The commit record.

    Attributes:
        binding: the model it belongs to, as JSON.
        collection: its name, since readers ask by an alias.
        change: rows of later changes do not count; the writer's generation in the upper 32 bits.
        void: spans of earlier changes that do not count either: those of writers that died.
        numbered: the highest number an item was given.
        counts: items of each modality.
        buried: notes of rows that are removed but still there.
        swept: rows removed up to this change may be gone.
        cells: of the index for approximate search, 0 without one.
        probes: how many of them a search looks into; 0, while it is not known, for all.
    """

    binding: str
    collection: str
    change: int
    void: tuple[tuple[int, int], ...] = ()
    numbered: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    buried: int = 0
    swept: int = 0
    cells: int = 0
    probes: int = 0

    @property
    def generation(self) -> int:
        """How many writers there were."""
        return self.change >> 32

    @property
    def bound(self) -> Binding:
        """The binding."""
        return Binding.from_json(self.binding)

    def to_json(self) -> str:
        """As the value of the property."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> State:
        """Back from `to_json`."""
        values = json.loads(text)
        return cls(**{**values, "void": tuple(map(tuple, values["void"]))})

    def counting(self, more: Mapping[str, int]) -> dict[str, int]:
        """Counts after a change."""
        names = {**self.counts, **more}
        return {name: self.counts.get(name, 0) + more.get(name, 0) for name in names}

    def voiding(self, first: int, last: int, **values: Any) -> State:
        """The state in which a span of changes does not count.

        Only the latest spans are kept: rows of earlier ones have been deleted many times over, and
        no request is under way for so long.
        """
        return replace(self, void=(*self.void, (first, last))[-_KEPT:], **values)

    def counts_change(self, born: int) -> bool:
        """Whether rows of a change count.

        >>> state = State("", "", change=9, void=((3, 5),))
        >>> [born for born in range(12) if state.counts_change(born)]
        [0, 1, 2, 6, 7, 8, 9]
        """
        return born <= self.change and not any(a <= born <= b for a, b in self.void)

    def visible(self) -> str:
        """The same as a condition of Milvus."""
        spans = [f" and not (born >= {a} and born <= {b})" for a, b in self.void]
        return f"born <= {self.change}{''.join(spans)}"
