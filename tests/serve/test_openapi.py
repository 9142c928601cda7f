"""Requests that the OpenAPI description allows, and some that it does not: none breaks the server.

schemathesis makes them up and compares the answers with the description, too.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from tests.serve.live import Live

schemathesis = pytest.importorskip("schemathesis")
checks = pytest.importorskip("schemathesis.checks")
openapi_checks = pytest.importorskip("schemathesis.specs.openapi.checks")

GenerationMode = schemathesis.GenerationMode
CHECKS = [
    checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_schema_conformance,
]
SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
PHASES = [Phase.explicit, Phase.generate]


def hammer(live: Live, examples: int) -> None:
    """That many valid and that many invalid requests of every operation."""
    schema = schemathesis.openapi.from_url(f"{live.url}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) >= 13
    for operation in operations:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            cases = operation.as_strategy(generation_mode=mode)

            @settings(
                max_examples=examples, deadline=None, phases=PHASES, suppress_health_check=SLOW
            )
            @given(case=cases)
            def ask(case: Any) -> None:
                case.call_and_validate(checks=CHECKS, timeout=30)

            # Some operations have no parameters that could be invalid.
            with suppress(Unsatisfiable):
                ask()


def test_no_request_breaks_the_server(live: Live) -> None:
    hammer(live, 10)


@pytest.mark.slow
def test_no_request_of_very_many_breaks_the_server(live: Live) -> None:
    hammer(live, 300)


def test_the_description_has_examples_and_limits(client: httpx.Client) -> None:
    described = client.get("/openapi.json").json()
    words = {"/api/search": ("text", "a red square"), "/api/search/batch": ("texts", ["red"])}
    for path, (name, known) in words.items():
        body = described["paths"][path]["post"]["requestBody"]["content"]
        asked = body["application/json"]["schema"]
        assert asked["properties"]["k"]["maximum"] == 100
        text = asked["properties"][name]
        assert (text["items"] if name == "texts" else text)["maxLength"] == 2000
        assert asked["examples"]
        for example in asked["examples"]:
            assert client.post(path, json={**example, name: known}).status_code == 200
    shapes = described["components"]["schemas"]
    for name in ("SearchAnswer", "BatchAnswer", "Result"):
        assert shapes[name]["examples"]
    for path, operations in described["paths"].items():
        for operation in operations.values():
            assert operation.get("description"), path
