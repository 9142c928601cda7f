"""Linear CCA: the estimator and what it is made of.

- `cca`: the estimator `CCA`; `estimator`: scikit-learn's protocol; `parameters`: its checks
- `views`: arrays, memory maps and tensors as one thing; `streaming`: their moments in one pass
- `span`: the dual form; `canonical`: projections of covariances; `solution`: a fit
- `selection`: ridge and weighting by held-out retrieval; `archive`: saving
"""

from ccal.cca.linear.cca import CCA

__all__ = ["CCA"]
