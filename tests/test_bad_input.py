"""Bad input of every kind gets an error in one line, before anything large is allocated."""

from __future__ import annotations

import io
import random
import resource
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ccal
from ccal import CCA, DualEncoder
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
    stream, path = io.BytesIO(), tmp_path / choice.choice(["a.npy", "a.npz", "a.cca"])
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


@pytest.mark.filterwarnings("ignore")
def test_a_thousand_bad_inputs(index: Index, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = index._needed_model("", "")
    refused = 0
    for seed in range(1000):
        choice = random.Random(seed)
        try:
            if seed % 2:
                fuzz_arrays(choice, tmp_path)
            else:
                fuzz_calls(choice, index, model)
        except CcalError as error:
            refused += len(str(error).splitlines())
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error
    assert refused > 500
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1_000_000
