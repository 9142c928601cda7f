"""PairItems: the distinct items of pairs, each with its counterparts, for an index."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ccal.errors import InputError
from ccal.model import Items
from ccal.numbering import Integers, numbered
from ccal.retrieval.items import (
    COUNTERPARTS,
    MOST_COUNTERPARTS,
    Binding,
    Item,
    check_ids,
    count_of,
    default_ids,
    make_items,
)

if TYPE_CHECKING:
    from ccal.data import Pairs


class PairItems:
    """The distinct items of both modalities of pairs, the first modality first.

    A picture with five captions is one item, and so is a caption of five pictures. Each item lists
    its counterparts in its metadata, see `ccal.retrieval.items.counterparts`. Ids of files are
    their paths below `root`; ids of array rows have the number of the row, as image-0; a text has
    the id of its first counterpart and a number, as robin.jpg#1.

    Args:
        pairs: as training takes them.
        modality: leave the items of the other one out.
        root: folder that the ids of files start from; the one that all files share if not given.
        arrays: by modality, the file that the rows of an array come from, as photos.npy or
            features.npz:key; a rebuild reads them from there.
        metadata: a JSON object for each pair; an item has that of its first pair.

    >>> from ccal.data import Pairs
    >>> pairs = Pairs({"image": np.eye(2)[[0, 0, 1]], "text": ["a dog", "a brown dog", "a cat"]})
    >>> for item in PairItems(pairs).items[:3]:
    ...     print(item.id, item.metadata)
    image-0 {'counterparts': {'ids': ['image-0#1', 'image-0#2'], 'count': 2}}
    image-2 {'counterparts': {'ids': ['image-2#1'], 'count': 1}}
    image-0#1 {'text': 'a dog', 'counterparts': {'ids': ['image-0'], 'count': 1}}
    """

    def __init__(
        self,
        pairs: Pairs,
        *,
        modality: str | None = None,
        root: str | os.PathLike[str] | None = None,
        arrays: Mapping[str, str] | None = None,
        metadata: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        if metadata is not None and len(metadata) != len(pairs):
            raise InputError(f"metadata has {len(metadata)} entries for {len(pairs)} pairs.")
        if modality is not None:
            pairs.column(modality)
        self._pairs = pairs
        # The first row of each item, and the number of the item that each row holds.
        numbers = {name: numbered(pairs.items(name)) for name in pairs.names}
        ids = _all_ids(pairs, numbers, root)
        check_ids([id for name in pairs.names for id in ids[name]])
        self.items: list[Item] = []
        self._rows: dict[str, int] = {}
        for name, other in zip(pairs.names, reversed(pairs.names), strict=True):
            if modality not in (None, name):
                continue
            first, own = numbers[name]
            links = _links(own, numbers[other][1], ids[other]) if modality is None else None
            rows = pairs.column(name)
            for number, (id, row) in enumerate(zip(ids[name], first.tolist(), strict=True)):
                facts = {"text": rows[row]} if rows.is_text and not rows.files else {}
                facts |= metadata[row] if metadata else {}
                if COUNTERPARTS in facts:
                    raise InputError(
                        f"Metadata cannot be called {COUNTERPARTS!r}: the index lists there what "
                        "belongs to an item."
                    )
                if links is not None:
                    facts[COUNTERPARTS] = links[number]
                self.items.append(Item(id, name, facts, _file(pairs, name, row, arrays)))
                self._rows[id] = row

    def read(self, items: Sequence[Item]) -> Items:
        """The raw content of some items of one modality."""
        rows = np.array([self._rows[item.id] for item in items], dtype=np.int64)
        content: Items = self._pairs.column(items[0].modality)[rows]
        return content


def new_items(
    binding: Binding,
    items: Items | Pairs | PairItems,
    modality: str | None,
    ids: Sequence[str] | None,
    metadata: Sequence[Mapping[str, Any]] | None,
    files: Sequence[str | os.PathLike[str]] | None,
) -> tuple[list[Item], Items | Callable[[Sequence[Item]], Items]]:
    """The items of a new index, and their raw content or a function that reads it."""
    from ccal.data import Pairs  # opening and searching an index need no pairs

    if not isinstance(items, Pairs | PairItems):
        if modality is None:
            raise InputError(f"modality is missing: {' or '.join(binding.modalities)}?")
        binding.check_modality(modality)
        count = count_of(items)
        ids = default_ids(modality, 1, count) if ids is None else ids
        return make_items(modality, count, ids, metadata, files), items
    if ids is not None or metadata is not None or files is not None:
        raise InputError("Pairs take no ids, metadata or files; see ccal.retrieval.PairItems.")
    found = PairItems(items, modality=modality) if isinstance(items, Pairs) else items
    binding.check_items(found.items)
    return found.items, found.read


def _links(own: Integers, other: Integers, ids: Sequence[str]) -> list[dict[str, Any]]:
    """The counterparts of each item: row i joins items `own[i]` and `other[i]`."""
    links: list[dict[str, Any]] = [{"ids": [], "count": 0} for _ in range(int(own.max()) + 1)]
    for one, two in dict.fromkeys(zip(own.tolist(), other.tolist(), strict=True)):
        link = links[one]
        link["count"] += 1
        if link["count"] <= MOST_COUNTERPARTS:
            link["ids"].append(ids[two])
    return links


def _all_ids(
    pairs: Pairs,
    numbers: Mapping[str, tuple[Integers, Integers]],
    root: str | os.PathLike[str] | None,
) -> dict[str, list[str]]:
    """Ids of the distinct items of both modalities."""
    texts = [name for name in pairs.names if _is_words(pairs, name)]
    ids = {}
    for name in sorted(pairs.names, key=texts.__contains__):
        rows, (first, _) = pairs.column(name), numbers[name]
        if rows.files:
            ids[name] = _below([rows[row] for row in first.tolist()], root)
        elif texts == [name]:
            # The other modality is no text, and has its ids by now.
            (other,) = ids
            owners = [ids[other][number] for number in numbers[other][1].tolist()]
            ids[name] = _text_ids(owners, first)
        else:
            ids[name] = [f"{name}-{_number(pairs, name, row)}" for row in first.tolist()]
    one, two = pairs.names
    if set(ids[one]) & set(ids[two]):
        ids = {name: [f"{name}:{id}" for id in ids[name]] for name in pairs.names}
    return ids


def _text_ids(owners: Sequence[str], first: Integers) -> list[str]:
    """Ids of texts by the item that each row belongs to, as robin.jpg#1, for the first rows.

    >>> _text_ids(["a.jpg", "b.jpg", "a.jpg"], np.array([0, 1, 2]))
    ['a.jpg#1', 'b.jpg#1', 'a.jpg#2']
    """
    seen: dict[str, int] = {}
    names = []
    for owner in owners:
        seen[owner] = seen.get(owner, 0) + 1
        names.append(f"{owner}#{seen[owner]}")
    return [names[row] for row in first.tolist()]


def _below(paths: Sequence[str], root: str | os.PathLike[str] | None) -> list[str]:
    """Paths as they are named from a folder; those outside of it are absolute.

    >>> _below(["/a/x/1.jpg", "/a/y/1.jpg"], None), _below(["/a/x/1.jpg", "/b/1.jpg"], "/a")
    (['x/1.jpg', 'y/1.jpg'], ['x/1.jpg', '/b/1.jpg'])
    """
    full = [os.path.abspath(path) for path in paths]
    if root is None:
        root = os.path.commonpath([os.path.dirname(path) for path in full])
    base = os.path.join(os.path.abspath(root), "")
    return [path.removeprefix(base) for path in full]


def _file(pairs: Pairs, name: str, row: int, arrays: Mapping[str, str] | None) -> str | None:
    """Where the item of a row can be read again."""
    rows = pairs.column(name)
    if rows.files:
        return os.path.abspath(str(rows[row]))
    if not rows.is_text and arrays and name in arrays:
        return f"{arrays[name]}#{_number(pairs, name, row)}"
    return None


def _is_words(pairs: Pairs, name: str) -> bool:
    rows = pairs.column(name)
    return rows.is_text and not rows.files


def _number(pairs: Pairs, name: str, row: int) -> int:
    """The row of an array or list that a row of the pairs is."""
    index = pairs.column(name).index
    return row if index is None else int(index[row])
