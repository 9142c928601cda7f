"""Why a result matches: what each word and each dimension adds to its score."""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.cca import CCALayer
from ccal.model import DualEncoder
from ccal.retrieval.backends.base import Vectors
from ccal.serve.sample import telling

_DIMENSIONS, _WORDS = 8, 40


def split_words(text: str, knows: Callable[[str], bool]) -> list[dict[str, Any]]:
    """The words of a text, from character `start` to before `end`, and whether they are known.

    >>> split_words("Zwei dogs", "dogs".__eq__)[1]
    {'word': 'dogs', 'start': 5, 'end': 9, 'known': True}
    """
    words, start = [], None
    for position, char in enumerate(text + " "):
        inside = unicodedata.category(char)[0] in "LMN" or (
            # An apostrophe between letters is part of the word.
            char in "'’" and start is not None and text[position + 1 : position + 2].isalnum()
        )
        if inside and start is None:
            start = position
        elif not inside and start is not None:
            word = text[start:position]
            words.append({"word": word, "start": start, "end": position, "known": knows(word)})
            start = None
    return words


def leave_one_out(text: str) -> list[str]:
    """The text without its first word, without its second, and so on for the first 40 words."""
    words = split_words(text, lambda word: True)[:_WORDS]
    return [text[: word["start"]] + text[word["end"] :] for word in words]


def word_weights(
    words: Sequence[Mapping[str, Any]], losses: Sequence[float]
) -> list[dict[str, Any]]:
    """Words with what the score loses without them; None beyond the first 40."""
    weights = [*losses, *[None] * (len(words) - len(losses))]
    return [{**word, "weight": weight} for word, weight in zip(words, weights, strict=True)]


def contributions(
    model: DualEncoder,
    query: Vectors,
    found: Vectors,
    words: Sequence[Mapping[str, Any]] = (),
    dimensions: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """How each dimension contributes to the cosines of a query with vectors (n, d).

    The products of two unit vectors, dimension by dimension, sum to their cosine. The eight largest
    are named, the others summed. The last four columns are those of the hub correction, if any.
    `end` is the number of the dimension, negative if the query lies at its low end.

    Args:
        query: (1 + m, d), the query and the query without each of its first m words.
        words: the words, known ones with "known"; those that a contribution comes from are named.
        dimensions: what `Run.dimensions` says of the model, if its run is known.
    """
    whole = query[0].astype(np.float64)
    products = found.astype(np.float64) * whole
    space = products.shape[1] - (4 if model.hubs is not None else 0)
    layer = model.projection
    canonical = False
    correlations: list[float | None] = [None] * space
    if isinstance(layer, CCALayer) and layer.coordinates == "canonical":
        canonical, measured = True, layer.correlations.tolist()
        correlations = [value if np.isfinite(value) else None for value in measured]
    if dimensions is not None:
        correlations = [one["held_out"] for one in dimensions["dimensions"]]
    change = whole - query[1:].astype(np.float64)
    explained = []
    for row, vector in zip(products, found.astype(np.float64), strict=True):
        leading = np.argsort(-np.abs(row[:space]), kind="stable")[:_DIMENSIONS].tolist()
        named = [
            {
                "dimension": d + 1,
                "end": d + 1 if whole[d] >= 0 else -(d + 1),
                "contribution": float(row[d]),
                "correlation": correlations[d],
                "words": _behind(words, change[:, d] * vector[d], float(row[d])),
            }
            for d in leading
        ]
        rest = float(row[:space].sum() - row[leading].sum())
        correction = float(row[space:].sum()) if model.hubs is not None else None
        explained.append(
            {
                "dimensions": named,
                "canonical": canonical,
                "others": space - len(leading),
                "rest": rest,
                "correction": correction,
                "words": None,
            }
        )
    return explained


def words_at(end: int, dimensions: Mapping[str, Any] | None) -> list[tuple[str, float]]:
    """Words of the training texts that correlate with dimension |end|, at its high or low end."""
    if dimensions is None:
        return []
    loadings = dimensions["dimensions"][abs(end) - 1]["loadings"]
    words = {
        word: value
        for name, kind in dimensions["features"].items()
        if kind == "words"
        for word, value in loadings[name]["high" if end > 0 else "low"]
    }
    return [(word, words[word]) for word in telling(words)]


def _behind(
    words: Sequence[Mapping[str, Any]], losses: NDArray[np.float64], contribution: float
) -> list[str]:
    """At most two known words without which a contribution loses at least a quarter."""
    if contribution <= 0:
        return []
    order = np.argsort(-losses, kind="stable")[:2].tolist()
    strong = [at for at in order if words[at]["known"] and losses[at] >= 0.25 * contribution]
    return list(dict.fromkeys(words[at]["word"] for at in strong))
