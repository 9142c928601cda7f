"""Embeddings and a retriever for LlamaIndex. Needs `llama-index-core`."""

from __future__ import annotations

from typing import Any

from ccal.optional import require

require("llama_index.core", package="llama-index-core", purpose="This adapter")

from llama_index.core.base.base_retriever import BaseRetriever  # noqa: E402
from llama_index.core.embeddings import BaseEmbedding  # noqa: E402
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode  # noqa: E402

from ccal.adapters.sentences import SentenceEncoder  # noqa: E402
from ccal.model import DualEncoder  # noqa: E402
from ccal.retrieval import Index  # noqa: E402


class CcalEmbedding(BaseEmbedding):
    """Texts to unit vectors, by a model with a front end that reads texts."""

    encoder: Any

    def __init__(self, model: DualEncoder, modality: str | None = None, **fields: Any) -> None:
        fields.setdefault("model_name", "ccal")
        super().__init__(encoder=SentenceEncoder(model, modality), **fields)

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        found: list[list[float]] = self.encoder.encode(texts, normalize_embeddings=True).tolist()
        return found

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


class CcalNodeRetriever(BaseRetriever):
    """Nodes from an `Index`: the text of an item, or the name of its file.

    Args:
        index: opened with its model.
        modality: of the query.
        k: number of nodes.
        search: further arguments of `Index.search`, such as `where`.
    """

    def __init__(self, index: Index, *, modality: str = "text", k: int = 10, **search: Any) -> None:
        super().__init__()
        self._index, self._modality = index, modality
        self._options: dict[str, Any] = {"k": k, **search}

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        query = {self._modality: query_bundle.query_str}
        hits = self._index.search(**self._options, **query)
        return [
            NodeWithScore(
                node=TextNode(
                    id_=hit.id,
                    text=str(hit.metadata.get("text") or hit.file or hit.id),
                    metadata={**hit.metadata, "modality": hit.modality},
                ),
                score=hit.score,
            )
            for hit in hits
        ]
