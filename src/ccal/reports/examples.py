"""Queries with what they found: numbers say how often, examples say how."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from ccal.errors import InputError
from ccal.evaluation import Ties, two_way_ranks
from ccal.evaluation.inputs import Array, group_rows, unit_pair

__all__ = ["Example", "Hit", "Item", "Items", "Kind", "choose", "pick_examples", "shown"]

Item = str | Path
"""How a thing is shown: a text, or the path of an image file."""

Kind = Literal["best", "typical", "worst"]


class Items(Protocol):
    """What can be shown of the rows of one modality: a list, or `Rows` of a data set."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


@dataclass(frozen=True)
class Hit:
    """One thing that was found: its `rank` from 1, its cosine, and whether it is a counterpart.

    `note` is what else to say of it, such as its class.
    """

    item: Item
    rank: int
    score: float
    right: bool
    note: str = ""


@dataclass(frozen=True)
class Example:
    """A query, what came first, and its counterpart.

    `rank` is that of the counterpart by the rules of `two_way_ranks`; `counterpart` is the one of
    highest score if there are several. `hits` are in the order of their scores. `note` is to be
    said of the query in place of that rank. `strips` are pictures much wider than high, such as
    lines of music, and stand below each other.
    """

    direction: str
    kind: Kind
    query: Item
    rank: int
    hits: tuple[Hit, ...]
    counterpart: Hit
    note: str = ""
    strips: bool = False


def pick_examples(
    x: Array,
    y: Array,
    *,
    x_items: Items | None = None,
    y_items: Items | None = None,
    groups: Array | None = None,
    ties: Ties = "optimistic",
    names: tuple[str, str] = ("x", "y"),
    each: int = 2,
    k: int = 5,
) -> list[Example]:
    """In each direction `each` best, typical and worst queries, with the `k` first they found.

    `x` (n, d), `y` (m, d), `groups` (m,) and `ties` are those of `two_way_ranks`. `x_items` (n) and
    `y_items` (m) say what the rows show: a `str` is a text, a `Path` an image file, and anything
    else, such as a row of an array, is named by its number. Queries are ordered by rank, then by
    the score of their counterpart: the same embeddings give the same examples, none twice.

    >>> picked = pick_examples(torch.eye(3), torch.eye(3), y_items=["a dog", "a cat", "a bird"],
    ...                        names=("image", "text"), each=1, k=1)
    >>> [(e.direction, e.kind, e.query, e.hits[0].item) for e in picked][:2]
    [('image -> text', 'best', 'row 0', 'a dog'), ('image -> text', 'typical', 'row 1', 'a cat')]
    """
    a, b = unit_pair(x, y)
    rows = group_rows(groups, a, b)
    if each < 1 or k < 1:
        raise InputError(f"each and k must be at least 1, got {each} and {k}.")
    for items, view, name in ((x_items, a, "x"), (y_items, b, "y")):
        if items is not None and len(items) != len(view):
            raise InputError(
                f"{name}_items must have one entry for each of the {len(view)} rows of {name}, "
                f"got {len(items)}."
            )
    x_ranks, y_ranks = two_way_ranks(a, b, groups=rows, ties=ties)
    scores = (a[rows] * b).sum(1)
    best = scores.new_full((len(a),), -2.0).scatter_reduce(0, rows, scores, "amax")
    one = _View(a, torch.arange(len(a), device=rows.device), x_items)
    other = _View(b, rows, y_items)
    forth = _Task(f"{names[0]} -> {names[1]}", one, other, x_ranks, best)
    back = _Task(f"{names[1]} -> {names[0]}", other, one, y_ranks, scores)
    tolerance = 8 * torch.finfo(scores.dtype).eps * (1 if ties == "optimistic" else -1)
    return [
        _search(task, kind, query, k, tolerance)
        for task in (forth, back)
        for kind, query in _best_and_worst(task.ranks, task.scores, each)
    ]


@dataclass(frozen=True)
class _View:
    """Unit rows (n, d) of one modality; rows of both that share a number in `pair` belong."""

    rows: Tensor
    pair: Tensor
    items: Items | None

    def show(self, row: int) -> Item:
        return shown(self.items, row, f"row {row}")


@dataclass(frozen=True)
class _Task:
    """One direction, with the rank and the score of the counterpart of each query."""

    name: str
    queries: _View
    candidates: _View
    ranks: Tensor
    scores: Tensor


def _search(task: _Task, kind: Kind, query: int, k: int, tolerance: float) -> Example:
    found = task.candidates.rows @ task.queries.rows[query]
    right = task.candidates.pair == task.queries.pair[query]
    # Ties fall in the list as they do in the ranks.
    order = (found + tolerance * right).sort(descending=True, stable=True).indices

    def hit(row: int, rank: int) -> Hit:
        return Hit(task.candidates.show(row), rank, float(found[row]), bool(right[row]))

    rank = int(task.ranks[query])
    return Example(
        direction=task.name,
        kind=kind,
        query=task.queries.show(query),
        rank=rank,
        hits=tuple(hit(row, place) for place, row in enumerate(order[:k].tolist(), 1)),
        counterpart=hit(int(order[right[order]][0]), rank),
    )


def _best_and_worst(ranks: Tensor, scores: Tensor, each: int) -> list[tuple[Kind, int]]:
    by_score = scores.sort(descending=True, stable=True).indices
    return choose(by_score[ranks[by_score].sort(stable=True).indices].tolist(), each)


def choose(order: list[int], each: int) -> list[tuple[Kind, int]]:
    """Of queries in the order of their success the first, the middle and the last, none twice.

    >>> choose([4, 0, 3, 1, 2], 1)
    [('best', 4), ('typical', 3), ('worst', 2)]
    """
    middle = max(0, (len(order) - each) // 2)
    chosen: dict[int, Kind] = {}
    plan: list[tuple[Kind, list[int]]] = [
        ("best", order[:each]),
        ("typical", order[middle : middle + each]),
        ("worst", order[::-1][:each]),
    ]
    for kind, queries in plan:
        for query in queries:
            chosen.setdefault(query, kind)
    return [(kind, query) for query, kind in chosen.items()]


def shown(items: Items | None, row: int, otherwise: str) -> Item:
    """How row `row` is shown: a text or a path as it is, anything else by a text of its own."""
    value = None if items is None else items[row]
    return value if isinstance(value, str | Path) else otherwise
