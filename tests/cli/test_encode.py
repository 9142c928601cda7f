"""`ccal encode`: arrays, texts, stdin and tables in, one array out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ccal.data import items
from ccal.model import load
from ccal.runs import Run
from tests.cli.conftest import SMALL, environment, invoke, make_files


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that knows texts; not to be changed."""
    folder = tmp_path_factory.mktemp("texts")
    make_files(folder)
    columns = ["--x", f"image={folder / 'image.npy'}", "--y", "text=caption"]
    outcome = invoke("train", folder / "pairs.csv", *columns, "-o", folder / "run", *SMALL)
    assert outcome.code == 0, outcome
    return folder


def test_arrays_in_chunks(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(items, "_CHUNK", 100)
    out = tmp_path / "out.npy"
    outcome = invoke("encode", trained / "run", "image", trained / "image.npy", "-o", out)
    assert outcome.code == 0, outcome
    assert "240 embeddings" in outcome.err
    expected = Run.open(trained / "run").model().encode("image", np.load(trained / "image.npy"))
    embedded = np.load(out)
    assert embedded.dtype == np.float32
    np.testing.assert_allclose(embedded, expected.numpy(), atol=1e-5)
    assert [path.name for path in tmp_path.iterdir()] == ["out.npy"]


def test_numbers_that_correct_for_hubs_are_explained(trained: Path, tmp_path: Path) -> None:
    model = load(trained / "run" / "model")
    both = [
        model.encode(n, np.load(trained / f"{n}.npy"), corrected=False) for n in ("image", "text")
    ]
    model.correct_hubs((both[0], both[1]), neighbours=3, weight=0.5)
    model.save(tmp_path / "hubs")
    found = tmp_path / "found.npy"
    outcome = invoke("encode", tmp_path / "hubs", "image", trained / "image.npy", "-o", found)
    assert outcome.code == 0, outcome
    more = np.load(found).shape[1] - model.dim
    assert (
        f"240 embeddings of {model.dim} dimensions, and {more} more that correct for hubs (items "
        "that turn up in too many answers)." in outcome.err
    )


def test_an_array_of_an_archive(trained: Path, tmp_path: Path) -> None:
    image = np.load(trained / "image.npy")
    np.savez(tmp_path / "several.npz", a=image[:3], b=image[3:5])
    out = tmp_path / "out.npy"
    options = ["image", tmp_path / "several.npz", "--key", "b", "-o", out]
    assert invoke("encode", trained / "run", *options).code == 0
    assert len(np.load(out)) == 2


def test_lines_stdin_and_columns_agree(texts: Path, tmp_path: Path) -> None:
    lines = ["red bird runs here", "blue dog sits there", "green cat flies here"]
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "a.csv").write_text("\n".join(["words", *lines]) + "\n")
    run = texts / "run"
    assert invoke("encode", run, "text", tmp_path / "a.txt", "-o", tmp_path / "1.npy").code == 0
    table = [tmp_path / "a.csv", "--column", "words", "-o", tmp_path / "2.npy"]
    assert invoke("encode", run, "text", *table).code == 0
    command = [sys.executable, "-m", "ccal", "encode", str(run), "text", "-", "-o", "3.npy"]
    subprocess.run(
        command, input="\n".join(lines), text=True, check=True, cwd=tmp_path, env=environment()
    )
    one, two, three = (np.load(tmp_path / f"{i}.npy") for i in (1, 2, 3))
    assert len(one) == 3
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one, three)


def test_blank_lines_stay_and_are_reported(texts: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("red bird\n\nblue dog\n")
    outcome = invoke("encode", texts / "run", "text", tmp_path / "a.txt", "-o", tmp_path / "o.npy")
    assert outcome.code == 0, outcome
    assert "1 of 3 lines are blank" in outcome.err
    assert len(np.load(tmp_path / "o.npy")) == 3


def test_the_output_has_the_rights_of_any_new_file(trained: Path, tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        options = ["image", trained / "image.npy", "-o", tmp_path / "out.npy"]
        assert invoke("encode", trained / "run", *options).code == 0
    finally:
        os.umask(old)
    assert (tmp_path / "out.npy").stat().st_mode & 0o777 == 0o640


def test_a_full_disk_is_one_line(trained: Path, tmp_path: Path) -> None:
    # A limit on the size of files stands for a disk that is full.
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000));"
        "from ccal.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "encode", str(trained / "run"), "image"]
    command += [str(trained / "image.npy"), "-o", str(tmp_path / "out.npy")]
    result = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert result.returncode == 2, result.stderr
    assert result.stderr == f"error: {tmp_path / 'out.npy'}: File too large\n"
    assert list(tmp_path.iterdir()) == []


def test_empty_texts_of_a_table_are_reported(texts: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('words,n\nred bird,1\n"",2\n')
    options = [tmp_path / "a.csv", "--column", "words", "-o", tmp_path / "o.npy"]
    outcome = invoke("encode", texts / "run", "text", *options)
    assert outcome.code == 0, outcome
    assert "warning: 1 of 2 texts of words are empty." in outcome.err


def test_nothing_is_overwritten_without_force(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.npy"
    out.write_bytes(b"precious")
    arguments = ["encode", trained / "run", "image", trained / "image.npy", "-o", out]
    outcome = invoke(*arguments)
    assert outcome.code == 2
    assert out.read_bytes() == b"precious"
    assert invoke(*arguments, "--force").code == 0
    assert len(np.load(out)) == 240


BAD = {
    "modality": (["audio", "image.npy"], "joins image and text; it has no 'audio'."),
    "missing": (["image", "no.npy"], "no.npy: no such file."),
    "missing text": (["text", "no.txt"], "no.txt: cannot be read (No such file"),
    "suffix": (["image", "image.wav"], "image.wav: expected .npy, .npz, .txt"),
    "table": (["text", "pairs.csv"], "pairs.csv is a table; name the column with --column."),
    "column": (["text", "pairs.csv", "--column", "captoin"], "no column 'captoin'"),
    "key": (["image", "image.npy", "--key", "a"], "--key names an array of a .npz file."),
    "width": (["image", "text.npy"], "16"),
    "NaN": (["image", "nan.npy"], "1 NaN or infinite values in 1 of 240 rows (counted from 0: 2)"),
    "texts": (["text", "lines.txt"], "text has no front end"),
    "empty": (["text", "empty.txt"], "empty.txt: there are no lines."),
    "bytes": (["text", "bytes.txt"], "bytes.txt: not UTF-8 text"),
    "table of bytes": (
        ["text", "bytes.csv", "--column", "words"],
        "bytes.csv, line 2: words is not UTF-8 text; save the file as UTF-8.",
    ),
    "range": (["image", "large.npy"], "large.npy: values beyond float32"),
    "out": (["image", "image.npy", "-o", "out.csv"], "expected a file that ends in .npy"),
    "folder": (["image", "image.npy", "-o", "no/out.npy"], "there is no folder no"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case: str, trained: Path, files: Path) -> None:
    image = np.load("image.npy")
    image[2, 1] = np.inf
    np.save("nan.npy", image)
    Path("lines.txt").write_text("a dog\n")
    Path("empty.txt").touch()
    Path("bytes.txt").write_bytes(b"\xff\xfe\xfa\n")
    Path("bytes.csv").write_bytes(b"words\ncaf\xe9\n")
    np.save("large.npy", np.full((3, 20), 1e300))
    before = set(Path().iterdir())
    arguments, message = BAD[case]
    outcome = invoke("encode", trained / "run", "-o", "out.npy", *arguments)
    assert outcome.code == 2, outcome
    assert message in outcome.err
    assert set(Path().iterdir()) == before
