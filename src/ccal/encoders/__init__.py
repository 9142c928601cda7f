"""Towers: networks from the features of one modality to the space where two meet."""

from ccal.encoders.dense import DenseTower
from ccal.encoders.registry import build_tower, register_tower, tower_config

__all__ = ["DenseTower", "build_tower", "register_tower", "tower_config"]
