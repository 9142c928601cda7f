"""ImageFeatures: items, duplicates, the cache, saving with a model."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import ccal
from ccal.encoders import DenseTower
from ccal.errors import InputError
from ccal.features import Backbone, ImageFeatures, register_backbone
from tests.features.pictures import counting, gradient, write_pictures


def test_all_kinds_of_items_give_the_same_rows(tmp_path: Path) -> None:
    (path,) = write_pictures(tmp_path, 1)
    items: list[Any] = [path, Path(path), Path(path).read_bytes(), Image.open(path)]
    items.append(gradient(blue=0))
    rows = ImageFeatures(counting()[1], cache=None, batch_size=2).transform(items)
    assert rows.shape == (5, 5)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, np.broadcast_to(rows[0], rows.shape), rtol=1e-5)
    assert np.array_equal(rows[0], rows[1])


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_rows_are_those_of_a_plain_loop(tmp_path: Path, batch_size: int) -> None:
    paths, (_, backbone) = write_pictures(tmp_path, 10), counting()
    rows = ImageFeatures(backbone, cache=None, batch_size=batch_size).transform(paths)
    single = ImageFeatures(backbone, cache=None)
    expected = np.concatenate([single.transform([path]) for path in paths])
    np.testing.assert_allclose(rows, expected, rtol=1e-5, atol=1e-6)


def test_a_second_run_asks_the_network_nothing(tmp_path: Path) -> None:
    paths, (module, backbone) = write_pictures(tmp_path / "in", 7), counting()
    first = ImageFeatures(backbone, cache=tmp_path / "c", batch_size=3).transform(paths)
    assert module.seen == 7
    again, fresh = counting()
    second = ImageFeatures(fresh, cache=tmp_path / "c", batch_size=4).transform(paths[::-1])
    assert again.seen == 0
    assert first.tobytes() == second[::-1].tobytes()


def test_content_counts_not_the_name(tmp_path: Path) -> None:
    paths, (module, backbone) = write_pictures(tmp_path / "in", 3), counting()
    features = ImageFeatures(backbone, cache=tmp_path / "c")
    features.transform(paths)
    moved = Path(paths[0]).rename(tmp_path / "moved.png")
    features.transform([moved])
    assert module.seen == 3
    Path(paths[1]).write_bytes(Path(paths[2]).read_bytes())
    assert np.array_equal(*features.transform(paths[1:]))
    assert module.seen == 3


def test_another_network_or_crop_is_another_matter(tmp_path: Path) -> None:
    paths = write_pictures(tmp_path / "in", 2)
    ImageFeatures(counting()[1], cache=tmp_path / "c").transform(paths)
    for seed, options in [(1, {}), (0, {"size": 20}), (0, {"crop": 0.5})]:
        module, backbone = counting(seed)
        ImageFeatures(backbone, cache=tmp_path / "c", **options).transform(paths)  # type: ignore[arg-type]
        assert module.seen == 2
    module, _ = counting()
    grey = Backbone(module, size=16, mean=(0.5, 0.5, 0.5))
    ImageFeatures(grey, cache=tmp_path / "c").transform(paths)
    assert module.seen == 2


def test_by_default_files_are_kept_in_the_users_cache(
    tmp_path: Path, user_cache_home: Path
) -> None:
    (path,), (module, backbone) = write_pictures(tmp_path / "in", 1), counting()
    for _ in range(2):
        ImageFeatures(backbone).transform([path, Path(path).read_bytes(), gradient()])
    assert module.seen == 1 + 2 + 2  # what is only in memory is not kept
    assert (user_cache_home / "ccal/images/features.sqlite").is_file()


def test_what_was_done_before_a_bad_image_is_not_done_again(tmp_path: Path) -> None:
    paths, (module, backbone) = write_pictures(tmp_path / "in", 9), counting()
    Path(paths[7]).write_bytes(b"words")
    features = ImageFeatures(backbone, cache=tmp_path / "c", batch_size=3)
    with pytest.raises(InputError, match=r"007\.png: not an image"):
        features.transform(paths)
    assert module.seen == 6
    features.transform(paths[:7])
    assert module.seen == 7


def test_a_path_that_occurs_often_is_seen_once(tmp_path: Path) -> None:
    paths, (module, backbone) = write_pictures(tmp_path, 2), counting()
    rows = ImageFeatures(backbone, cache=None).transform([*paths, *paths, Path(paths[1])])
    assert module.seen == 2
    assert np.array_equal(rows[[0, 1, 1]], rows[[2, 3, 4]])
    assert not np.array_equal(rows[0], rows[1])


def test_progress_by_batch(tmp_path: Path) -> None:
    paths, calls = write_pictures(tmp_path, 7), []
    features = ImageFeatures(counting()[1], cache=None, batch_size=3)
    features.transform(paths, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(3, 7), (6, 7), (7, 7)]


def test_no_images_one_image_and_wrong_ones() -> None:
    features = ImageFeatures(counting()[1], cache=None)
    assert features.transform([]).shape == (0, 5)
    with pytest.raises(InputError, match="put it in a list"):
        features.transform("photo.jpg")
    with pytest.raises(InputError, match=r"image 1 \(from 0\): expected pixels"):
        features.transform([gradient(), gradient()[..., :2]])
    with pytest.raises(InputError, match=r"image 0 \(from 0\): not an image"):
        features.transform([b"words"])


def test_wrong_settings(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="batch_size"):
        ImageFeatures(batch_size=0)
    with pytest.raises(InputError, match=r"no backbone 'resnet'; known are .*efficientnet-lite0"):
        ImageFeatures("resnet")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cache must be a folder"):
        ImageFeatures(cache=tmp_path / "file")


def test_features_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    paths, (module, backbone) = write_pictures(tmp_path, 1), counting()
    nn.init.constant_(module.conv.bias, float("nan"))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"000\.png: the backbone gives NaN"):
        ImageFeatures(backbone, cache=None).transform(paths)


def test_nothing_outside_changes(tmp_path: Path) -> None:
    paths, (module, backbone) = write_pictures(tmp_path, 3), counting()
    before = torch.get_num_threads(), torch.is_grad_enabled(), torch.get_rng_state().tolist()
    ImageFeatures(backbone, cache=None).transform(paths)
    assert before == (
        torch.get_num_threads(),
        torch.is_grad_enabled(),
        torch.get_rng_state().tolist(),
    )
    assert module.conv.weight.requires_grad
    assert not module.conv.weight.is_inference()


def test_copies_and_threads_give_the_same(tmp_path: Path) -> None:
    paths = write_pictures(tmp_path / "in", 20)
    features = ImageFeatures(counting()[1], cache=tmp_path / "c", batch_size=4)
    expected = copy.deepcopy(features).transform(paths)
    with ThreadPoolExecutor(4) as pool:
        for rows in pool.map(features.transform, [paths] * 8):
            assert np.array_equal(rows, expected)


def model_with(front_end: ImageFeatures) -> ccal.DualEncoder:
    model = ccal.DualEncoder(
        dim=4, front_ends={"image": front_end}, image=DenseTower(5, 4), text=DenseTower(6, 4)
    )
    model.refit([(torch.randn(100, 5), torch.randn(100, 6))])
    return model


def test_a_saved_model_embeds_a_path(tmp_path: Path) -> None:
    paths = write_pictures(tmp_path / "in", 3)
    register_backbone("counting", lambda: counting()[1])
    model = model_with(ImageFeatures("counting", crop=0.9))
    model.save(tmp_path / "model")
    loaded = ccal.load(tmp_path / "model")
    assert isinstance(loaded.front_ends["image"], ImageFeatures)
    assert loaded.front_ends["image"].config() == model.front_ends["image"].config()
    assert torch.equal(loaded.encode("image", paths), model.encode("image", paths))
    assert loaded.encode("image", [Path(paths[0]).read_bytes()]).shape == (1, 4)

    register_backbone("counting", lambda: counting(seed=1)[1])
    with pytest.raises(InputError, match=r"'counting' of weights .* features would not fit"):
        ccal.load(tmp_path / "model").encode("image", paths)


def test_a_module_without_a_name_cannot_be_saved(tmp_path: Path) -> None:
    model = model_with(ImageFeatures(counting()[0]))
    with pytest.raises(InputError, match=r"register_backbone\('my-net'"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_config_from_elsewhere() -> None:
    given: dict[str, Any] = {"backbone": "efficientnet-lite0", "size": 224, "crop": 0.875}
    features = ImageFeatures.from_config(**given, weights="0")
    assert features.config() == {**given, "weights": "0"}
    with pytest.raises(InputError, match="unknown entries: colour"):
        ImageFeatures.from_config(**given, weights="0", colour=1)
