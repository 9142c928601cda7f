"""CCA: statistics of paired views, one solver, the layer `CCALayer` and the estimator `CCA`."""

from ccal.cca.layer import CCALayer
from ccal.cca.linear import CCA
from ccal.cca.solver import (
    add_ridge,
    canonical_projections,
    polar_factor,
    whitened_cross_covariance,
    whitening,
)
from ccal.cca.statistics import Covariances, Moments

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
