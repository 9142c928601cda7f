"""Search, items, map and evaluation over HTTP, compared with the index itself."""

from __future__ import annotations

import base64
import json
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ccal.model import load
from ccal.retrieval import Index
from ccal.serve.schemas import (
    DimensionsAnswer,
    EvaluationAnswer,
    Info,
    ItemsAnswer,
    MapAnswer,
    Result,
    SearchAnswer,
)
from tests.serve.conftest import AWKWARD, photo, problem
from tests.serve.live import until

WORDS = "a red square on a blueground at the left"


def ask(client: httpx.Client, text: str, **options: Any) -> dict[str, Any]:
    response = client.post("/api/search", json={"text": text, **options})
    assert response.status_code == 200, response.text
    SearchAnswer.model_validate_json(response.content, strict=False)
    content: dict[str, Any] = response.json()
    return content


def send(client: httpx.Client, content: bytes, **options: Any) -> dict[str, Any]:
    response = client.post("/api/search/file", content=content, params=options)
    assert response.status_code == 200, response.text
    SearchAnswer.model_validate_json(response.content)
    answer: dict[str, Any] = response.json()
    return answer


def jpeg(front: str, back: str, place: str) -> bytes:
    file = BytesIO()
    photo(front, back, place).save(file, "JPEG", quality=95)
    return file.getvalue()


def test_words_find_what_the_index_finds(client: httpx.Client, photos: Path) -> None:
    answer = ask(client, WORDS, k=5)
    with Index.open(photos / "photos.index", load(photos / "model")) as index:
        expected = index.search(text=WORDS, k=5)
    assert answer["within"] == "image"
    assert [result["id"] for result in answer["results"]] == [hit.id for hit in expected]
    np.testing.assert_allclose(
        [result["score"] for result in answer["results"]], [h.score for h in expected], atol=1e-6
    )
    for result, hit in zip(answer["results"], expected, strict=True):
        assert result["chance"] == pytest.approx(hit.chance, rel=1e-4)
        assert result["match"] == hit.match
    # The model was trained on these words, so the first result is right.
    assert answer["results"][0]["metadata"]["front"] == "red"
    assert answer["query"]["words"] is None
    assert answer["results"][0]["why"] is None


def test_an_uploaded_photo_finds_its_caption(client: httpx.Client) -> None:
    answer = send(client, jpeg("blue", "yellow", "right"), k=3)
    assert answer["query"]["kind"] == "image"
    assert answer["within"] == "text"
    assert answer["results"][0]["text"].startswith("a blue square on a yellowground")
    own = send(client, jpeg("blue", "yellow", "right"), k=1, to="image", explain=True)
    assert own["results"][0]["score"] == pytest.approx(1, abs=0.02)
    assert own["results"][0]["why"]["words"] is None


def test_an_item_finds_the_other_modality_and_its_own(client: httpx.Client) -> None:
    response = client.get("/api/similar", params={"id": AWKWARD, "k": 4, "explain": True})
    answer = response.json()
    SearchAnswer.model_validate(answer)
    assert answer["query"]["item"]["id"] == AWKWARD
    assert answer["query"]["item"]["score"] is None
    assert answer["within"] == "text"
    assert answer["results"][0]["text"].startswith("a red square on a redground")
    own = client.get("/api/similar", params={"id": AWKWARD, "to": "image", "k": 80}).json()
    ids = [result["id"] for result in own["results"]]
    assert AWKWARD not in ids
    assert len(ids) == 74


def test_contributions_sum_to_the_score(client: httpx.Client, photos: Path) -> None:
    answer = ask(client, f"{WORDS} zzqx", k=6, explain=True)
    with Index.open(photos / "photos.index", load(photos / "model")) as index:
        for result in answer["results"]:
            why = result["why"]
            total = sum(share["contribution"] for share in why["dimensions"]) + why["rest"]
            assert total == pytest.approx(result["score"], abs=1e-6)
            sizes = [abs(share["contribution"]) for share in why["dimensions"]]
            assert sizes == sorted(sizes, reverse=True)
            # A word's weight is what the score loses without it.
            for word in why["words"]:
                text = f"{WORDS} zzqx"
                assert text[word["start"] : word["end"]] == word["word"]
                shorter = text[: word["start"]] + text[word["end"] :]
                hits = index.search(text=shorter, k=75, within="image")
                without = next(hit.score for hit in hits if hit.id == result["id"])
                assert word["weight"] == pytest.approx(result["score"] - without, abs=1e-5)
    words = {word["word"]: word for word in answer["query"]["words"]}
    assert words["zzqx"] == {"word": "zzqx", "start": 41, "end": 45, "known": False, "weight": 0}
    assert words["red"]["known"]
    mean = np.mean([r["why"]["words"][1]["weight"] for r in answer["results"]])
    assert words["red"]["weight"] == pytest.approx(mean)


def test_filters(client: httpx.Client) -> None:
    answer = ask(client, WORDS, k=75, where={"number": {">=": 70}, "front": "yellow"})
    assert sorted(result["metadata"]["number"] for result in answer["results"]) == [
        70,
        71,
        72,
        73,
        74,
    ]
    where = json.dumps({"front": ["green"]})
    found = client.get("/api/similar", params={"id": "3.jpg", "to": "image", "where": where})
    assert {result["metadata"]["front"] for result in found.json()["results"]} == {"green"}
    assert ask(client, WORDS, where={"nothing": 1}, explain=True)["results"] == []
    for bad in ({"number": {"~": 1}}, {"number": {">": None}}, {"": 1}):
        problem(client.post("/api/search", json={"text": "red", "where": bad}), 422)
    for text in ("[1]", "{", "NaN", "[" * 5000, '{"number": NaN}'):
        problem(client.get("/api/similar", params={"id": "3.jpg", "where": text}), 422)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"text": ""},
        {"text": "   "},
        {"text": "!?"},
        {"text": "zzqx quux"},
        {"text": "☃ 猫 кот"},
        {"text": "a" * 2001},
        {"text": "red", "k": 0},
        {"text": "red", "k": 101},
        {"text": "red", "k": 10**30},
        {"text": "red", "k": 2.5},
        {"text": "red", "to": "sound"},
        {"text": "red\0"},
        {"text": ["red"]},
        {"text": "red", "more": 1},
    ],
)
def test_invalid_queries_are_refused_with_a_reason(
    client: httpx.Client, body: dict[str, Any]
) -> None:
    assert len(problem(client.post("/api/search", json=body), 422)) > 10


@pytest.mark.parametrize(
    "body",
    [b'{"text": NaN}', b'{"text": "\\ud800 red"}', b"{", b"\xff\xfe", b"[" * 60_000, b"null"],
)
def test_bodies_that_are_no_query_are_refused(client: httpx.Client, body: bytes) -> None:
    response = client.post(
        "/api/search", content=body, headers={"content-type": "application/json"}
    )
    assert response.status_code in (400, 422)
    problem(response, response.status_code)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=st.text(max_size=60), k=st.integers(1, 100), explain=st.booleans())
def test_any_text_is_answered_or_refused(
    client: httpx.Client, text: str, k: int, explain: bool
) -> None:
    body = json.dumps({"text": f"red {text}", "k": k, "explain": explain}).encode()
    response = client.post(
        "/api/search", content=body, headers={"content-type": "application/json"}
    )
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        problem(response, 422)
        return
    assert response.status_code == 200
    for word in response.json()["query"]["words"] or []:
        assert f"red {text}"[word["start"] : word["end"]] == word["word"]


def test_concurrent_queries_get_the_results_each_gets_alone(client: httpx.Client) -> None:
    colours = ["red", "green", "blue", "grey", "yellow"]
    texts = [f"a {front} square on a {back}ground" for front in colours for back in colours]
    alone = [ask(client, text, k=3)["results"] for text in texts]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda text: ask(client, text, k=3)["results"], texts * 2))
    for one, other in zip(alone * 2, together, strict=True):
        assert [r["id"] for r in one] == [r["id"] for r in other]
        np.testing.assert_allclose(
            [r["score"] for r in one], [r["score"] for r in other], atol=1e-6
        )
    text = client.get("/metrics").text
    batches = next(line for line in text.splitlines() if line.startswith("ccal_batch_queries_sum"))
    count = next(line for line in text.splitlines() if line.startswith("ccal_batch_queries_count"))
    assert float(batches.split()[1]) > float(count.split()[1])


def test_info_lists_modalities_queries_and_limits(client: httpx.Client) -> None:
    info = client.get("/api/info").json()
    Info.model_validate(info)
    assert info["kind"] == "index"
    assert info["count"] == 150
    assert {m["name"]: (m["kind"], m["count"]) for m in info["modalities"]} == {
        "image": ("image", 75),
        "text": ("text", 75),
    }
    assert {q["kind"]: q["to"] for q in info["queries"]} == {
        "text": ["image", "text"],
        "image": ["text", "image"],
    }
    assert info["model"]["front_ends"] == {"text": "tfidf", "image": "image"}
    assert len(info["model"]["fingerprint"]) == 64
    assert info["has"] == {"map": True, "evaluation": True, "where": True, "explain": True}
    for text in info["examples"]["texts"]:
        assert ask(client, text)["results"]
    for id in info["examples"]["items"]:
        assert client.get("/api/similar", params={"id": id}).status_code == 200


def test_items_page_by_page(client: httpx.Client) -> None:
    first = client.get("/api/items", params={"modality": "image", "limit": 40}).json()
    ItemsAnswer.model_validate(first)
    second = client.get(
        "/api/items", params={"modality": "image", "offset": 40, "limit": 40}
    ).json()
    assert first["total"] == second["total"] == 75
    ids = [item["id"] for item in first["items"] + second["items"]]
    assert len(set(ids)) == 75
    assert ids[0] == AWKWARD
    assert client.get("/api/items", params={"offset": 10**6}).json()["items"] == []
    some = client.get("/api/items", params={"contains": "MIDDLE yellowground", "limit": 3}).json()
    assert (some["total"], len(some["items"])) == (5, 3)
    assert client.get("/api/items", params={"contains": "nobody"}).json()["total"] == 0
    problem(client.get("/api/items", params={"modality": "sound"}), 422)
    problem(client.get("/api/items", params={"limit": 1000}), 422)
    one = client.get("/api/item", params={"id": AWKWARD}).json()
    Result.model_validate(one)
    address = urlsplit(one["media"]["image"])
    assert parse_qs(address.query) == {"id": [AWKWARD]}
    for id in ("nothing", "../../etc/passwd", "x" * 4000, "%00"):
        problem(client.get("/api/item", params={"id": id}), 404)
        problem(client.get("/api/similar", params={"id": id}), 404)
    problem(client.get("/api/item", params={"id": ""}), 422)
    problem(client.get("/api/item", params={"id": "\0"}), 422)


def test_ends_of_dimensions_in_words_and_items(client: httpx.Client) -> None:
    (result,) = ask(client, WORDS, k=1, explain=True)["results"]
    shares = result["why"]["dimensions"]
    assert [abs(share["end"]) for share in shares] == [share["dimension"] for share in shares]
    assert not result["why"]["canonical"]
    assert result["why"]["others"] == 8 - len(shares)
    assert any(word in WORDS.split() for share in shares for word in share["words"])
    ends = [share["end"] for share in shares]
    found = client.get("/api/dimensions", params={"end": ends}).json()
    DimensionsAnswer.model_validate(found)
    assert [one["end"] for one in found["ends"]] == ends
    assert any(one["terms"] for one in found["ends"])
    for one in found["ends"]:
        assert all(value * one["end"] > 0 for _, value in one["words"])
    first = next(one["words"] for one in found["ends"] if one["words"])
    assert first == sorted(first, key=lambda word: -abs(word[1]))
    assert all(0 < share["correlation"] <= 1 for share in shares)
    assert {item["modality"] for one in found["ends"] for item in one["examples"]} == {"image"}
    for wrong in ([0], [9], [-9], [], ["x"], [1] * 33):
        problem(client.get("/api/dimensions", params={"end": wrong}), 422)


def test_the_map_has_every_item(client: httpx.Client) -> None:
    until(lambda: client.get("/api/map").json()["pending"] is None, seconds=300)
    drawn = client.get("/api/map").json()
    MapAnswer.model_validate(drawn)
    assert drawn["total"] == 150
    columns = ("ids", "modalities", "kinds", "labels", "x", "y")
    assert {len(drawn[name]) for name in columns} == {150}
    assert max(map(abs, drawn["x"] + drawn["y"])) == 1
    assert drawn["projection"] in ("pca", "pacmap", "umap")
    if drawn["projection"] == "pca":
        assert 0 < drawn["explained"][1] <= drawn["explained"][0] < 1
    assert all(region["terms"] for region in drawn["regions"])
    assert client.get("/api/map").json() == drawn
    # The two items of a pair lie nearer to each other than other items do.
    places = np.array([drawn["x"], drawn["y"]]).T
    apart = np.linalg.norm(places[:75, None] - places[None, 75:], axis=2)
    assert np.diag(apart).mean() < 0.3 * apart.mean()


def test_the_evaluation_of_the_run(client: httpx.Client, photos: Path) -> None:
    found = client.get("/api/evaluation").json()
    EvaluationAnswer.model_validate(found)
    assert [way["name"] for way in found["directions"]] == ["image -> text", "text -> image"]
    assert {"r1", "r10", "mrr"} <= set(found["directions"][0]["measures"])
    for way in found["directions"]:
        before = way["validation"]
        assert before is None or before["candidates"] > 0
    assert str(photos) not in json.dumps(found)
    names = [plot["name"] for plot in found["plots"]]
    assert "ranks" in names
    for plot in found["plots"]:
        for kind, type in (("svg", "image/svg+xml"), ("png", "image/png")):
            response = client.get(plot[kind])
            assert response.headers["content-type"] == type
            assert "sandbox" in response.headers["content-security-policy"]
        dark = client.get(plot["svg"] + "&theme=dark").content
        assert dark != client.get(plot["svg"]).content
    report = client.get(found["report"])
    assert report.text.startswith("<!")
    assert "script-src" not in report.headers["content-security-policy"]
    for query in ("name=../../model/config", "name=ranks&type=../x", "name=x"):
        problem(client.get(f"/api/evaluation/plot?{query}"), 404)


def test_embeddings_have_the_shape_of_openai(client: httpx.Client) -> None:
    texts = ["a red square", "a blue square at the left"]
    answer = client.post("/v1/embeddings", json={"input": texts, "model": "any"}).json()
    vectors = np.array([entry["embedding"] for entry in answer["data"]], np.float32)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    one = client.post("/v1/embeddings", json={"input": texts[1], "encoding_format": "base64"})
    (entry,) = one.json()["data"]
    same = np.frombuffer(base64.b64decode(entry["embedding"]), "<f4")
    assert same.tolist() == vectors[1].tolist()
    assert "known" in problem(client.post("/v1/embeddings", json={"input": "xyzzy"}), 422)
    assert "1 to 128" in problem(client.post("/v1/embeddings", json={"input": ["a"] * 129}), 413)
