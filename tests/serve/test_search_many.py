"""Many queries in one request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest

from ccal.serve.schemas import BatchAnswer
from tests.serve.conftest import problem
from tests.serve.live import Live

BATCH = "/api/search/batch"
COLOURS = ("red", "green", "blue", "grey", "yellow")
TEXTS = [f"a {front} square on a {back}ground" for front in COLOURS for back in COLOURS]


def ask(client: httpx.Client, texts: list[str], **options: Any) -> dict[str, Any]:
    response = client.post(BATCH, json={"texts": texts, **options})
    assert response.status_code == 200, response.text
    BatchAnswer.model_validate_json(response.content)
    answer: dict[str, Any] = response.json()
    assert [found["text"] for found in answer["answers"]] == texts
    return answer


def test_each_query_gets_the_results_it_gets_alone(client: httpx.Client) -> None:
    asked = {"k": 4, "to": "text", "where": {"text": {">=": "a blue"}}}
    for options in ({"k": 3}, asked):
        answer = ask(client, TEXTS, **options)
        for text, found in zip(TEXTS, answer["answers"], strict=True):
            alone = client.post("/api/search", json={"text": text, **options}).json()
            assert answer["within"] == alone["within"]
            assert found["problem"] is None
            assert [r["id"] for r in found["results"]] == [r["id"] for r in alone["results"]]
            for figure in ("score", "chance"):
                both = [[r.pop(figure) for r in way["results"]] for way in (found, alone)]
                one, other = np.array(both, dtype=float)
                np.testing.assert_allclose(one, other, atol=1e-6)
            assert found["results"] == alone["results"]


def test_a_query_without_an_answer_leaves_the_others_alone(client: httpx.Client) -> None:
    answer = ask(client, ["red", "zzqx", "!?", "blue"], k=2)
    said = [found["problem"] for found in answer["answers"]]
    assert said[0] is said[3] is None
    assert "None of these words is known" in said[1]
    assert "no words" in said[2]
    assert [len(found["results"]) for found in answer["answers"]] == [2, 0, 0, 2]
    # If no query has an answer, the request is refused.
    assert "None of these" in problem(client.post(BATCH, json={"texts": ["zzqx", "quux"]}), 422)
    problem(client.post(BATCH, json={"texts": ["red"], "to": "sound"}), 422)


def test_requests_beyond_the_limits_are_refused(serve: Callable[..., Live]) -> None:
    server = serve(queries=3, k=5, text=20, batch=2, waiting=1)
    with server.client() as client:
        assert client.get("/api/info").json()["limits"]["queries"] == 3
        # More queries than may wait, but the queue is empty.
        assert len(ask(client, ["red", "green", "blue"], k=5)["answers"]) == 3
        detail = problem(client.post(BATCH, json={"texts": ["red"] * 4}), 413)
        assert "4 texts; 3 or fewer" in detail
        assert "k must be 5" in problem(client.post(BATCH, json={"texts": ["red"], "k": 6}), 422)
        assert "20 characters" in problem(client.post(BATCH, json={"texts": ["a" * 21]}), 422)
        asked = client.get("/openapi.json").json()["paths"][BATCH]["post"]["requestBody"]
        shape = asked["content"]["application/json"]["schema"]["properties"]
        assert shape["texts"]["maxItems"] == 3
        assert shape["texts"]["items"]["maxLength"] == 20
        assert shape["k"]["maximum"] == 5
        lines = client.get("/metrics").text.splitlines()
    # They went through the same batches as all other queries.
    assert "ccal_batch_queries_sum 3.0" in lines
    assert "ccal_batch_queries_count 2.0" in lines
    counted = f'ccal_requests_total{{method="POST",route="{BATCH}",status="413"}} 1.0'
    assert counted in lines


def test_the_largest_allowed_request_fits(client: httpx.Client) -> None:
    # Every character is escaped, as JSON may be: more bytes than a request for one query may have.
    longest = ("red " + "\N{SNOWMAN}" * 2000)[:2000]
    assert len(ask(client, [longest] * 128, k=1)["answers"]) == 128


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"texts": []},
        {"texts": "red"},
        {"texts": [""]},
        {"texts": ["red", 1]},
        {"texts": ["red\0"]},
        {"texts": ["red"], "k": 0},
        {"texts": ["red"], "explain": True},
        {"texts": ["red"], "where": {"": 1}},
    ],
)
def test_invalid_requests_are_refused_with_a_reason(
    client: httpx.Client, body: dict[str, Any]
) -> None:
    assert len(problem(client.post(BATCH, json=body), 422)) > 10


def test_get_is_not_allowed(client: httpx.Client) -> None:
    problem(client.get(BATCH), 405)
    problem(client.get("/api/search"), 405)
