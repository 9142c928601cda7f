"""CCA: statistics of paired views, one solver, the layer `CCALayer` and the estimator `CCA`."""

from ccal.optional import lazy_names

__getattr__, __all__ = lazy_names(__name__)
