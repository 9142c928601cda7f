"""CCA: statistics of paired views, one solver, the layer `CCALayer` and the estimator `CCA`."""

from typing import TYPE_CHECKING

from ccal.cca.layer import CCALayer
from ccal.cca.solver import (
    add_ridge,
    canonical_projections,
    polar_factor,
    whitened_cross_covariance,
    whitening,
)
from ccal.cca.statistics import Covariances, Moments
from ccal.optional import lazy_names

if TYPE_CHECKING:
    from ccal.cca.linear import CCA

__all__ = [
    "CCA",
    "CCALayer",
    "Covariances",
    "Moments",
    "add_ridge",
    "canonical_projections",
    "polar_factor",
    "whitened_cross_covariance",
    "whitening",
]

# Models need the layer only; the estimator is imported when first used.
__getattr__ = lazy_names(__name__, {"linear": ("CCA",)})
