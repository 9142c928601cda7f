"""Conditions on metadata: equality, any of several values, ranges; nested keys by dots."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt
from typing import Any

from ccal.columns import is_text
from ccal.errors import InputError

Where = Mapping[str, Any]

MOST_CONDITIONS, MOST_VALUES = 64, 256
"""Databases refuse expressions that are too deep, each at another depth."""

_RANGES = (">=", "<=", ">", "<")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {"=": eq, ">=": ge, "<=": le, ">": gt, "<": lt}


@dataclass(frozen=True)
class Condition:
    """The value at `path` stands in relation `operator` to one of `values`."""

    path: tuple[str, ...]
    operator: str
    values: tuple[str | float | bool | None, ...]


Conditions = Sequence[Condition]


def conditions(where: Where) -> list[Condition]:
    """The conditions of `where`, all of which must hold.

    A plain value asks for equality, a list for any of its values, a mapping of ">=", "<=", ">" and
    "<" for a range. Text compares with text, numbers with numbers. A list in the metadata matches
    if one of its entries does; None matches null, and a key that is not there.

    >>> conditions({"bird.colour": "red", "year": {">=": 1990}})[1]
    Condition(path=('year',), operator='>=', values=(1990,))
    """
    if not isinstance(where, Mapping):
        raise InputError(f"where must be a mapping of keys to values, got {where!r}.")
    found = []
    for key, wanted in where.items():
        path = _path(key)
        if isinstance(wanted, Mapping):
            if not wanted or set(wanted) - set(_RANGES):
                raise InputError(
                    f"where[{key!r}] must have some of {', '.join(_RANGES)}, got {list(wanted)}; "
                    "nested keys are written with dots."
                )
            for operator, bound in wanted.items():
                if bound is None or isinstance(bound, bool):
                    raise InputError(f"where[{key!r}]: {operator} {bound!r} has no order.")
                found.append(Condition(path, operator, (_plain(key, bound),)))
        else:
            several = isinstance(wanted, list | tuple | set | frozenset)
            values = tuple(_plain(key, value) for value in (wanted if several else [wanted]))
            found.append(Condition(path, "=", values))
    total = sum(len(condition.values) for condition in found)
    if len(found) > MOST_CONDITIONS or total > MOST_VALUES:
        raise InputError(
            f"where has {len(found):,} conditions with {total:,} values; at most "
            f"{MOST_CONDITIONS} and {MOST_VALUES} can be asked for."
        )
    return found


def sqlite_condition(condition: Condition) -> tuple[str, list[Any]]:
    """SQL over the column `metadata`, and its parameters.

    json_each gives the entries of a list, and a value that is no list as its only entry.
    """
    path = "$" + "".join(f'."{key}"' for key in condition.path)
    tests, parameters = [], []
    for value in condition.values:
        if value is None:
            tests.append("e.type = 'null'")
        elif isinstance(value, bool):
            tests.append(f"e.type = '{str(value).lower()}'")
        else:
            types = "('text')" if isinstance(value, str) else "('integer', 'real')"
            tests.append(f"(e.type IN {types} AND e.atom {condition.operator} ?)")
            parameters.append(value)
    sql = (
        "(json_type(metadata, ?) IS NOT 'object' AND EXISTS "
        f"(SELECT 1 FROM json_each(metadata, ?) AS e WHERE {' OR '.join(tests) or '0'}))"
    )
    parameters = [path, path, *parameters]
    if None in condition.values:
        sql, parameters = f"({sql} OR json_type(metadata, ?) IS NULL)", [*parameters, path]
    return sql, parameters


def postgres_condition(condition: Condition) -> tuple[str, list[Any]]:
    """SQL over a column `metadata` of type jsonb, and its parameters.

    The value itself is compared, and then the entries of a list; `strict` looks no deeper.
    """
    operator = "==" if condition.operator == "=" else condition.operator
    path = "strict $" + "".join(f'."{key}"' for key in condition.path)
    exists = "coalesce(jsonb_path_exists(metadata, %s::jsonpath, %s::jsonb, true), false)"
    tests, parameters = ["false"], []
    for value in condition.values:
        for target in (path, f"{path}[*]"):
            tests.append(exists)
            parameters += [f"{target} ? (@ {operator} $v)", json.dumps({"v": value})]
    if None in condition.values:
        tests.append(f"NOT {exists}")
        parameters += [path, "{}"]
    return f"({' OR '.join(tests)})", parameters


def milvus_condition(condition: Condition) -> str:
    """An expression of Milvus over a JSON field `metadata`, which may let too much pass.

    Milvus cannot ask for null, nor for an entry of a list by its size: null passes with lists and
    objects, and behind a range every list does. `meets` decides.
    """
    keys = [f"[{json.dumps(key, ensure_ascii=False)}]" for key in condition.path]
    path = "metadata" + "".join(keys)
    tests = []
    for value in condition.values:
        literal = json.dumps(value, ensure_ascii=False)
        if value is None:
            plain = f'{path} >= "" or {path} >= 0 or {path} < 0 or {path} == true'
            tests.append(f"not ({plain} or {path} == false)")
            # Milvus takes a key of digits for a position in a list, where there is no such key.
            for place, key in enumerate(condition.path):
                if key.isdigit() and place:
                    tests.append(f"(exists metadata{''.join(keys[:place])}[0])")
        elif condition.operator == "=":
            tests.append(f"{path} == {literal} or json_contains({path}, {literal})")
            if isinstance(value, int | float) and value == int(value) and abs(value) < 2**53:
                # Milvus tells 1 from 1.0 in a list.
                other = float(value) if isinstance(value, int) else int(value)
                tests.append(f"json_contains({path}, {json.dumps(other)})")
        else:
            tests.append(f"{path} {condition.operator} {literal} or exists {path}[0]")
    return f"({' or '.join(tests)})" if tests else "number < 0"


def meets(metadata: Mapping[str, Any], where: Conditions) -> bool:
    """Whether all conditions hold, in plain Python."""
    return all(_holds(metadata, condition) for condition in where)


def _holds(metadata: Mapping[str, Any], condition: Condition) -> bool:
    found: Any = metadata
    for key in condition.path:
        if not isinstance(found, Mapping) or key not in found:
            return None in condition.values
        found = found[key]
    compare = _COMPARE[condition.operator]
    return any(
        _type(entry) == _type(value) and compare(entry, value)
        for entry in (found if isinstance(found, list) else [found])
        for value in condition.values
    )


def _type(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else "other"


def _path(key: Any) -> tuple[str, ...]:
    if not isinstance(key, str) or not all(parts := tuple(str(key).split("."))):
        raise InputError(f"where has the key {key!r}; expected names, nested ones with dots.")
    # JSON escapes these by a backslash, which SQLite takes literally.
    if not is_text(key) or any(char in '"\\' or char < " " for char in key):
        raise InputError(
            f"where has the key {key!r}; keys with quotes, backslashes or control characters "
            "cannot be asked for."
        )
    return parts


def _plain(key: str, value: Any) -> str | float | bool | None:
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"where[{key!r}] has {value}, which JSON does not know.")
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**63:
        if abs(value) >= 2**1023:
            raise InputError(f"where[{key!r}] has a number of more than 1,023 bits.")
        return float(value)
    if isinstance(value, str) and not is_text(value):
        raise InputError(f"where[{key!r}] has text with characters that are no text: {value!r}.")
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise InputError(
        f"where[{key!r}] must be text, a number, true, false, null, a list of these or a range, "
        f"got a {type(value).__name__}."
    )
