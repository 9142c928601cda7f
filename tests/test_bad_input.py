"""Bad input of every kind gets an error in one line, before anything large is allocated."""

from __future__ import annotations

import io
import os
import random
import resource
import signal
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer

import ccal
from ccal import CCA, DualEncoder
from ccal.cli.app import app
from ccal.columns import printable
from ccal.data.arrays import load_array
from ccal.encoders import DenseTower
from ccal.errors import CcalError, InputError
from ccal.retrieval import Index
from tests.cli.conftest import invoke

HUGE = "{'descr': '<f4', 'fortran_order': False, 'shape': (8000000000000, 8), }\n"
WRONG: list[Any] = [
    *(None, 3, -1, 0, 1.5, float("nan"), 10**30, 10**400, True, "", "a", "\ud800", "a\0b", b"a"),
    *([], [None], [1, [2]], {}, {"a": 1}, {1: 2}, {"a": {"b": float("inf")}}, object(), len),
    *(np.zeros(0), np.array(["a"]), np.zeros((2, 3), complex), torch.zeros(3, 0), 1j, {3}),
]


def header(text: str) -> bytes:
    """The beginning of a .npy file."""
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    towers: Any = {"image": DenseTower(4, 4), "text": DenseTower(4, 4)}
    model = DualEncoder(dim=4, projection="none", **towers)
    facts = [{"n": n, "list": [n, "a"]} for n in range(4)]
    with Index.build(tmp_path / "i", model, torch.eye(4), modality="image", metadata=facts) as made:
        yield made


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.npy", header(HUGE.replace("8000000000000", "-5")) + bytes(80), "must be positive"),
        ("x.npy", header(HUGE[:60]) + bytes(80), "not a readable .npy file"),
        ("x.npy", header(HUGE) + bytes(80), "not a readable .npy file"),
        ("x.npz", header(HUGE), "too short for its shape"),
        (
            "x.npz",
            header(HUGE.replace("8000000000000", "4000000")) + bytes(128_000_000),
            "thousand",
        ),
    ],
)
def test_arrays_that_are_not_what_they_claim(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    if name.endswith(".npz"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("x.npy", content)
    else:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_array(path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train --x training=a.npy --y b.npy", "A modality cannot be called 'training'"),
        ("train --x a.npy --y b.npy --set seed=1e23", "seed must be a whole number"),
        (
            "train --x a.npy --y b.npy --set seed=100000000000000000000",
            "seed must be a whole number",
        ),
        (f"train --x a.npy --y b.npy --set seed={'9' * 400}", "seed must be a whole number"),
        ("train --x a.npy --y b.npy --dim 100000", "dim must be a whole number"),
        ("serve x --max-upload nan", "--max-upload must be a finite number"),
        ("serve x --max-megapixels inf", "--max-megapixels must be a finite number"),
        ("search milvus://me:secret@host:99999/x a", "'milvus://host:99999/x' is no place for"),
    ],
)
def test_options_out_of_range(
    arguments: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.npy", "b.npy"):
        np.save(name, np.eye(9, 3))
    outcome = invoke(*arguments.split(" "))
    assert outcome.code == 2
    assert message in outcome.err.replace("\n", " ")


def test_ids_cannot_steer_the_terminal(index: Index) -> None:
    index.add("image", torch.ones(1, 4), ids=["\x1b[2Jrobin"], metadata=[{"a": "\x9b\r"}])
    location = index.stats().location
    index.close()
    outcome = invoke("search", location, "--like", "\x1b[2Jrobin", "--within", "image")
    assert outcome.code == 0, outcome
    outcome = invoke("search", location, "--like", "image-1", "--within", "image")
    assert r"\x1b[2Jrobin" in outcome.out
    assert "\x1b[2J" not in outcome.out
    assert printable("ä\u202e\ud800") == r"ä\u202e\ud800"


def fuzz_arrays(choice: random.Random, tmp_path: Path) -> None:
    """Files of NumPy with some bytes changed, cut or repeated."""
    stream, path = io.BytesIO(), tmp_path / choice.choice(["f.npy", "f.npz", "f.cca"])
    if path.suffix == ".npy":
        np.save(stream, np.eye(9, 3))
    elif path.suffix == ".npz":
        np.savez_compressed(stream, a=np.eye(9, 3))
    else:
        CCA().fit(np.eye(9, 3), np.eye(9, 2)).save(path)
        stream.write(path.read_bytes())
    content = bytearray(stream.getvalue())
    for _ in range(choice.randint(1, 4)):
        at = choice.randrange(len(content))
        if choice.random() < 0.2:
            del content[at : at + choice.randint(1, 50)]
        else:
            content[at] = choice.randrange(256)
    path.write_bytes(content)
    CCA.load(path) if path.suffix == ".cca" else load_array(path)


def fuzz_calls(choice: random.Random, index: Index, model: DualEncoder) -> None:
    """Calls of the API, each with one value of a wrong type or size."""
    wrong = choice.choice(WRONG)
    query = torch.eye(4)[0]
    calls: list[Callable[[], object]] = [
        lambda: index.search(image=wrong),
        lambda: index.search(image=query, where=wrong),
        lambda: index.search(image=query, where={"n": wrong}),
        lambda: index.search(image=query, where={"n": {">=": wrong}}),
        lambda: index.search(image=query, where={"n": [1, wrong]}),
        lambda: index.search(image=query, where={str(wrong): 1}),
        lambda: index.search(image=query, within=wrong),
        lambda: index.search_vectors(wrong),
        lambda: index.search_like(wrong),
        lambda: index.get(wrong),
        lambda: index.vectors([wrong]),
        lambda: index.remove(wrong),
        lambda: index.ids(wrong),
        lambda: index.count(wrong),
        lambda: index.add(wrong, torch.eye(4)),
        lambda: index.add("image", wrong),
        lambda: index.add("image", torch.eye(4), ids=wrong),
        lambda: index.add("image", torch.eye(4), metadata=[wrong] * 4),
        lambda: index.add("image", torch.eye(4), files=[wrong] * 4),
        lambda: index.update(["image-1"], metadata=wrong),
        lambda: model.encode("image", wrong),
        lambda: model.encode(wrong, torch.eye(4)),
        lambda: DualEncoder(dim=wrong, a=DenseTower(2, 2), b=DenseTower(2, 2)),
        lambda: DualEncoder(dim=2, a=wrong, b=DenseTower(2, 2)),
        lambda: ccal.CCALayer(wrong),
        lambda: ccal.PairwiseRankingLoss(margin=wrong),
        lambda: CCA(n_components=wrong).fit(np.eye(9, 3), np.eye(9, 2)),
        lambda: CCA().fit(wrong, np.eye(9, 2)),
    ]
    choice.choice(calls)()


# Not those that may take long for a good reason: compare, reproduce, demo.
COMMANDS = ("train", "evaluate", "info", "index", "search", "encode", "identify", "serve")
FITTING = {"location": "i", "run": "i", "query": "a.npy", "out": "made", "modality": "image"}
FITTING |= {"x": "image=a.npy", "y": "text=a.npy", "like": "image-1", "within": "image"}
WORDS = [
    *("", "nowhere", "noise", "noise.npy", "table.csv", "table.csv:a", "a.npy", "i", "."),
    *("-1", "0", "1.5", "nan", "1e400", "9" * 400, "2026", "a\x1b[2Jb", "ü☃", "\udcff", "{", "="),
    *("image=", "image=a.npy", "a=b=c", '{"a": [[1]]}', "n>=1e400", "seed=1e23", "dim="),
    *("/dev/null", "milvus://x:1:2/y", "postgresql://me:secret@localhost:1/db", "s3://a/b"),
]


def fuzz_commands(choice: random.Random, folder: Path) -> None:
    """Commands with arguments, options and files that do not fit."""
    (folder / "noise").write_bytes(choice.randbytes(200))
    (folder / "noise.npy").write_bytes(b"\x93NUMPY\x01\x00" + choice.randbytes(200))
    (folder / "table.csv").write_text(choice.choice(["", "a", "a,b\n1\n", 'a,b\n"1,2\n', "\0"]))
    name = choice.choice(COMMANDS)
    command = typer.main.get_command(app).get_command(None, name)  # type: ignore[attr-defined]
    words = [name]
    for parameter in command.params:
        if parameter.name in ("help", "open_page") or choice.random() > (
            0.8 if parameter.required or parameter.name in FITTING else 0.08
        ):
            continue
        if parameter.param_type_name == "option":
            words.append(choice.choice(parameter.opts))
        if not getattr(parameter, "is_flag", False):
            word = choice.choice(WORDS)
            words.append(FITTING.get(parameter.name, word) if choice.random() < 0.5 else word)
    outcome = invoke(*words)
    assert outcome.code in (0, 2), (words, outcome)
    if outcome.code:
        assert "Traceback" not in outcome.err, words
        assert "secret" not in outcome.err or "Usage:" in outcome.err, words
        raise InputError("refused")


def try_many(seeds: range, index: Index, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bad input of three kinds; each gives an answer or an error, soon and in little memory."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("ccal.serve.app.run", lambda *_: None)
    np.save("a.npy", np.eye(9, 3))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = index._needed_model("", "")
    refused = 0
    for seed in seeds:
        choice = random.Random(seed)
        with in_time(f"seed {seed}"):
            try:
                if seed % 10 == 0:
                    fuzz_commands(choice, folder)
                elif seed % 2:
                    fuzz_arrays(choice, folder)
                else:
                    fuzz_calls(choice, index, model)
            except CcalError as error:
                refused += len(str(error).splitlines())
            except BaseException as error:
                raise AssertionError(f"seed {seed}") from error
    assert refused > len(seeds) / 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1_000_000


@contextmanager
def in_time(what: str) -> Iterator[None]:
    """Fail after 30 seconds, also of waiting."""

    def late(*_: object) -> None:
        pytest.fail(f"{what} hangs")

    former = signal.signal(signal.SIGALRM, late)
    signal.alarm(30)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, former)


@pytest.mark.filterwarnings("ignore")
def test_a_thousand_bad_inputs(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try_many(range(1000), index, tmp_path, monkeypatch)


@pytest.mark.faults
@pytest.mark.filterwarnings("ignore")
def test_many_more_bad_inputs(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = 1000 + 100_000 * int(os.environ.get("FAULT_SEED", "0"))
    try_many(range(first, first + 4000), index, tmp_path, monkeypatch)
