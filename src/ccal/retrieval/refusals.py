"""What every home refuses, in the same words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from ccal.errors import InputError
from ccal.retrieval.errors import IndexInUseError

__all__ = ["id_taken", "in_order", "in_use", "is_an_index", "no_index"]

T = TypeVar("T")


def in_order(ids: Sequence[str], found: Mapping[str, T]) -> list[T]:
    """What was found of each id; one that was not found refuses all.

    >>> in_order(["b", "a"], {"a": 1, "b": 2})
    [2, 1]
    """
    for id in ids:
        if id not in found:
            raise InputError(f"The index has no item {id!r}; nothing was done.")
    return [found[id] for id in ids]


def id_taken(id: str) -> InputError:
    """For an item whose id exists."""
    return InputError(
        f"The index has an item {id!r} already; nothing was added. Give the new item another id, "
        "change the old one with Index.update, or put an INPUT in place of all that the index "
        "holds with `ccal index --rebuild`."
    )


def no_index(location: object, problem: str) -> InputError:
    """For a place where an index should be.

    >>> no_index("birds", "there is no such folder")
    InputError('birds is no index: there is no such folder. Make one with `ccal index` (in Python, \
Index.build).')
    """
    return InputError(
        f"{location} is no index: {problem}. Make one with `ccal index` (in Python, Index.build)."
    )


def is_an_index(location: object) -> InputError:
    """For a build where an index is."""
    return InputError(
        f"{location} is an index already. Add to it with Index.open(...).add, or build it anew "
        "with replace=True."
    )


def in_use(location: object, writer: str) -> IndexInUseError:
    """For a second writer."""
    return IndexInUseError(
        f"{location} is being written to by {writer}; an index has one writer at a time. "
        "Searching works meanwhile; to write, wait until it is done."
    )
