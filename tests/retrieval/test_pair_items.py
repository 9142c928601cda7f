"""An index of pairs: every distinct item once, with its counterparts, in each backend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ccal import DualEncoder, InputError, Pairs
from ccal.data.pairs import Rows
from ccal.retrieval import Index, PairItems
from ccal.retrieval.items import counterparts
from tests.retrieval.conftest import make_model


@pytest.fixture
def pairs() -> Pairs:
    """Seven pairs of three images and four texts; the last text has six images."""
    rng = np.random.default_rng(0)
    images, texts = rng.normal(size=(6, 6)), rng.normal(size=(2, 6))
    return Pairs({"image": images[[0, 0, 1, 2, 3, 4, 5]], "text": texts[[0, 1, 1, 1, 1, 1, 1]]})


def test_links_survive_adding_removing_and_rebuilding(
    place: Callable[[], str], model: DualEncoder, pairs: Pairs
) -> None:
    location = place()
    with Index.build(location, model, pairs) as index:
        assert (index.count("image"), index.count("text")) == (6, 2)
        # The row of the array that an item was first in.
        assert index.ids("text") == ["text-0", "text-1"]
        one, two, many = index.get(["image-0", "text-0", "text-1"])
        assert counterparts(one) == (["text-0", "text-1"], 2)
        assert counterparts(two) == (["image-0"], 1)
        assert counterparts(many) == (["image-0", *(f"image-{n}" for n in range(2, 6))], 6)
        index.remove(["text-0"])
        index.add("text", np.ones((1, 6)), ids=["new"])
        hit = index.search(image=pairs.column("image")[0], k=3, within="image")[0]
        assert (hit.id, counterparts(hit)) == ("image-0", (["text-0", "text-1"], 2))
        rows = {item.id: row for row, item in enumerate(index.get(index.ids()))}
    raw = np.random.default_rng(1).normal(size=(len(rows), 6))
    newer = make_model(seed=1)
    read = lambda items: raw[[rows[item.id] for item in items]]  # noqa: E731
    with Index.rebuild(location, newer, read) as index:
        assert counterparts(*index.get(["text-1"])) == counterparts(many)
        with pytest.raises(InputError, match="'image-0' already"):
            index.add_pairs(pairs)
        assert index.count() == 8


def test_files_and_texts_have_ids_that_people_recognise(tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("a/1.JPG", "b/1.JPG", "a/ü 2.png")]
    for number, file in enumerate(files):
        Path(file).parent.mkdir(exist_ok=True)
        Path(file).write_bytes(b"%d" % number)
    photos = Rows([files[n] for n in (0, 0, 1, 2)], files=True)
    texts = ["a dog", "dogs", "a dog", "a cat"]
    found = PairItems(
        Pairs({"photo": photos, "text": texts}), metadata=[{"n": n} for n in range(4)]
    )
    assert [(item.id, item.file) for item in found.items[:3]] == [
        ("a/1.JPG", files[0]),
        ("b/1.JPG", files[1]),
        ("a/ü 2.png", files[2]),
    ]
    named = {item.id: item.metadata for item in found.items}
    assert named["a/1.JPG#1"]["counterparts"] == {"ids": ["a/1.JPG", "b/1.JPG"], "count": 2}
    assert named["b/1.JPG"] == {"n": 2, "counterparts": {"ids": ["a/1.JPG#1"], "count": 1}}
    assert named["a/ü 2.png#1"]["text"] == "a cat"
    assert found.read(found.items[3:]) == ["a dog", "dogs", "a cat"]
    below = PairItems(
        Pairs({"photo": photos, "text": texts}), root=tmp_path / "a", modality="photo"
    )
    assert [item.id for item in below.items] == ["1.JPG", files[1], "ü 2.png"]
    assert below.items[0].metadata == {}


def test_rows_of_arrays_and_equal_names(tmp_path: Path) -> None:
    pairs = Pairs({"one": ["a", "b"], "two": np.eye(3)[[2, 1]]})
    found = PairItems(pairs, arrays={"two": "rows.npy"})
    assert [item.id for item in found.items] == ["two-0#1", "two-1#1", "two-0", "two-1"]
    assert found.items[2].file == "rows.npy#0"
    some = PairItems(pairs[[1]], arrays={"two": "rows.npz:key"})
    assert [(item.id, item.file) for item in some.items] == [
        ("two-1#1", None),
        ("two-1", "rows.npz:key#1"),
    ]
    (tmp_path / "1.jpg").write_bytes(b"1")
    same = Rows([str(tmp_path / "1.jpg")], files=True)
    both = PairItems(Pairs({"photo": same, "sketch": same}))
    assert [item.id for item in both.items] == ["photo:1.jpg", "sketch:1.jpg"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metadata": [{"counterparts": 1}] * 2}, "cannot be called 'counterparts'"),
        ({"metadata": [{}]}, "1 entries for 2 pairs"),
        ({"modality": "sound"}, "No modality 'sound'"),
    ],
)
def test_what_cannot_be_indexed_is_refused(options: dict[str, object], message: str) -> None:
    pairs = Pairs({"image": np.eye(2), "text": ["a", "b"]})
    with pytest.raises(InputError, match=message):
        PairItems(pairs, **options)  # type: ignore[arg-type]


def test_build_needs_a_modality_or_pairs(tmp_path: Path, model: DualEncoder, pairs: Pairs) -> None:
    with pytest.raises(InputError, match="modality is missing: image or text"):
        Index.build(tmp_path / "a", model, np.eye(6))
    with pytest.raises(InputError, match="take no ids"):
        Index.build(tmp_path / "a", model, pairs, ids=["a"])
    with pytest.raises(InputError, match="no 'photo'"):
        Index.build(tmp_path / "a", model, Pairs({"photo": np.eye(6), "text": np.eye(6)}))
    assert not (tmp_path / "a").exists()
