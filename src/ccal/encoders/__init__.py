"""Towers: networks from the features of one modality to the space where two meet."""

from ccal.encoders.chroma import Chroma, ChromaTower
from ccal.encoders.dense import DenseTower, LinearTower
from ccal.encoders.registry import (
    FrontEnd,
    build_front_end,
    build_tower,
    front_end_config,
    register_front_end,
    register_tower,
    tower_config,
)
from ccal.encoders.vgg import VGG, ResidualVGG, pooled_pixels
from ccal.encoders.word_towers import WordCNN, WordCRNN

__all__ = [
    "VGG",
    "Chroma",
    "ChromaTower",
    "DenseTower",
    "FrontEnd",
    "LinearTower",
    "ResidualVGG",
    "WordCNN",
    "WordCRNN",
    "build_front_end",
    "build_tower",
    "front_end_config",
    "pooled_pixels",
    "register_front_end",
    "register_tower",
    "tower_config",
]
