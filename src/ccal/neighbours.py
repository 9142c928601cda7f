"""Candidates that speak for each other: an embedding becomes the mean of its neighbours'.

One picture's embedding is a noisy guess at what it shows. Pictures that look alike mostly show the
same thing, and the errors of their guesses differ, so their mean is the better guess. No query and
no label is needed, only the other candidates, at the time when they are indexed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ccal.errors import InputError
from ccal.ranks import unit_rows

__all__ = ["mean_of_neighbours"]

_CHUNK = 1024


def mean_of_neighbours(embeddings: Tensor, features: Tensor, *, neighbours: int) -> Tensor:
    """Mean (n, k), of length 1, of each candidate's nearest by cosine of `features` (n, d).

    `embeddings` (n, k) count with length 1, weighted by that cosine, or not at all if it is
    negative. A candidate is its own nearest neighbour; `neighbours=1` leaves all as they are. Good
    are about half as many neighbours as a class has candidates. It is known in image retrieval as
    database-side feature augmentation (Arandjelovic and Zisserman, 2012). Time grows with n^2.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    >>> mean_of_neighbours(embeddings, features, neighbours=2).round(decimals=2)
    tensor([[ 0.7100,  0.7100],
            [ 0.7100,  0.7100],
            [ 0.0000, -1.0000]])
    """
    if len(embeddings) != len(features):
        raise InputError(
            f"embeddings and features must be of the same candidates, got {len(embeddings)} and "
            f"{len(features)} rows."
        )
    if neighbours < 1:
        raise InputError(f"neighbours must be 1 or more, got {neighbours}.")
    values, places = unit_rows(embeddings, "embeddings"), unit_rows(features, "features")
    count = min(neighbours, len(places))
    parts = []
    for part in places.split(_CHUNK):
        cosines, nearest = (part @ places.mT).topk(count)
        weights = cosines.clamp_min(0).to(values.dtype)
        parts.append((weights[..., None] * values[nearest]).sum(1))
    return unit_rows(torch.cat(parts), "means") if parts else values
