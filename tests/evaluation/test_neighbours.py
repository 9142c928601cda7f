from __future__ import annotations

import pytest
import torch

from ccal.errors import InputError
from ccal.evaluation.hubs import mean_of_neighbours


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_means_are_those_of_a_loop() -> None:
    rng = generator(0)
    embeddings = torch.randn(40, 5, generator=rng, dtype=torch.float64)
    features = torch.randn(40, 7, generator=rng, dtype=torch.float64)
    found = mean_of_neighbours(embeddings, features, neighbours=6)
    for i in range(40):
        cosines = torch.cosine_similarity(features[i][None], features)
        total = sum(
            cosines[j].clamp_min(0) * embeddings[j] / embeddings[j].norm()
            for j in cosines.argsort(descending=True)[:6].tolist()
        )
        assert isinstance(total, torch.Tensor)
        torch.testing.assert_close(found[i], total / total.norm())


def test_alone_an_embedding_stays_as_it_is() -> None:
    embeddings = torch.randn(30, 4, generator=generator(1))
    found = mean_of_neighbours(embeddings, torch.randn(30, 3), neighbours=1)
    torch.testing.assert_close(found, torch.nn.functional.normalize(embeddings))


def test_more_neighbours_than_candidates_are_all_of_them() -> None:
    embeddings, features = torch.randn(5, 4), torch.rand(5, 3) + 1
    all_of_them = mean_of_neighbours(embeddings, features, neighbours=5)
    assert torch.equal(mean_of_neighbours(embeddings, features, neighbours=50), all_of_them)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="3 and 2 rows"):
        mean_of_neighbours(torch.eye(3), torch.eye(2), neighbours=1)
    with pytest.raises(InputError, match="neighbours"):
        mean_of_neighbours(torch.eye(3), torch.eye(3), neighbours=0)
