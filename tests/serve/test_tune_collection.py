"""A library of tunes over HTTP: a recording finds the score, a line of score the sound."""

from __future__ import annotations

import re
import shutil
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from ccal import DualEncoder
from ccal.errors import InputError
from ccal.music import SheetAudioStore, TuneLibrary, parse_abc, read_lines
from ccal.music.engraving import engrave_page
from ccal.serve.schemas import Info, ItemsAnswer, MapAnswer, SearchAnswer
from ccal.serve.tune_collection import TuneCollection
from tests.cli.conftest import Outcome, invoke
from tests.serve.conftest import problem
from tests.serve.live import Live, until

soundfile = pytest.importorskip("soundfile")


@pytest.fixture(scope="module")
def tunes(library: TuneLibrary, model: DualEncoder) -> Iterator[httpx.Client]:
    server = Live(TuneCollection(library, model, title="dances"))
    with server.client() as client:
        yield client
    server.stop()


def send(client: httpx.Client, content: bytes, **options: Any) -> dict[str, Any]:
    response = client.post("/api/search/file", content=content, params=options)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    SearchAnswer.model_validate(answer)
    return answer


def test_a_recording_finds_its_score(tunes: httpx.Client, library: TuneLibrary) -> None:
    samples, rate = soundfile.read(BytesIO(library.wav(2)), dtype="float32")
    part = BytesIO()
    soundfile.write(part, samples[3 * rate : 11 * rate], rate, format="FLAC")
    answer = send(tunes, part.getvalue(), k=3)
    assert answer["query"]["kind"] == "audio"
    assert answer["within"] == "sheet"
    best = answer["results"][0]
    expected = library.identify((samples[3 * rate : 11 * rate], rate), k=3)
    assert [r["id"] for r in answer["results"]] == [f"tune-{m.tune}" for m in expected]
    assert best["place"]["columns"] == pytest.approx(expected[0].columns, abs=30)
    assert best["score"] == pytest.approx(expected[0].score, abs=0.02)
    assert best["kind"] == "sheet"
    assert best["why"] is None
    assert best["place"]["path"]


def test_a_line_of_score_finds_its_sound(tunes: httpx.Client, library: TuneLibrary) -> None:
    answer = send(tunes, library.staff_png(1, (200, 700)), k=2)
    assert answer["query"]["kind"] == "sheet"
    assert answer["within"] == "audio"
    assert answer["results"][0]["id"] == "tune-1"
    assert answer["results"][0]["kind"] == "audio"


def written(library: TuneLibrary, *tunes: int) -> list[Image.Image]:
    """A page with each of these tunes."""
    pages = [engrave_page(parse_abc(library.abc(tune)), look=tune) for tune in tunes]
    return [Image.fromarray(page) for page in pages]


def test_a_page_has_its_lines_and_pictures(tunes: httpx.Client, library: TuneLibrary) -> None:
    (page,) = written(library, 2)
    file = BytesIO()
    page.save(file, "PNG")
    answer = send(tunes, file.getvalue(), k=2, explain=True)
    (tune,) = answer["sheet"]["tunes"]
    assert [result["id"] for result in tune["results"]] == [r["id"] for r in answer["results"]]
    assert tune["results"][0]["id"] == "tune-2"
    expected = read_lines(np.asarray(page.convert("RGB")))
    assert [line["number"] for line in tune["lines"]] == [line.number for line in expected]
    for line in tune["lines"]:
        assert all(0 <= share <= 1 for point in line["outline"] for share in point)
    (shown,) = answer["sheet"]["pages"]
    with Image.open(BytesIO(b64decode(shown))) as small:
        assert small.format == "JPEG"
        assert max(small.size) <= 1200
        assert small.width / small.height == pytest.approx(page.width / page.height, rel=0.01)
    # Programs that do not ask for pictures get none.
    assert send(tunes, file.getvalue(), k=2)["sheet"]["pages"] == []


def test_a_pdf_file_of_several_tunes(tunes: httpx.Client, library: TuneLibrary) -> None:
    pytest.importorskip("pypdfium2")
    pages, file = written(library, 1, 3), BytesIO()
    pages[0].save(file, "PDF", save_all=True, append_images=pages[1:], resolution=150)
    answer = send(tunes, file.getvalue(), k=2, explain=True)
    found = answer["sheet"]["tunes"]
    assert [tune["results"][0]["id"] for tune in found] == ["tune-1", "tune-3"]
    assert [{line["page"] for line in tune["lines"]} for tune in found] == [{0}, {1}]
    assert len(answer["sheet"]["pages"]) == 2


def test_pdf_files_have_limits(tunes: httpx.Client, library: TuneLibrary) -> None:
    pytest.importorskip("pypdfium2")

    def refused(file: BytesIO, status: int) -> str:
        return problem(tunes.post("/api/search/file", content=file.getvalue()), status)

    small, many, large = Image.new("1", (9, 9)), BytesIO(), BytesIO()
    small.save(many, "PDF", save_all=True, append_images=[small] * 10)
    assert "11 pages" in refused(many, 413)
    Image.new("1", (9000, 6000)).save(large, "PDF", resolution=1000)
    assert "50 megapixels" in refused(large, 413)
    assert "PDF" in refused(BytesIO(b"%PDF-1.7 and nothing more"), 422)


def test_a_tune_finds_itself_in_the_other_modality(tunes: httpx.Client) -> None:
    for within in ("sheet", "audio"):
        response = tunes.get("/api/similar", params={"id": "tune-3", "to": within, "k": 2})
        answer = response.json()
        SearchAnswer.model_validate(answer)
        assert answer["within"] == within
        assert answer["results"][0]["id"] == "tune-3"
        assert answer["query"]["item"]["id"] == "tune-3"


def test_staves_sounds_pages_and_map(tunes: httpx.Client, library: TuneLibrary) -> None:
    info = tunes.get("/api/info").json()
    Info.model_validate(info)
    assert (info["kind"], info["title"], info["count"]) == ("tunes", "dances", 4)
    assert set(info["accepts"]) == {"audio", "sheet"}
    page = tunes.get("/api/items").json()
    ItemsAnswer.model_validate(page)
    assert [item["title"] for item in page["items"]] == library.names
    for item in page["items"]:
        staff = tunes.get(item["media"]["staff"])
        assert staff.headers["content-type"] == "image/svg+xml"
        place = item["place"]
        width = float(re.findall(rb'<svg width="([0-9.]+)"', staff.content)[0])
        assert place["width"] - 1 < width <= place["width"]
        sound = tunes.get(item["media"]["audio"])
        assert sound.headers["content-type"] == "audio/wav"
        samples, rate = soundfile.read(BytesIO(sound.content))
        assert len(samples) / rate == pytest.approx(place["duration"], abs=3)
        part = tunes.get(item["media"]["audio"], headers={"range": "bytes=0-3"})
        assert (part.status_code, part.content) == (206, b"RIFF")
    named = tunes.get("/api/items", params={"contains": "3 DANCE"}).json()
    assert (named["total"], named["items"][0]["title"]) == (1, "Dance 3")
    drawn = tunes.get("/api/map").json()
    MapAnswer.model_validate(drawn)
    assert len(drawn["ids"]) == 8
    problem(tunes.get("/api/evaluation"), 404)
    assert tunes.get("/ready").status_code == 200
    assert 'ccal_items{modality="sheet"} 4.0' in tunes.get("/metrics").text


def test_queries_that_tunes_cannot_answer(tunes: httpx.Client) -> None:
    problem(tunes.post("/api/search", json={"text": "a jig"}), 422)
    for id in ("tune-4", "tune--1", "tune-01", "tune-", "tune-99999999999", "4", "tune-٣"):
        problem(tunes.get("/api/item", params={"id": id}), 404)
        problem(tunes.get("/media/staff", params={"id": id}), 404)
    problem(tunes.get("/media/image", params={"id": "tune-1"}), 404)
    problem(tunes.get("/api/similar", params={"id": "tune-1", "to": "text"}), 422)
    problem(tunes.get("/api/similar", params={"id": "tune-1", "where": '{"key": "C"}'}), 422)
    problem(tunes.get("/api/items", params={"modality": "text"}), 422)
    blank = BytesIO()
    Image.new("L", (300, 60), 255).save(blank, "PNG")
    assert "staff" in problem(tunes.post("/api/search/file", content=blank.getvalue()), 422)
    silent = BytesIO()
    soundfile.write(silent, np.zeros(44_100), 44_100, format="WAV")
    assert "silent" in problem(tunes.post("/api/search/file", content=silent.getvalue()), 422)
    to_itself = tunes.post("/api/search/file", content=silent.getvalue(), params={"to": "audio"})
    problem(to_itself, 422)


def test_a_store_of_tunes_is_served_from_the_command_line(
    store: SheetAudioStore,
    library: TuneLibrary,
    model: DualEncoder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model.save(tmp_path / "model")
    served = []
    monkeypatch.setattr(
        "ccal.serve.app.run", lambda app, listener, started, over: served.append(started())
    )
    # Other tests may have put a library of this model into the store.
    bare = shutil.copytree(
        store.folder, tmp_path / "bare", ignore=shutil.ignore_patterns("library-*")
    )
    for location, said in (
        (bare, "Tunes that are new are engraved"),
        (library.folder, "4 sheet and 4 audio items"),
    ):
        outcome = invoke("serve", location, "--model", tmp_path / "model", "--port", 0)
        assert outcome.code == 0, outcome
        assert said in outcome.err
    assert len(served) == 2


def start(monkeypatch: pytest.MonkeyPatch, make: Callable[..., Any], over: Any) -> Outcome:
    """`ccal serve` without arguments until `over`; `make` makes its tunes."""
    from ccal.serve import app as application

    real = application.run

    def run(app: Any, listener: Any, started: Any, failed: Callable[[], bool]) -> None:
        port = listener.getsockname()[1]
        real(app, listener, started, lambda: failed() or over(port))

    monkeypatch.setattr("ccal.music.default.default_library", make)
    monkeypatch.setattr("ccal.serve.app.run", run)
    # In another thread: the browser tests may have an event loop running in this one.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(invoke, "serve", "--port", "0", "--no-open").result()


def test_the_bundled_tunes_are_rendered_while_the_server_answers(
    monkeypatch: pytest.MonkeyPatch, library: TuneLibrary, model: DualEncoder, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("ccal.music.default.default_model", lambda: model)
    seen: list[int] = []

    def make(model: DualEncoder, *, telling: Any) -> TuneLibrary:
        telling("rendering tunes")(57, 184)
        until(lambda: 503 in seen)
        telling("embedding tunes")(5, 10)
        return library

    def over(port: int) -> bool:
        # From another thread, since this one runs the server, which may stop meanwhile.
        def look() -> None:
            with suppress(httpx.HTTPError):
                answer = httpx.get(f"http://127.0.0.1:{port}/ready", trust_env=False)
                seen.append(answer.status_code)

        threading.Thread(target=look, daemon=True).start()
        return 200 in seen

    outcome = start(monkeypatch, make, over)
    assert outcome.code == 0, outcome
    said = outcome.err.splitlines()
    assert said[0].startswith("Tunes that are new are engraved, played and embedded")
    assert said[1].startswith("Open http://127.0.0.1:")
    assert said[2:] == ["Serving folk tunes: 4 sheet and 4 audio items.", "Stopped."]


def test_tunes_that_cannot_be_rendered_end_the_server(
    monkeypatch: pytest.MonkeyPatch, model: DualEncoder, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("ccal.music.default.default_model", lambda: model)

    def make(*_: Any, **__: Any) -> Any:
        raise InputError("The disk is full.")

    outcome = start(monkeypatch, make, lambda port: False)
    assert outcome.code == 2
    assert outcome.err.endswith("error: The disk is full.\n")
