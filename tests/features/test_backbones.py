"""Networks of people's own, with the interfaces of timm and torchvision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ccal.errors import InputError
from ccal.features import Backbone, ImageFeatures, as_backbone, load_backbone, register_backbone
from tests.features.pictures import Counting, counting, gradient


class LikeTimm(nn.Module):
    """What a timm model offers: a description of its images, maps, and a head to stop before."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.classifier = nn.Conv2d(3, 6, 4, stride=4), nn.Linear(6, 10)
        self.pretrained_cfg: dict[str, Any] = {
            "input_size": (3, 24, 24),
            "mean": (0.5, 0.5, 0.5),
            "std": (0.25, 0.25, 0.25),
            "crop_pct": 0.95,
            "interpolation": "bicubic",
        }

    def forward_features(self, x: Tensor) -> Tensor:
        maps: Tensor = self.stem(x)
        return maps

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        x = x.mean((2, 3))
        return x if pre_logits else self.classifier(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))


def like_torchvision() -> nn.Sequential:
    body = nn.Sequential(nn.Conv2d(3, 7, 8, stride=8), nn.BatchNorm2d(7), nn.ReLU())
    return nn.Sequential(body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Identity())


def test_a_timm_model_says_what_it_needs() -> None:
    module = LikeTimm().eval()
    backbone = as_backbone(module)
    assert (backbone.size, backbone.crop) == (24, 0.95)
    assert (backbone.mean[0], backbone.std[0]) == (0.5, 0.25)
    pixels = torch.randint(0, 256, (3, 24, 24, 3), dtype=torch.uint8)
    expected = module.stem((pixels.permute(0, 3, 1, 2) / 255 - 0.5) / 0.25).mean((2, 3))
    torch.testing.assert_close(backbone.features(pixels), expected.detach())
    assert ImageFeatures(module, cache=None).transform([gradient()]).shape == (1, 6)


def test_a_torchvision_model_without_its_classifier() -> None:
    features = ImageFeatures(like_torchvision().eval(), cache=None)
    assert (features.backbone.size, features.backbone.crop) == (224, 0.875)
    assert features.transform([gradient(), gradient(9, 9)]).shape == (2, 7)
    assert features.width == 7


def test_pixels_are_normalised_as_declared() -> None:
    backbone = Backbone(nn.Identity().eval(), 4, mean=(0.1, 0.2, 0.3), std=(0.5, 1.0, 2.0))
    pixels = torch.tensor([255, 51, 0], dtype=torch.uint8).expand(1, 4, 4, 3)
    expected = torch.tensor([[(1 - 0.1) / 0.5, (0.2 - 0.2) / 1, (0 - 0.3) / 2]])
    torch.testing.assert_close(backbone.features(pixels), expected)


def test_another_precision_inside_float32_outside() -> None:
    module = Counting().eval().to(torch.float64)
    backbone = Backbone(module, size=16)
    pixels = torch.randint(0, 256, (3, 16, 16, 3), dtype=torch.uint8)
    features = backbone.features(pixels)
    assert features.dtype == torch.float32
    torch.testing.assert_close(features, counting()[1].features(pixels), rtol=1e-4, atol=1e-5)


class Wrong(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor) -> Any:
        return {"tuple": (x, x), "tokens": x.flatten(2), "fewer": x[:1].mean((2, 3))}[self.kind]


@pytest.mark.parametrize(
    ("kind", "got"), [("tuple", "tuple"), ("tokens", r"\(2, 3, 256\)"), ("fewer", r"\(1, 3\)")]
)
def test_outputs_that_are_no_features(kind: str, got: str) -> None:
    backbone = Backbone(Wrong(kind).eval(), size=16)
    with pytest.raises(InputError, match=rf"features \(2, d\).*got {got}"):
        backbone.features(torch.zeros(2, 16, 16, 3, dtype=torch.uint8))


def test_training_mode_and_nonsense_are_refused() -> None:
    with pytest.raises(InputError, match=r"eval\(\)"):
        ImageFeatures(like_torchvision())
    module = like_torchvision().eval()
    module[0].train()
    with pytest.raises(InputError, match=r"eval\(\)"):
        as_backbone(module)
    for wrong in ({"size": 0}, {"crop": 0.0}, {"crop": 1.5}, {"std": (0.0, 1.0, 1.0)}):
        with pytest.raises(InputError, match="A backbone needs"):
            Backbone(nn.Identity().eval(), **wrong)


def test_weights_are_told_apart() -> None:
    assert counting(0)[1].weights_id == counting(0)[1].weights_id
    assert counting(0)[1].weights_id != counting(1)[1].weights_id
    assert Backbone(Counting().eval(), weights="mine").weights_id == "mine"


def test_a_factory_is_called_when_needed_and_may_return_a_module() -> None:
    calls: list[int] = []

    def make() -> nn.Module:
        calls.append(1)
        return LikeTimm().eval()

    register_backbone("like-timm", make)
    features = ImageFeatures("like-timm", cache=None)
    assert calls == []
    features.transform([gradient()])
    features.transform([gradient()])
    assert calls == [1]
    assert load_backbone("like-timm").size == 24
    assert features.config()["size"] == 24
