"""Metadata in a form that Milvus can filter by.

Its own conditions on JSON know neither null nor lists, and quote as they like. So every item gets
marks of the values it has, which are hashes, and the least and greatest value under each key.
Candidates are checked again by `meets`, which decides.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import eq, ge, gt, le, lt
from typing import Any

from ccal.retrieval.filters import Condition

__all__ = ["facets", "meets", "milvus_condition"]

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {"=": eq, ">=": ge, "<=": le, ">": gt, "<": lt}
# A longer text is known by its beginning, in bytes.
_LONGEST = 64


def facets(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What Milvus keeps of metadata: marks, and bounds by type and key.

    >>> sorted(facets({"n": 2}))[:2] == ["marks", f"max{_hash('number', ('n',))}"]
    True
    """
    kept: dict[str, Any] = {}
    marks = set()
    for path, values in _values(metadata, ()):
        marks.add(_hash("there", path))
        for value in values:
            marks.add(_mark(path, value))
            if value is not None and not isinstance(value, bool):
                key = _hash(_type(value), path)
                low, high = _bounds(value)
                kept[f"min{key}"] = min(kept.get(f"min{key}", low), low)
                kept[f"max{key}"] = max(kept.get(f"max{key}", high), high)
    return {**kept, "marks": sorted(marks)}


def milvus_condition(condition: Condition) -> str:
    """A condition over the column `facets` that holds wherever `condition` does."""
    tests = []
    for value in condition.values:
        if condition.operator == "=":
            tests.append(f'json_contains(facets["marks"], "{_mark(condition.path, value)}")')
            if value is None:
                there = _hash("there", condition.path)
                tests.append(f'not json_contains(facets["marks"], "{there}")')
        else:
            upwards = condition.operator.startswith(">")
            key = ("max" if upwards else "min") + _hash(_type(value), condition.path)
            bound = _bounds(value)[0 if upwards else 1]
            literal = f'"{bound}"' if isinstance(bound, str) else repr(bound)
            # Bounds of long texts and large numbers are rounded: those at the edge pass, too.
            tests.append(f'facets["{key}"] {condition.operator[0]}= {literal}')
    return f"({' or '.join(tests)})" if tests else "row < 0"


def meets(metadata: Mapping[str, Any], conditions: Sequence[Condition]) -> bool:
    """Whether all conditions hold, as `ccal.retrieval.filters.conditions` says."""
    return all(_holds(metadata, condition) for condition in conditions)


def _holds(metadata: Mapping[str, Any], condition: Condition) -> bool:
    found: Any = metadata
    for key in condition.path:
        if not isinstance(found, Mapping) or key not in found:
            return None in condition.values
        found = found[key]
    compare = _OPERATORS[condition.operator]
    return any(
        _type(entry) == _type(value) and compare(entry, value)
        for entry in (found if isinstance(found, list) else [found])
        for value in condition.values
    )


def _values(
    found: Mapping[str, Any], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    """Every path with the plain values there; lists give their entries, objects none."""
    for key, value in found.items():
        here = (*path, key)
        if isinstance(value, Mapping):
            yield here, []
            yield from _values(value, here)
        else:
            entries = value if isinstance(value, list | tuple) else [value]
            yield here, [v for v in entries if not isinstance(v, Mapping | list | tuple)]


def _type(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else "other"


def _mark(path: tuple[str, ...], value: Any) -> str:
    # Equal numbers have equal hashes, whatever their type.
    return _hash(_type(value), path, str(hash(value)) if _type(value) == "number" else str(value))


def _hash(kind: str, path: tuple[str, ...], value: str = "") -> str:
    text = "\0".join([kind, *path, "", value])
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _bounds(value: Any) -> tuple[Any, Any]:
    """The nearest values below and above that Milvus can compare: hexadecimal bytes, or floats."""
    if isinstance(value, str):
        content = value.encode()
        low = content[:_LONGEST].hex()
        return low, low if len(content) <= _LONGEST else low + "g"  # after all digits
    try:
        near = float(value)
    except OverflowError:
        near = sys.float_info.max if value > 0 else -sys.float_info.max
        return near, near  # JSON has no infinity, and no condition asks for more
    below = near if near <= value else math.nextafter(near, -math.inf)
    above = near if near >= value else math.nextafter(near, math.inf)
    return below, above
