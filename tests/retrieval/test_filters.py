"""Filters in all databases against plain Python."""

from __future__ import annotations

import json
import operator
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from ccal import DualEncoder, InputError
from ccal.retrieval import Index
from ccal.retrieval.filters import (
    Where,
    conditions,
    meets,
    milvus_condition,
    postgres_condition,
    sqlite_condition,
)
from tests.retrieval.conftest import rows

VALUES: list[Any] = [None, True, False, 0, 1, 1.0, -2.5, 7, "", "1", "red", "Rot", "é", "z'\"%s?"]
ABSENT = object()


def matches(metadata: dict[str, Any], where: Where) -> bool:
    """What the documentation of `conditions` says, word by word."""
    return all(_meets(_at(metadata, key.split(".")), wanted) for key, wanted in where.items())


def _at(value: Any, path: list[str]) -> Any:
    for key in path:
        value = value[key] if isinstance(value, dict) and key in value else ABSENT
    return value


def _meets(found: Any, wanted: Any) -> bool:
    entries = found if isinstance(found, list) else [found]
    if isinstance(wanted, dict):
        return all(any(_holds(e, sign, bound) for e in entries) for sign, bound in wanted.items())
    wishes = wanted if isinstance(wanted, list) else [wanted]
    if found is ABSENT:
        return None in wishes
    return any(_kind(e) == _kind(w) and e == w for e in entries for w in wishes)


def _holds(entry: Any, sign: str, bound: Any) -> bool:
    if _kind(entry) != _kind(bound) or _kind(bound) not in ("number", "text"):
        return False
    order = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
    return bool(order[sign](entry, bound))


def _kind(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return repr(value)
    return {int: "number", float: "number", str: "text"}.get(type(value), "other")


def some_metadata(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key in rng.sample(["a", "b", "c d", "é$"], rng.randint(0, 4)):
        draw = rng.random()
        if draw < 0.25 and depth < 2:
            made[key] = some_metadata(rng, depth + 1)
        elif draw < 0.5:
            # A list in a list is not looked into.
            made[key] = rng.choices([*VALUES, [1], ["red", 0]], k=rng.randint(0, 3))
        else:
            made[key] = rng.choice(VALUES)
    return made


def some_where(rng: random.Random) -> dict[str, Any]:
    where: dict[str, Any] = {}
    for _ in range(rng.randint(1, 2)):
        key = ".".join(rng.choices(["a", "b", "c d", "é$"], k=rng.choice([1, 1, 2])))
        # The number of an entry is no key.
        key += rng.choice(["", "", "", ".0"])
        draw = rng.random()
        if draw < 0.4:
            bounds = [0, 1.0, -3, "", "1", "red", "zz"]
            signs = rng.sample([">=", "<=", ">", "<"], rng.randint(1, 2))
            where[key] = {sign: rng.choice(bounds) for sign in signs}
        elif draw < 0.6:
            where[key] = rng.choices(VALUES, k=rng.randint(0, 3))
        else:
            where[key] = rng.choice(VALUES)
    return where


def cases() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    rng = random.Random(0)
    return [some_metadata(rng) for _ in range(300)], [some_where(rng) for _ in range(300)]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"a": 10**400}, "more than 1,023 bits"),
        ({"a": "\ud800"}, "no text"),
        ({"a": "x\0"}, "no text"),
        ({"\udfff": 1}, "cannot be asked for"),
        ({"a": list(range(500))}, "1 conditions with 500 values; at most 64 and 256"),
        ({f"a{n}": 1 for n in range(1000)}, "1,000 conditions"),
    ],
)
def test_conditions_that_databases_cannot_take(where: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        conditions(where)


def test_the_most_conditions(server: str, model: DualEncoder, tmp_path: Path) -> None:
    facts = [{"a": [[1]], "b": 2**63 - 1, "c": 1e300, "d": {"e": [1]}}]
    where: dict[str, Any] = {f"k{n}": [None, *range(1, 4)] for n in range(63)}
    for place in (str(tmp_path / "i"), f"{server}{'&' if '?' in server else '?'}table=most"):
        with Index.build(place, model, rows(1), modality="image", metadata=facts) as index:
            for condition, met in (
                ({**where, "b": 2**63 - 1}, True),
                ({"a": 1}, False),
                ({"a": [1]}, False),
                ({"b": {"<": 2**63}}, True),
                ({"b": {">=": 2**63 - 1}}, True),
                ({"b": 2**63}, False),
                ({"c": 1e300}, True),
                ({"c": {">": 10**299}}, True),
                ({"d.e": 1}, True),
                ({"d.e.0": 1}, False),
            ):
                assert bool(index.search(image=rows(1)[0], where=condition)) == met, condition
            with pytest.raises(InputError, match="more than 64 bits"):
                index.add("image", rows(1), metadata=[{"a": [{"b": -(2**63) - 1}]}])


def test_sqlite_agrees_with_python() -> None:
    facts, wheres = cases()
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE items (row INTEGER PRIMARY KEY, metadata TEXT)")
    rows = ((n, json.dumps(fact, ensure_ascii=False)) for n, fact in enumerate(facts))
    database.executemany("INSERT INTO items VALUES (?, ?)", rows)
    found_any = 0
    for where in wheres:
        tests = [sqlite_condition(condition) for condition in conditions(where)]
        sql = "SELECT row FROM items WHERE " + " AND ".join(test for test, _ in tests)
        values = [value for _, given in tests for value in given]
        found = {row for (row,) in database.execute(sql, values)}
        assert found == {n for n, fact in enumerate(facts) if matches(fact, where)}, where
        found_any += bool(found)
    assert found_any > 100


def test_postgres_agrees_with_python(server: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    facts, wheres = cases()
    with psycopg.connect(server) as database:
        database.execute("CREATE TEMPORARY TABLE items (row int, metadata jsonb)")
        for row in enumerate(map(json.dumps, facts)):
            database.execute("INSERT INTO items VALUES (%s, %s)", row)
        for where in wheres:
            tests = [postgres_condition(condition) for condition in conditions(where)]
            sql = "SELECT row FROM items WHERE " + " AND ".join(test for test, _ in tests)
            values = [value for _, given in tests for value in given]
            found = {row for (row,) in database.execute(sql, values)}
            assert found == {n for n, fact in enumerate(facts) if matches(fact, where)}, where


def test_plain_python_agrees() -> None:
    facts, wheres = cases()
    for where in wheres:
        asked = conditions(where)
        assert [meets(f, asked) for f in facts] == [matches(f, where) for f in facts], where


def test_milvus_lets_pass_what_python_does_and_little_more(milvus: str) -> None:
    pymilvus = pytest.importorskip("pymilvus")
    facts, wheres = cases()
    client = pymilvus.MilvusClient(f"http://{milvus}")
    schema = client.create_schema()
    schema.add_field("number", pymilvus.DataType.INT64, is_primary=True)
    schema.add_field("metadata", pymilvus.DataType.JSON)
    schema.add_field("vector", pymilvus.DataType.FLOAT_VECTOR, dim=2)
    index = client.prepare_index_params()
    index.add_index("vector", index_type="FLAT", metric_type="IP")
    client.create_collection("filters", schema=schema, index_params=index)
    rows = [{"number": n, "metadata": f, "vector": [0.0, 1.0]} for n, f in enumerate(facts)]
    client.insert("filters", rows)
    more = 0
    for where in wheres:
        test = " and ".join(map(milvus_condition, conditions(where)))
        level = {"consistency_level": "Strong" if where is wheres[0] else "Eventually"}
        answer = client.query("filters", filter=test, limit=1000, output_fields=["number"], **level)
        found = {row["number"] for row in answer}
        true = {n for n, fact in enumerate(facts) if matches(fact, where)}
        assert true <= found, where
        more += len(found - true)
    assert more < 0.05 * len(facts) * len(wheres)
    client.drop_collection("filters")
    client.close()


@pytest.mark.parametrize("where", [{"": 1}, {"a..b": 1}, {'a"': 1}, {1: 2}, {"a": float("nan")}])
def test_what_cannot_be_asked(where: Any) -> None:
    with pytest.raises(InputError, match="where"):
        conditions(where)
