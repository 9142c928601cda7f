"""A model as an encoder of texts, with the calls of sentence-transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ccal.errors import InputError
from ccal.features import ImageFeatures
from ccal.model import DualEncoder
from ccal.ranks import unit_rows


class SentenceEncoder:
    """`encode(texts)` for programs that were written for a `SentenceTransformer`.

    Args:
        model: with a front end that reads texts.
        modality: of the texts; the only one that has such a front end by default.
    """

    def __init__(self, model: DualEncoder, modality: str | None = None) -> None:
        readable = [n for n, f in model.front_ends.items() if not isinstance(f, ImageFeatures)]
        if modality is None and len(readable) == 1:
            modality = readable[0]
        if modality not in readable:
            raise InputError(
                f"{modality!r} is no modality of texts; this model reads texts as "
                f"{', '.join(readable) or 'none of its modalities'}."
            )
        self.model, self.modality = model, modality

    def encode(
        self,
        sentences: str | Sequence[str],
        *,
        batch_size: int = 1024,
        normalize_embeddings: bool = False,
        convert_to_tensor: bool = False,
        **_: Any,
    ) -> Any:
        """Embeddings (n, k) of n texts, or (k,) of one: NumPy, or a tensor if asked for.

        Other arguments of sentence-transformers, such as `show_progress_bar`, change nothing.
        """
        texts = [sentences] if isinstance(sentences, str) else list(sentences)
        found = self.model.encode(self.modality, texts, batch_size=batch_size)
        if normalize_embeddings:
            found = unit_rows(found, "embeddings")
        found = found[0] if isinstance(sentences, str) else found
        return found if convert_to_tensor else found.cpu().numpy()

    def get_sentence_embedding_dimension(self) -> int:
        """k."""
        return int(self.encode("a").shape[0])

    def similarity(self, one: Any, other: Any) -> Tensor:
        """Cosines (n, m) of two sets of embeddings."""
        rows = (unit_rows(torch.as_tensor(view), "embeddings") for view in (one, other))
        x, y = rows
        return x @ y.mT
