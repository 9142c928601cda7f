"""`ccal index` and `ccal search`: real files in, ranked items out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ccal import DualEncoder, load
from ccal.encoders import DenseTower
from ccal.evaluation.calibration import Calibration
from ccal.features import Backbone, ImageFeatures, TfidfVectoriser, register_backbone
from ccal.retrieval import Index
from ccal.retrieval.backends.folder import compaction
from ccal.runs import Run
from tests.cli.conftest import SMALL, invoke, make_files


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that knows texts, and an index of its images and captions; not to be changed."""
    folder = tmp_path_factory.mktemp("indexed")
    make_files(folder)
    columns = ["--x", f"image={folder / 'image.npy'}", "--y", "text=caption"]
    # With rows of a caption together, the validation pairs would be too few to calibrate scores.
    options = ["--allow-leaks", "-o", folder / "run", *SMALL]
    outcome = invoke("train", folder / "pairs.csv", *columns, *options)
    assert outcome.code == 0, outcome
    # The validation pairs have too few different texts to estimate it.
    model = load(folder / "run" / "model")
    model.calibrations = {"text": Calibration(12.0, 0.3, 1.0, 21, 24)}
    model.save(folder / "run" / "model")
    out = ["-o", folder / "all.index"]
    outcome = invoke("index", folder / "run", folder / "image.npy", "--modality", "image", *out)
    assert outcome.code == 0, outcome
    assert "Added 240 image items" in outcome.err
    table = [folder / "pairs.csv", "--column", "caption", "--metadata", "kind"]
    table += ["--metadata", "part", "-m", "text"]
    outcome = invoke("index", folder / "run", *table, *out)
    assert outcome.code == 0, outcome
    assert "holds 240 image and 240 text items" in outcome.err
    return folder


def found(*arguments: object) -> Any:
    outcome = invoke("search", *arguments, "--json")
    assert outcome.code == 0, outcome
    return json.loads(outcome.out)


def test_words_find_images(texts: Path) -> None:
    answer = found(texts / "all.index", "red bird runs here", "--k", 3)
    assert answer["query"] == "red bird runs here"
    model = Run.open(texts / "run").model()
    with Index.open(texts / "all.index", model) as index:
        hits = index.search(text="red bird runs here", k=3)
    assert [hit["id"] for hit in answer["hits"]] == [hit.id for hit in hits]
    assert {hit["modality"] for hit in answer["hits"]} == {"image"}


def test_a_person_reads_columns(texts: Path) -> None:
    outcome = invoke("search", texts / "all.index", "red bird", "--within", "text", "-k", 2)
    assert outcome.code == 0, outcome
    header, first, second = outcome.out.splitlines()
    assert header.split() == ["rank", "score", "id"]
    assert first.split()[0] == "1"
    assert "text=red bird" in first
    assert "kind=" in first
    assert first.index("text-") == second.index("text-") == header.index("id")


def test_filters(texts: Path) -> None:
    where = ["--within", "text", "--k", 300, "--filter", "kind>=1", "--filter", "part=test"]
    hits = found(texts / "all.index", "red bird", *where)["hits"]
    assert {(hit["metadata"]["kind"] >= 1, hit["metadata"]["part"]) for hit in hits} == {
        (True, "test")
    }
    outcome = invoke("search", texts / "all.index", "red", "--within", "text", "--filter", "kind=9")
    assert outcome.code == 0
    assert outcome.out == "nothing found\n"
    outcome = invoke("search", texts / "all.index", "red", "--filter", "kind")
    assert outcome.code == 2
    assert "--filter kind: expected KEY=VALUE" in outcome.err
    outcome = invoke("search", texts / "all.index", "a", "--filter", "n=1", "--filter", "n>0")
    assert "not both" in outcome.err


def test_batches_embeddings_features_and_items(texts: Path, tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("red bird\nblue dog\n")
    answers = found(texts / "all.index", tmp_path / "q.txt", "-k", 2)
    assert [answer["query"] for answer in answers] == ["red bird", "blue dog"]
    encoded = invoke("encode", texts / "run", "text", tmp_path / "q.txt", "-o", tmp_path / "q.npy")
    assert encoded.code == 0, encoded
    vectors = found(texts / "all.index", tmp_path / "q.npy", "--within", "image", "-k", 2)
    assert [[h["id"] for h in a["hits"]] for a in vectors] == [
        [h["id"] for h in a["hits"]] for a in answers
    ]
    np.save(tmp_path / "f.npy", np.load(texts / "image.npy")[:2])
    features = found(texts / "all.index", tmp_path / "f.npy", "-m", "image", "--within", "image")
    assert [answer["hits"][0]["id"] for answer in features] == ["image-1", "image-2"]
    like = found(texts / "all.index", "--like", "image-1", "-k", 4)
    assert [hit["modality"] for hit in like["hits"]] == ["text"] * 4
    plain = invoke("search", texts / "all.index", tmp_path / "q.txt", "-k", 1)
    *lines, _, meaning = plain.out.splitlines()
    assert lines[::4] == ["red bird", "blue dog"]
    hit = answers[0]["hits"][0]
    assert lines[1].split() == ["rank", "match", "chance", "score", "id"]
    assert lines[2].split()[1:3] == [hit["match"], f"{int(100 * hit['chance'])}%"]
    assert meaning.startswith("chance: that a hit is exactly the right one of 240, estimated on 21")
    # Within a modality, and by vectors of unknown origin, nobody knows how good a hit is.
    for answer in (features[0], vectors[0]):
        assert (answer["hits"][0]["chance"], answer["hits"][0]["match"]) == (None, None)


def test_ids_lines_and_rebuilding(texts: Path, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"c": "red bird", "n": "one", "x": {"y": [1]}}\n')
    out = ["-m", "text", "-o", tmp_path / "new"]
    table = [tmp_path / "t.jsonl", "--column", "c", "--id", "n", "--metadata", "x"]
    assert invoke("index", texts / "run", *table, *out, "--float16").code == 0
    hit = found(tmp_path / "new", "red", "--filter", "x.y=1")["hits"][0]
    assert hit["id"] == "one"
    assert hit["metadata"] == {"text": "red bird", "x": {"y": [1]}}
    again = invoke("index", texts / "run", *table, *out)
    assert again.code == 2
    assert "an item 'one' already" in again.err
    (tmp_path / "lines.txt").write_text("blue dog\nred cat\n")
    assert invoke("index", texts / "run", tmp_path / "lines.txt", *out, "--rebuild").code == 0
    with Index.open(tmp_path / "new") as index:
        assert index.ids() == ["text-1", "text-2"] or index.count() == 2
        assert index.get(index.ids()[:1])[0].metadata == {"text": "blue dog"}


def test_another_model(texts: Path, trained: Path, tmp_path: Path) -> None:
    outcome = invoke("search", texts / "all.index", "red", "--model", trained / "run")
    assert outcome.code == 2
    assert "made by another model" in outcome.err
    lines = ["-m", "text", "-o", texts / "all.index"]
    outcome = invoke("index", trained / "run", trained / "text.npy", *lines)
    assert outcome.code == 2
    assert "made by another model" in outcome.err


def test_a_model_that_has_moved(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "run", tmp_path / "run")
    place = [tmp_path / "a", trained / "image.npy", "-m", "image"]
    index = ["-m", "image", "-o", tmp_path / "a"]
    assert invoke("index", tmp_path / "run", trained / "image.npy", *index).code == 0
    shutil.move(tmp_path / "run", tmp_path / "moved")
    outcome = invoke("search", *place)
    assert "which is gone; say where with --model RUN" in outcome.err
    model = ["--model", tmp_path / "moved" / "model", "-k", 1]
    assert found(*place, *model)[5]["hits"][0]["id"] == "image-6"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search", "nowhere", "red"], "nowhere is no index"),
        (["search", "{index}"], "Give one QUERY"),
        (["search", "{index}", ""], "no words to search by"),
        (["search", "{index}", "zzz qqq"], "None of these words is known"),
        (["search", "{index}", "nothing.jpg"], "nothing.jpg: no such file"),
        (["search", "{index}", "{folder}"], "is a folder"),
        (["search", "{index}", "red", "--within", "sound"], "no 'sound'"),
        (["search", "{index}", "--like", "none"], "no item 'none'"),
        (["index", "{run}", "{image}", "-m", "sound", "-o", "a"], "no 'sound'"),
        (["index", "{run}", "{image}", "-m", "image", "-o", "a", "--id", "b"], "name its --column"),
        (["index", "{run}", "{image}", "-m", "image", "-o", "{index}", "--dims", "3"], "new index"),
        (
            ["index", "{run}", "{image}", "-m", "image", "-o", "{index}", "--codes", "8"],
            "new index",
        ),
        (["index", "{run}", "{image}", "-m", "image", "-o", "x://y"], "is no place for an index"),
    ],
)
def test_bad_arguments_are_refused(texts: Path, arguments: list[str], message: str) -> None:
    names = {"index": texts / "all.index", "run": texts / "run", "image": texts / "image.npy"}
    names["folder"] = texts
    outcome = invoke(*(argument.format(**names) for argument in arguments))
    assert outcome.code == 2
    assert message in outcome.err.replace("\n", " ")


def test_photos_and_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("PIL.Image")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    register_backbone("mean-colour", lambda: Backbone(torch.nn.Identity().eval(), size=8))
    torch.manual_seed(0)
    texts = TfidfVectoriser(min_count=1, lemmatise=False).fit(["red green blue"])
    model = DualEncoder(
        dim=3,
        projection="none",
        front_ends={"photo": ImageFeatures("mean-colour"), "words": texts},
        photo=DenseTower(3, 3),
        words=DenseTower(3, 3),
    )
    model.save("model")
    Path("photos").mkdir()
    for name, colour in (("red", (200, 0, 0)), ("green", (0, 200, 0)), ("blue", (0, 0, 200))):
        image.new("RGB", (20, 20), colour).save(f"photos/{name}.png")
    outcome = invoke("index", "model", "photos", "-m", "photo", "-o", "a")
    assert outcome.code == 0, outcome
    hits = found("a", "photos/green.png")["hits"]
    assert hits[0]["id"] == hits[0]["file"] == "photos/green.png"
    assert len(found("a", "red")["hits"]) == 3
    Path("table.csv").write_text("file,year,name\nphotos/red.png,1990,r\nphotos/blue.png,,b\n")
    columns = ["--column", "file", "--id", "name", "--metadata", "year"]
    outcome = invoke("index", "model", "table.csv", *columns, "-m", "photo", "-o", "b")
    assert outcome.code == 0, outcome
    hits = found("b", "photos/red.png", "--filter", "year<2000")["hits"]
    assert [(hit["id"], hit["file"]) for hit in hits] == [("r", "photos/red.png")]
    assert [hit["id"] for hit in found("b", "red", "--filter", "year=null")["hits"]] == ["b"]


def test_fewer_dimensions(texts: Path, tmp_path: Path) -> None:
    place = ["-m", "image", "-o", tmp_path / "small", "--dims", 3]
    assert invoke("index", texts / "run", texts / "image.npy", *place).code == 0
    assert len(found(tmp_path / "small", "red bird", "-k", 4)["hits"]) == 4
    with Index.open(tmp_path / "small") as index, Index.open(texts / "all.index") as whole:
        assert whole.binding.dim > index.binding.dim >= 3


def test_a_newer_model_embeds_all_items_again(texts: Path, tmp_path: Path) -> None:
    """A newer model embeds rows of an array and texts of a table, in one step."""
    index = tmp_path / "all.index"
    shutil.copytree(texts / "all.index", index)
    columns = ["--x", f"image={texts / 'image.npy'}", "--y", "text=caption"]
    seed = ["--split-seed", 5, "-o", tmp_path / "newer"]
    assert invoke("train", texts / "pairs.csv", *columns, *seed, *SMALL).code == 0
    refused = invoke("search", index, "red bird", "--model", tmp_path / "newer")
    assert "made by another model" in refused.err
    outcome = invoke("index", tmp_path / "newer", "--rebuild", "-o", index)
    assert outcome.code == 0, outcome
    assert "Embedded 480 items" in outcome.err
    model = Run.open(tmp_path / "newer").model()
    with Index.open(index, model) as rebuilt, Index.open(texts / "all.index") as old:
        assert sorted(rebuilt.ids()) == sorted(old.ids())
        assert rebuilt.get(["text-300"]) == old.get(["text-300"])
        features = np.load(texts / "image.npy")
        expected = model.encode("image", features[[6]]).numpy()
        expected /= np.linalg.norm(expected)
        np.testing.assert_allclose(rebuilt.vectors(["image-7"]), expected, atol=1e-5)
        assert rebuilt.get(["image-7"])[0].file == f"{texts / 'image.npy'}#6"
        text = rebuilt.get(["text-300"])[0].metadata["text"]
        assert rebuilt.search(text=text, within="text", k=1)[0].score > 0.999
    assert len(found(index, "red bird")["hits"]) == 10


def test_items_that_cannot_be_read_again_stop_a_rebuild(texts: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.load(texts / "image.npy")[:4])
    out = ["-o", tmp_path / "new"]
    assert invoke("index", texts / "run", tmp_path / "rows.npy", "-m", "image", *out).code == 0
    (tmp_path / "rows.npy").rename(tmp_path / "moved.npy")
    outcome = invoke("index", texts / "run", "--rebuild", *out)
    assert outcome.code == 2
    assert "4 items cannot be read again; 'image-1' came from" in outcome.err
    np.save(tmp_path / "rows.npy", np.load(texts / "image.npy")[:2])
    outcome = invoke("index", texts / "run", "--rebuild", *out)
    assert "has 2 rows; row 2 was indexed" in outcome.err
    with Index.open(tmp_path / "new") as index:
        assert index.count() == 4
    for more in (["-m", "image"], ["--workers", 2], ["--engine", "ray"]):
        outcome = invoke("index", texts / "run", "--rebuild", *more, *out)
        assert "it takes no --modality" in outcome.err
    outcome = invoke("index", texts / "run", tmp_path / "rows.npy", *out)
    assert "add --modality image or --modality text" in outcome.err


def test_help_names_every_backend() -> None:
    for command in ("index", "search"):
        outcome = invoke(command, "--help")
        assert outcome.code == 0
        for name in ("postgresql://", "milvus://"):
            assert name in outcome.out


def test_codes(texts: Path, tmp_path: Path) -> None:
    place = ["-m", "image", "-o", tmp_path / "coded", "--codes", 64]
    assert invoke("index", texts / "run", texts / "image.npy", *place).code == 0
    with Index.open(tmp_path / "coded") as index:
        assert index.binding.codes == 64
    wrong = ["-m", "image", "-o", tmp_path / "wrong", "--codes", 12]
    outcome = invoke("index", texts / "run", texts / "image.npy", *wrong)
    assert outcome.code == 2
    assert "multiple of 8 bits, got 12" in outcome.err


def test_tables_that_are_not_utf8_or_have_empty_texts(texts: Path, tmp_path: Path) -> None:
    table, out = tmp_path / "a.csv", ["-m", "text", "-o", tmp_path / "new"]
    options = [table, "--column", "words", "--metadata", "place", *out]
    table.write_bytes(b"words,place\nred bird,caf\xe9\n")
    outcome = invoke("index", texts / "run", *options)
    assert outcome.code == 2
    assert f"{table}, line 2: place is not UTF-8 text" in outcome.err
    assert not (tmp_path / "new").exists()
    table.write_text("words,place\nred bird,here\n,there\n")
    assert "1 of 2 texts of words are empty" in invoke("index", texts / "run", *options).err
    table.write_text("words,place\nred bird,here\nblue bird,\n")
    outcome = invoke("index", texts / "run", *options, "--id", "place")
    assert f"{table}, line 3: place is missing; it has the ids." in outcome.err


def test_ctrl_c_reports_items_that_were_added(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    (tmp_path / "a.txt").write_text("red bird\nblue dog\n")
    options = [tmp_path / "a.txt", "-m", "text", "-o", tmp_path / "new"]
    for held in (2, 4):
        with monkeypatch.context() as patch:
            patch.setattr(compaction, "compact_if_due", stop)
            outcome = invoke("index", texts / "run", *options)
        assert outcome.code == 130
        assert f"Added 2 text items to {tmp_path / 'new'}, which holds {held} text" in outcome.err
