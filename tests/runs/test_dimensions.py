"""Words and features behind dimensions: loadings against correlations in float64."""

from __future__ import annotations

import numpy as np

from ccal.data import Pairs
from ccal.runs.dimensions import describe_dimensions
from ccal.training import Settings, train
from ccal.training.scoring import embed, embed_pairs


def test_loadings_are_correlations_of_features_and_coordinates() -> None:
    rng = np.random.default_rng(0)
    snow, dog = rng.integers(2, size=(2, 300))
    image = np.stack([snow, dog], 1) @ rng.normal(size=(2, 6)) + 0.3 * rng.normal(size=(300, 6))
    chosen = zip(np.where(snow, "snow", "grass"), np.where(dog, "dog", "man"), strict=True)
    noise = rng.choice(["here", "there", "now"], size=300)
    texts = [f"{a} {b} {c}" for (a, b), c in zip(chosen, noise, strict=True)]
    pairs = Pairs({"image": image.astype(np.float32), "text": texts})
    settings = Settings(method="linear", dim=2, train_on_all=False)
    trained = train(settings, pairs[:200], pairs[200:250], progress=False)
    model, seen = trained.model, trained.features
    found = describe_dimensions(model, seen, embed_pairs(model, pairs[250:]))
    assert found["features"] == {"image": "numbers", "text": "words"}
    vocabulary = model.front_ends["text"].vocabulary  # type: ignore[attr-defined]
    coordinates = [view.double().numpy() for view in embed(model, seen)]
    features = [view.astype(np.float64) for view in seen.arrays()]
    for at, dimension in enumerate(found["dimensions"]):
        x, y = (view[:, at] for view in coordinates)
        assert abs(dimension["correlation"] - np.corrcoef(x, y)[0, 1]) < 1e-6
        assert 0.5 < dimension["held_out"] <= 1
        for view, name in enumerate(("image", "text")):
            for end, sign in (("high", 1), ("low", -1)):
                listed = dimension["loadings"][name][end]
                assert listed, (at, name, end)
                for word, value in listed:
                    column = vocabulary.index(word) if name == "text" else word
                    expected = np.corrcoef(features[view][:, column], coordinates[view][:, at])
                    assert value * sign > 0
                    assert abs(value - expected[0, 1]) < 1e-4
                if name == "text":
                    assert listed[0][0] in ("snow", "grass", "dog", "man")
