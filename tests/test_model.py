from __future__ import annotations

import errno
import json
import multiprocessing
import os
import sys
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ccal.encoders import DenseTower
from ccal.errors import CcalError, InputError, NotFittedError
from ccal.evaluation.calibration import Calibration
from ccal.features import TfidfVectoriser
from ccal.files import write_document
from ccal.model import DualEncoder, load
from ccal.retrieval.embedding import fingerprint
from tests.fresh import run
from tests.reference import correlated_views

pytest.importorskip("safetensors")

PROJECTIONS: dict[str, dict[str, Any]] = {
    "cca": {},
    "weighted": {"cca": {"power": 1.0, "ridge": (0.1, 0.2), "relative_ridge": True}},
    "learned": {"projection": "learned"},
    "none": {"projection": "none"},
}


def make(**options: Any) -> DualEncoder:
    torch.manual_seed(0)
    return DualEncoder(
        dim=4, image=DenseTower(6, 4), text=DenseTower(9, 4, hidden=(12,)), **options
    )


@pytest.fixture
def pairs() -> tuple[Tensor, Tensor]:
    return correlated_views(200, 6, 9, dtype=torch.float32)


@pytest.fixture(params=PROJECTIONS)
def model(request: pytest.FixtureRequest, pairs: tuple[Tensor, Tensor]) -> DualEncoder:
    model = make(**PROJECTIONS[request.param])
    model(*pairs)
    return model.refit([pairs])


def test_encoding_in_batches_is_evaluating_pairs(
    model: DualEncoder, pairs: tuple[Tensor, Tensor]
) -> None:
    done: list[tuple[int, int]] = []
    x = model.encode("image", pairs[0], batch_size=64, progress=lambda n, m: done.append((n, m)))
    y = model.encode("text", pairs[1])
    assert model.training
    assert done == [(64, 200), (128, 200), (192, 200), (200, 200)]
    expected = model.eval()(*pairs)
    torch.testing.assert_close(x, expected[0])
    torch.testing.assert_close(y, expected[1])


@pytest.mark.parametrize("compiled", [False, True])
def test_encoding_neither_heeds_nor_changes_the_mode(
    pairs: tuple[Tensor, Tensor], compiled: bool
) -> None:
    tower = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    if compiled:
        tower.compile(backend="eager")
    model = DualEncoder(dim=4, projection="none", image=tower, text=DenseTower(9, 4)).eval()
    expected = model.encode("image", pairs[0])
    before = {name: t.clone() for name, t in model.state_dict().items()}

    # Another thread may switch the mode between any two batches.
    def switch(done: int, total: int) -> None:
        model.train(done % 100 == 0)

    found = model.encode("image", pairs[0], batch_size=50, progress=switch)
    torch.testing.assert_close(found, expected)
    assert model.training
    torch.testing.assert_close(model.encode("image", pairs[0]), expected)
    torch.testing.assert_close(dict(model.state_dict()), before)


def test_a_saved_model_is_the_same_model(
    model: DualEncoder, pairs: tuple[Tensor, Tensor], tmp_path: Path
) -> None:
    model.save(tmp_path / "runs" / "model")
    restored = load(tmp_path / "runs" / "model")
    assert restored.modalities == ("image", "text")
    assert not restored.training
    for name, view in zip(("image", "text"), pairs, strict=True):
        assert torch.equal(restored.encode(name, view), model.encode(name, view))
    assert sorted(p.suffix for p in (tmp_path / "runs" / "model").iterdir()) == [
        ".json",
        ".safetensors",
    ]


def test_models_that_name_a_solver_still_open(pairs: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    model = make().refit([pairs])
    model.save(tmp_path)
    file = next(tmp_path.glob("*.json"))
    config = json.loads(file.read_text())
    write_document(file, {**config, "cca": {**config["cca"], "solver": "eigh"}})
    assert torch.equal(load(tmp_path).encode("text", pairs[1]), model.encode("text", pairs[1]))


def test_models_without_calibrations_still_open(
    pairs: tuple[Tensor, Tensor], tmp_path: Path
) -> None:
    model = DualEncoder(dim=4, image=DenseTower(6, 4), text=DenseTower(5, 4))
    model.calibrations = {"text": Calibration(20.0, 0.1, 1.0, 100, 100)}
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").calibrations == model.calibrations
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    # Nor had they a hash of the configuration.
    del config["calibrations"], config["sha256"]
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    old = load(tmp_path / "model")
    assert old.calibrations == {}
    # An index of the one can be searched with the other.
    assert fingerprint(old) == fingerprint(model)


def test_saving_again_replaces_the_model(pairs: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    model = make().refit([pairs])
    model.save(tmp_path / "model")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    model.refit([pairs]).save(tmp_path / "model")
    assert len(list((tmp_path / "model").iterdir())) == 2
    assert torch.equal(
        load(tmp_path / "model").encode("text", pairs[1]), model.encode("text", pairs[1])
    )


def write_forever(folder: Path, ready: Event) -> None:
    model = make().refit([correlated_views(200, 6, 9, dtype=torch.float32)])
    ready.set()
    while True:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(0.9)
        model.save(folder)


def test_a_killed_writer_leaves_a_whole_model(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    for attempt in range(3):
        ready = fork.Event()
        writer = fork.Process(target=write_forever, args=(tmp_path / "model", ready))
        writer.start()
        assert ready.wait(60)
        time.sleep(0.3 + 0.0137 * attempt)
        writer.kill()
        writer.join()
        load(tmp_path / "model")
    make().save(tmp_path / "model")
    assert load(tmp_path / "model").dim == 4


class TestErrors:
    def test_two_modalities(self) -> None:
        with pytest.raises(InputError, match=r"two modalities, .* got \['image'\]"):
            DualEncoder(dim=4, image=DenseTower(6, 4))

    def test_unknown_modality(self) -> None:
        with pytest.raises(InputError, match="joins image and text; it has no 'audio'"):
            make().encode("audio", torch.randn(2, 6))

    def test_unknown_projection(self) -> None:
        with pytest.raises(InputError, match="'pca'"):
            make(projection="pca")
        with pytest.raises(InputError, match='needs projection="cca"'):
            make(projection="learned", cca={"power": 1.0})

    def test_encoding_before_refit(self) -> None:
        with pytest.raises(NotFittedError):
            make().encode("image", torch.randn(2, 6))

    def test_unregistered_towers_cannot_be_saved(self, tmp_path: Path) -> None:
        model = DualEncoder(dim=4, a=nn.Linear(3, 4), b=nn.Linear(3, 4))
        with pytest.raises(InputError, match="register_tower"):
            model.save(tmp_path / "model")
        assert not (tmp_path / "model").exists()

    def test_a_folder_of_something_else_is_kept(self, tmp_path: Path) -> None:
        (tmp_path / "thesis.tex").write_text("years of work")
        with pytest.raises(InputError, match="holds other things; nothing was written"):
            make().save(tmp_path)
        assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]

    @pytest.mark.parametrize("damage", ["no config", "half a config", "half the weights", "format"])
    def test_a_damaged_model_is_named(self, damage: str, tmp_path: Path) -> None:
        make().save(tmp_path / "model")
        config = tmp_path / "model" / "config.json"
        weights = next((tmp_path / "model").glob("weights-*"))
        if damage == "no config":
            config.unlink()
        elif damage == "half a config":
            config.write_bytes(config.read_bytes()[:40])
        elif damage == "half the weights":
            weights.write_bytes(weights.read_bytes()[:-100])
        else:
            write_document(config, {**json.loads(config.read_text()), "format": 99})
        with pytest.raises(InputError, match="model"):
            load(tmp_path / "model")

    def test_a_changed_digit_of_the_configuration_is_noticed(self, tmp_path: Path) -> None:
        make().save(tmp_path / "model")
        config = tmp_path / "model" / "config.json"
        config.write_text(config.read_text().replace('"dim": 4', '"dim": 5'))
        with pytest.raises(InputError, match=r"damaged: the content of config\.json has changed"):
            load(tmp_path / "model")

    def test_nan_in_weights_or_configuration_is_refused(self, tmp_path: Path) -> None:
        model = make()
        model.get_parameter("towers.text.layers.0.weight").data[1] = torch.nan
        model.save(tmp_path / "model")
        with pytest.raises(InputError, match=r"there is NaN in towers\.text\.layers\.0\.weight"):
            load(tmp_path / "model")
        model = make()
        model.calibrations = {"text": Calibration(float("nan"), 0.1, 1.0, 100, 100)}
        model.save(tmp_path / "model")
        with pytest.raises(InputError, match="damaged"):
            load(tmp_path / "model")

    @pytest.mark.parametrize("place", [-1, -200])
    def test_a_changed_byte_of_the_weights_is_noticed(self, place: int, tmp_path: Path) -> None:
        make().save(tmp_path / "model")
        weights = next((tmp_path / "model").glob("weights-*"))
        content = bytearray(weights.read_bytes())
        content[place] ^= 1
        weights.write_bytes(content)
        with pytest.raises(InputError, match=r"is damaged: the content of weights-\w+\.safetens"):
            load(tmp_path / "model")
        weights.unlink()
        with pytest.raises(InputError, match=r"is damaged: weights-\w+\.safetensors is missing"):
            load(tmp_path / "model")

    def test_a_missing_package_is_no_damage(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pytest.importorskip("simplemma")
        tfidf = TfidfVectoriser(min_count=1).fit(TEXTS)
        model = DualEncoder(
            dim=4,
            projection="none",
            front_ends={"text": tfidf},
            image=DenseTower(6, 4),
            text=DenseTower(len(tfidf.vocabulary), 4),
        )
        model.save(tmp_path / "model")
        monkeypatch.setitem(sys.modules, "simplemma", None)
        with pytest.raises(CcalError, match=r"needs the package simplemma.*\.\[text\]") as caught:
            load(tmp_path / "model")
        assert "damaged" not in str(caught.value)

    @pytest.mark.parametrize("name", ["config.json", "weights-*"])
    def test_a_file_that_may_not_be_read_is_no_damage(
        self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The rights of files say nothing to root, so that the refusal is played."""
        make().save(tmp_path / "model")
        (locked,) = (tmp_path / "model").glob(name)
        opened = Path.open

        def refuse(path: Path, *arguments: Any, **options: Any) -> Any:
            if path == locked:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return opened(path, *arguments, **options)

        monkeypatch.setattr(Path, "open", refuse)
        with pytest.raises(PermissionError, match="Permission denied"):
            load(tmp_path / "model")


TEXTS = ["a dog runs", "a cat sleeps", "two dogs", "one cat and one dog", "a dog and a cat"]


def test_texts_and_hub_correction_survive_saving(tmp_path: Path) -> None:
    tfidf = TfidfVectoriser(min_count=1, lemmatise=False).fit(TEXTS)
    width = len(tfidf.vocabulary)
    model = DualEncoder(
        dim=3,
        projection="none",
        front_ends={"text": tfidf},
        image=DenseTower(4, 3, scale=2.0),
        text=DenseTower(width, 3),
    )
    images = np.random.default_rng(0).normal(size=(5, 4))
    pairs = model.encode("image", images), model.encode("text", TEXTS)
    model.correct_hubs(pairs, neighbours=2, weight=0.5)
    assert model.encode("text", TEXTS).shape == (5, 7)
    torch.testing.assert_close(model.encode("text", TEXTS, corrected=False), pairs[1])
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert torch.equal(again.encode("text", TEXTS), model.encode("text", TEXTS))
    assert torch.equal(again.encode("image", images), model.encode("image", images))
    code = "import ccal, sys; print(ccal.load(sys.argv[1]).encode('text', ['a dog']).shape)"
    assert run(code, tmp_path / "model").strip() == "torch.Size([1, 7])"


def test_raw_items_need_a_front_end(pairs: tuple[Tensor, Tensor]) -> None:
    model = make().refit([pairs])
    with pytest.raises(InputError, match="no front end"):
        model.encode("text", TEXTS)
    with pytest.raises(InputError, match="front_ends names"):
        make(front_ends={"sound": TfidfVectoriser()})
    assert model.encode("text", np.zeros((0, 9))).shape == (0, 4)
