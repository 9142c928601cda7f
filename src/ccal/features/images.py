"""ImageFeatures: image files in, rows of features out.

Threads decode images ahead of the network; features of files are cached by content.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from os import PathLike
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ccal.bounds import Whole, check
from ccal.encoders import register_front_end
from ccal.errors import InputError
from ccal.features.backbones import Backbone, as_backbone, check_backbone, load_backbone
from ccal.features.cache import FeatureCache, cache_folder
from ccal.features.loading import ImageItem, centre_crop, load_image, path_name, read_file
from ccal.features.scan import in_order


@dataclass
class _PendingImage:
    """An image of one call: its `pixels` (size, size, 3), or its cached features `row` (d,).

    `digest` is the hash of its file, if it is one.
    """

    name: str
    digest: bytes | None
    pixels: NDArray[np.uint8] | None = None
    row: NDArray[np.float32] | None = None


def _distinct_items(
    items: Sequence[ImageItem],
) -> tuple[list[tuple[str, ImageItem]], NDArray[np.int64]]:
    """The different items with their names, and for each given item its place among them (n,).

    >>> _distinct_items(["a.jpg", "b.jpg", "a.jpg"])
    ([('a.jpg', 'a.jpg'), ('b.jpg', 'b.jpg')], array([0, 1, 0]))
    """
    if isinstance(items, str | bytes | PathLike):
        raise InputError("expected a list of images, got one image; put it in a list.")
    places: dict[object, int] = {}
    distinct: list[tuple[str, ImageItem]] = []
    position = np.empty(len(items), dtype=np.int64)
    for number, item in enumerate(items):
        path = os.fspath(item) if isinstance(item, str | PathLike) else None
        key = number if path is None else path
        if key not in places:
            places[key] = len(distinct)
            name = f"image {number} (from 0)" if path is None else path_name(path)
            distinct.append((name, item))
        position[number] = places[key]
    return distinct, position


# Part of every cache key; another way to make pixels must have another number.
_PIXELS = 1


@register_front_end("image")
class ImageFeatures:
    """Features of images by a network that was trained on ImageNet or elsewhere.

    Args:
        backbone: "efficientnet-lite0", "-lite1" or "-lite2" (1,280 features, extra `images`), a
            name given to `register_backbone`, a `Backbone`, or any module as `as_backbone` takes
            it. Only named ones can be saved with a model.
        size: of the network's input, other than the backbone's own.
        crop: share of the image that it sees, other than the backbone's own.
        batch_size: images in one pass of the network; small batches suit the caches of a CPU.
        cache: where features of files are kept, by content: True for `user_cache()`, a folder, or
            None (False) to keep nothing. Images in memory are never kept.

    >>> features = ImageFeatures(Backbone(nn.Identity().eval(), size=8), cache=None)
    >>> features.transform([np.zeros((9, 12, 3), dtype=np.uint8)]).shape
    (1, 3)
    """

    def __init__(
        self,
        backbone: str | Backbone | nn.Module = "efficientnet-lite0",
        *,
        size: int | None = None,
        crop: float | None = None,
        batch_size: int = 8,
        cache: str | PathLike[str] | bool | None = True,
    ) -> None:
        check("batch_size", batch_size, Whole(at_least=1))
        if isinstance(backbone, str):
            check_backbone(backbone)
        self.name = backbone if isinstance(backbone, str) else None
        self.size, self.crop, self.batch_size = size, crop, batch_size
        self.cache = cache_folder(cache, "images")
        self._weights: str | None = None
        self._backbone: Backbone | None = None
        if isinstance(backbone, nn.Module):
            backbone = as_backbone(backbone)
        if isinstance(backbone, Backbone):
            self._backbone = self._adapted(backbone)

    @property
    def backbone(self) -> Backbone:
        """The network, loaded when it is first needed."""
        if self._backbone is None:
            assert self.name is not None
            found = self._adapted(load_backbone(self.name))
            if self._weights not in (None, found.weights_id):
                raise InputError(
                    f"The model was made with the backbone {self.name!r} of weights "
                    f"{self._weights}, but here it has {found.weights_id}: features would not fit."
                )
            self._backbone = found
        return self._backbone

    @property
    def width(self) -> int:
        """Number of features d."""
        return self.backbone.width

    def transform(
        self, items: Sequence[ImageItem], *, progress: Callable[[int, int], None] | None = None
    ) -> NDArray[np.float32]:
        """Features (n, d) of n images: paths, bytes, Pillow images or (h, w, 3) arrays of uint8.

        The first unreadable image raises `InputError` with its name; `scan_images` finds them all.
        A path that occurs several times is read once. `progress` is called with the number of
        different images done and their total after each batch; what is done is in the cache, so
        that broken-off work goes on from there. Features of one image in two batches of different
        sizes agree up to the rounding of float32; from the cache they are identical.
        """
        distinct, position = _distinct_items(items)
        rows: NDArray[np.float32] | None = None
        with FeatureCache(self.cache, self._space()) as cache:

            def load(entry: tuple[str, ImageItem]) -> _PendingImage:
                return self._load(*entry, cache)

            done = 0
            with closing(in_order(load, distinct, ahead=2 * self.batch_size)) as images:
                while batch := list(islice(images, self.batch_size)):
                    part = self._batch(batch, cache)
                    if rows is None:
                        rows = np.empty((len(distinct), part.shape[1]), dtype=np.float32)
                    rows[done : done + len(batch)] = part
                    done += len(batch)
                    if progress is not None:
                        progress(done, len(distinct))
        if rows is None:
            return np.empty((0, self.width), dtype=np.float32)
        return rows if len(distinct) == len(position) else rows[position]

    def config(self) -> dict[str, Any]:
        """Name of the backbone, its size and crop, and a hash of its weights."""
        if self.name is None:
            raise InputError(
                "An image front end that was given a module cannot be saved with a model. Register "
                "it by name, before saving and before loading: "
                "register_backbone('my-net', make_my_net), then ImageFeatures('my-net')."
            )
        if self._weights is None or self.size is None or self.crop is None:
            found = self.backbone
            self._weights, self.size, self.crop = found.weights_id, found.size, found.crop
        return {
            "backbone": self.name,
            "size": self.size,
            "crop": self.crop,
            "weights": self._weights,
        }

    @classmethod
    def from_config(
        cls, *, backbone: str, size: int, crop: float, weights: str, **unknown: Any
    ) -> ImageFeatures:
        """The front end that `config` described; its network is loaded, and checked, when used.

        >>> one = ImageFeatures.from_config(
        ...     backbone="efficientnet-lite1", size=240, crop=0.882, weights="77cc7160"
        ... )
        >>> one.config()["size"]
        240
        """
        if unknown:
            raise InputError(f"the image config has unknown entries: {', '.join(unknown)}.")
        features = cls(backbone, size=size, crop=crop)
        features._weights = weights
        return features

    def _adapted(self, backbone: Backbone) -> Backbone:
        size = backbone.size if self.size is None else self.size
        crop = backbone.crop if self.crop is None else self.crop
        return replace(backbone, size=size, crop=crop)

    def _space(self) -> str:
        """All that features depend on besides the image, as text."""
        net = self.backbone
        # A module without a name is known by its structure.
        name = self.name or f"{type(net.module).__module__} {net.module!r}"
        parts = [_PIXELS, name, net.weights_id, net.size, net.crop, *net.mean, *net.std]
        return json.dumps(parts)

    def _load(self, name: str, item: ImageItem, cache: FeatureCache) -> _PendingImage:
        """Runs in a thread: the features of a file if they are known, else the pixels."""
        digest = None
        if isinstance(item, str | PathLike):
            item = read_file(item)
            digest = hashlib.sha256(item).digest()
            row = cache.get(digest)
            if row is not None:
                return _PendingImage(name, digest, row=row)
        net = self.backbone
        # Twice the pixels that are needed leave nothing to see of a JPEG's coarser decoding.
        at_least = 2 * math.ceil(net.size / net.crop)
        image = load_image(item, name=name, at_least=at_least)
        return _PendingImage(name, digest, pixels=centre_crop(image, net.size, net.crop))

    def _batch(self, images: list[_PendingImage], cache: FeatureCache) -> NDArray[np.float32]:
        """Features (m, d) of m images; the network sees those that have none yet."""
        new = [image for image in images if image.pixels is not None]
        if new:
            pixels = torch.from_numpy(np.stack([i.pixels for i in new if i.pixels is not None]))
            made: NDArray[np.float32] = self.backbone.features(pixels).numpy()
            for image, row in zip(new, made, strict=True):
                if not np.isfinite(row).all():
                    raise InputError(f"{image.name}: the backbone gives NaN or infinite features.")
                image.row = row
            cache.put({i.digest: i.row for i in new if i.digest is not None and i.row is not None})
        return np.stack([image.row for image in images if image.row is not None])
