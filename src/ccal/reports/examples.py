"""Queries with their hits: measures say how often a search succeeds, examples show how."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from ccal.bounds import Whole, check_all
from ccal.errors import InputError
from ccal.evaluation import ClassReport, Ties, class_means, two_way_ranks
from ccal.evaluation.inputs import Array, positives_of, unit_pair
from ccal.model import Items
from ccal.positives import Positives
from ccal.ranks import best_scores

Item = str | Path
"""How a thing is shown: a text, or the path of an image file."""

Kind = Literal["best", "typical", "worst"]


@dataclass(frozen=True)
class ExampleHit:
    """An item that a query found: its `rank` from 1, its cosine, and whether it is a counterpart.

    `note` is shown beside it, such as its class.
    """

    item: Item
    rank: int
    score: float
    right: bool
    note: str = ""


@dataclass(frozen=True)
class Example:
    """A query, its first hits, and its counterpart.

    `rank` is the counterpart's rank by the rules of `two_way_ranks`; of several counterparts,
    `counterpart` has the highest score. `hits` are in the order of their scores. A `note` is shown
    in place of that rank. With `strips`, pictures much wider than high, such as lines of music,
    stand below each other.
    """

    direction: str
    kind: Kind
    query: Item
    rank: int
    hits: tuple[ExampleHit, ...]
    counterpart: ExampleHit
    note: str = ""
    strips: bool = False


def pick_examples(
    x: Array,
    y: Array,
    *,
    x_items: Items | None = None,
    y_items: Items | None = None,
    groups: Array | Positives | None = None,
    ties: Ties = "optimistic",
    names: tuple[str, str] = ("x", "y"),
    each: int = 2,
    k: int = 5,
) -> list[Example]:
    """In each direction `each` best, typical and worst queries, with their first `k` hits.

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
    positives = positives_of(groups, a, b).to(a.device)
    check_all({"each": Whole(at_least=1), "k": Whole(at_least=1)}, {"each": each, "k": k})
    for items, view, name in ((x_items, a, "x"), (y_items, b, "y")):
        if items is not None and len(items) != len(view):
            raise InputError(
                f"{name}_items must have one entry for each of the {len(view)} rows of {name}, "
                f"got {len(items)}."
            )
    x_ranks, y_ranks = two_way_ranks(a, b, groups=positives, ties=ties)
    x_scores, y_scores = best_scores(a, b, positives)
    one, other = _View(a, names[0], x_items), _View(b, names[1], y_items)
    # The counterpart comes first or last among equal scores, as it does in the ranks.
    tolerance = 8 * torch.finfo(a.dtype).eps * (1 if ties == "optimistic" else -1)
    tasks = (
        (one, other, positives.of_x, x_ranks, x_scores),
        (other, one, positives.of_y, y_ranks, y_scores),
    )
    examples = []
    for queries, candidates, right_rows, ranks, own_scores in tasks:
        by_score = own_scores.sort(descending=True, stable=True).indices
        order = by_score[ranks[by_score].sort(stable=True).indices].tolist()
        for kind, row in _choose(order, each):
            right = torch.zeros(len(candidates.rows), dtype=torch.bool, device=a.device)
            right[right_rows(row)] = True
            found = _search(queries, row, candidates, right, kind, k, tolerance=tolerance)
            rank = int(ranks[row])
            counterpart = replace(found.counterpart, rank=rank)
            examples.append(replace(found, rank=rank, counterpart=counterpart))
    return examples


def pick_classes(
    report: ClassReport,
    queries: Array,
    query_labels: Array,
    items: Array,
    item_labels: Array,
    *,
    shows: Items | None = None,
    name: str = "item",
    each: int = 2,
    k: int = 5,
) -> list[Example]:
    """The classes of best, typical and worst precision, with their first `k` hits.

    `report` is the result of `evaluate_classes` for these embeddings; label i belongs to its i-th
    name. `shows` (n) are the items as `pick_examples` takes them; an item that is neither a text
    nor a path is shown by the name of its class.

    >>> from ccal.evaluation import evaluate_classes
    >>> given = torch.eye(3), torch.tensor([0, 1, 2]), torch.eye(3), torch.tensor([0, 2, 1])
    >>> report = evaluate_classes(*given, k=1, names=["auk", "crow", "wren"])
    >>> [(e.query, e.note, e.hits[0].item) for e in pick_classes(report, *given, each=1, k=1)][:2]
    [('auk', '100% of its first 1', 'auk'), ('crow', '0% of its first 1', 'wren')]
    """
    check_all({"each": Whole(at_least=1), "k": Whole(at_least=1)}, {"each": each, "k": k})
    means, classes = class_means(queries, query_labels)
    x, y = unit_pair(items, means, ("items", "queries"))
    if classes.tolist() != list(range(len(report.names))):
        raise InputError(
            f"The labels must be 0 to {len(report.names) - 1}, one for each class of the report."
        )
    one, other = _View(y, "class", report.names), _View(x, name, shows)
    own = torch.as_tensor(item_labels).to(x.device)
    classes_of_items = [report.names[label] for label in own.tolist()]
    order = report.precision.argsort(descending=True, stable=True).tolist()
    return [
        replace(
            _search(one, row, other, own == row, kind, k, classes=classes_of_items),
            note=f"{report.precision[row]:.0f}% of its first {report.k}",
        )
        for kind, row in _choose(order, each)
    ]


@dataclass(frozen=True)
class _View:
    """Unit rows (n, d) of one modality, and what they show."""

    rows: Tensor
    name: str
    items: Items | None

    def show(self, row: int, otherwise: str) -> Item:
        """The item of a row if it is a text or a path, else `otherwise`."""
        value = None if self.items is None else self.items[row]
        return value if isinstance(value, str | Path) else otherwise


def _search(
    queries: _View,
    query: int,
    candidates: _View,
    right: Tensor,
    kind: Kind,
    k: int,
    *,
    tolerance: float = 0.0,
    classes: Sequence[str] = (),
) -> Example:
    """A row of `queries` with its first `k` hits; `right` (n,) marks its counterparts.

    With the `classes` (n,) of the candidates, each hit names its own.
    """
    scores = candidates.rows @ queries.rows[query]
    order = (scores + tolerance * right).sort(descending=True, stable=True).indices

    def hit(position: int) -> ExampleHit:
        row = int(order[position])
        own = classes[row] if classes else ""
        item = candidates.show(row, own or f"row {row}")
        note = "" if item == own else own
        return ExampleHit(item, position + 1, float(scores[row]), bool(right[row]), note)

    first = int(right[order].int().argmax())
    return Example(
        direction=f"{queries.name} -> {candidates.name}",
        kind=kind,
        query=queries.show(query, f"row {query}"),
        rank=first + 1,
        hits=tuple(hit(position) for position in range(min(k, len(order)))),
        counterpart=hit(first),
    )


def _choose(order: list[int], each: int) -> list[tuple[Kind, int]]:
    """The first, middle and last `each` of queries in the order of success, none twice.

    >>> _choose([4, 0, 3, 1, 2], 1)
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
