"""Images as rows of features, by a network that someone has trained before.

front_end          ImageFeatures: paths, bytes, Pillow images or pixels in, features out
backbones          networks by name, and how to add one
efficientnet_lite  the built-in ones, whose weights are installed with `ccal[images]`
items              the items of one call: duplicates, names
loading            one image: file, orientation, colours, centre crop
colours            every kind of pixel as 8-bit RGB
scan               image files in a folder; which of a list cannot be read
cache              features on disk, by content
reading            threads that decode ahead of the network
"""

from ccal.data.images.backbones import (
    Backbone,
    as_backbone,
    backbone_names,
    load_backbone,
    register_backbone,
)
from ccal.data.images.cache import FeatureCache, user_cache
from ccal.data.images.front_end import ImageFeatures
from ccal.data.images.loading import centre_crop, load_image
from ccal.data.images.scan import BadImages, ImageScan, find_images, scan_images

__all__ = [
    "Backbone",
    "BadImages",
    "FeatureCache",
    "ImageFeatures",
    "ImageScan",
    "as_backbone",
    "backbone_names",
    "centre_crop",
    "find_images",
    "load_backbone",
    "load_image",
    "register_backbone",
    "scan_images",
    "user_cache",
]
