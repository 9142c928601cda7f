from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch

from ccal.codes import BinaryCodes, HeadTraining, hamming_distances
from ccal.errors import InputError
from ccal.files import read_document, write_document
from ccal.retrieval import OtherModelError
from ccal.retrieval.codes.binary import Kind
from tests.retrieval.codes.data import embedded_pairs, small_model

KINDS: tuple[Kind, ...] = get_args(Kind)
QUICK = HeadTraining(epochs=2, batch_size=100)


def fitted(kind: Kind = "itq", **options: Any) -> BinaryCodes:
    options = {"bits": 8, "training": QUICK, **options}
    return BinaryCodes.fit(small_model(), *embedded_pairs(200), kind=kind, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_partners_share_more_bits_than_others(kind: Kind) -> None:
    codes = fitted(kind)
    x, y = embedded_pairs(100, seed=1)
    distances = hamming_distances(codes.encode("image", x), codes.encode("text", y))
    assert np.diag(distances).mean() < 0.6 * distances.mean()


def test_bits_are_signs_of_the_head_by_a_loop() -> None:
    codes = fitted(bits=16)
    x, _ = embedded_pairs(9, seed=2)
    packed = codes.encode("image", x)
    head = codes.heads["image"]
    for row, code in zip(x, packed, strict=True):
        unit = row / row.norm()
        for bit in range(16):
            value = sum(u * w for u, w in zip(unit, head.weight[:, bit], strict=True))
            is_set = bool(code[bit // 8] >> (7 - bit % 8) & 1)
            assert is_set == bool(value + head.bias[bit] > 0)


def test_length_arrays_and_dtypes_change_no_bit() -> None:
    codes = fitted()
    x, _ = embedded_pairs(20, seed=3)
    expected = codes.encode("image", x)
    for form in (7 * x, x.numpy(), x.double()):
        np.testing.assert_array_equal(codes.encode("image", form), expected)
    assert codes.encode("image", x[:0]).shape == (0, 1)
    assert (codes.bytes, codes.dim) == (1, 12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_codes(kind: Kind) -> None:
    x, _ = embedded_pairs(50, seed=4)
    first, again = (fitted(kind).encode("image", x) for _ in range(2))
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("kind", KINDS)
def test_save_and_load(kind: Kind, tmp_path: Path) -> None:
    codes = fitted(kind)
    codes.save(tmp_path / "codes")
    fitted("sign").save(tmp_path / "codes")
    codes.save(tmp_path / "codes")
    loaded = BinaryCodes.load(tmp_path / "codes", small_model())
    x, y = embedded_pairs(30, seed=5)
    for name, view in (("image", x), ("text", y)):
        np.testing.assert_array_equal(codes.encode(name, view), loaded.encode(name, view))
    assert (loaded.kind, loaded.bits, loaded.model) == (kind, 8, codes.model)
    assert len(list((tmp_path / "codes").iterdir())) == 2


def test_another_model_is_refused(tmp_path: Path) -> None:
    codes = fitted()
    codes.save(tmp_path)
    with pytest.raises(OtherModelError, match="another model"):
        BinaryCodes.load(tmp_path, small_model(seed=1))
    codes.check(small_model())


def test_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no set of binary codes"):
        BinaryCodes.load(tmp_path)
    fitted().save(tmp_path)
    config = read_document(tmp_path / "codes.json")
    for change, message in (
        ({"format": 9}, "format"),
        ({"bits": 16}, "16 bits"),
        ({"heads": "none"}, "damaged"),
        ({"kind": "guess"}, "kind"),
    ):
        write_document(tmp_path / "codes.json", {**config, **change})
        with pytest.raises(InputError, match=message):
            BinaryCodes.load(tmp_path)
    write_document(tmp_path / "codes.json", config)
    heads = tmp_path / config["heads"]
    content = heads.read_bytes()
    for damage in (b"nothing", content[:-1] + bytes([content[-1] ^ 1])):
        heads.write_bytes(damage)
        with pytest.raises(InputError, match=r"damaged: the content of heads-\w+.safetensors has"):
            BinaryCodes.load(tmp_path)


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match="nothing was written"):
        fitted().save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 12}, "multiple of 8"),
        ({"bits": 0}, "multiple of 8"),
        ({"kind": "guess"}, "kind"),
        ({"kind": "sign", "bits": 16}, "12 dimensions"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fitted(**options)


def test_awkward_embeddings_are_refused() -> None:
    model, (x, y) = small_model(), embedded_pairs(40)
    for views, message in (
        ((x, y[:39]), "39"),
        ((x[:1], y[:1]), "at least 2 pairs"),
        ((x[:, :8], y[:, :8]), "12 dimensions"),
        ((x, torch.full_like(y, torch.nan)), "y has NaN"),
        ((x.long(), y), "floating point"),
        ((torch.zeros(40, 16), torch.zeros(40, 16)), "corrected=False"),
    ):
        with pytest.raises(InputError, match=message):
            BinaryCodes.fit(model, *views, bits=8)
    codes = fitted()
    for rows, message in (
        (x[0], r"\(n, 12\)"),
        (x[:, :3], r"\(n, 12\)"),
        (torch.zeros(2, 16), "corrected=False"),
        (x * torch.inf, "NaN or infinite"),
        (x.long(), "floating point"),
    ):
        with pytest.raises(InputError, match=message):
            codes.encode("image", rows)
    with pytest.raises(InputError, match="image and text"):
        codes.encode("sound", x)


def test_end_to_end_codes_belong_to_the_model_they_came_with() -> None:
    model = small_model()
    x, y = torch.randn(150, 20), torch.randn(150, 16)
    tuned, codes = BinaryCodes.fit_through(model, x, y.numpy(), bits=16, training=QUICK)
    codes.check(tuned)
    with pytest.raises(OtherModelError):
        codes.check(model)
    assert codes.encode("text", tuned.encode("text", y)).shape == (150, 2)


def test_hub_corrected_models_are_encoded_without_it() -> None:
    model, (x, y) = small_model(), embedded_pairs(100)
    model.correct_hubs((x, y))
    codes = BinaryCodes.fit(model, x, y, bits=16)
    items = torch.randn(5, 20)
    assert codes.encode("image", model.encode("image", items, corrected=False)).shape == (5, 2)
    with pytest.raises(InputError, match="corrected=False"):
        codes.encode("image", model.encode("image", items))
    assert replace(codes, kind="sign").kind == "sign"
