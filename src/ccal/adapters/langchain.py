"""Embeddings and a retriever for LangChain. Needs `langchain-core`."""

from __future__ import annotations

from typing import Any

from ccal.optional import require

require("langchain_core", package="langchain-core", purpose="This adapter")

from langchain_core.callbacks import CallbackManagerForRetrieverRun  # noqa: E402
from langchain_core.documents import Document  # noqa: E402
from langchain_core.embeddings import Embeddings  # noqa: E402
from langchain_core.retrievers import BaseRetriever  # noqa: E402
from pydantic import Field  # noqa: E402

from ccal.adapters.sentences import SentenceEncoder  # noqa: E402
from ccal.model import DualEncoder  # noqa: E402
from ccal.retrieval import Index  # noqa: E402


class CcalEmbeddings(Embeddings):
    """Texts to unit vectors, by a model with a front end that reads texts."""

    def __init__(self, model: DualEncoder, modality: str | None = None) -> None:
        self._encoder = SentenceEncoder(model, modality)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Vectors of documents."""
        found: list[list[float]] = self._encoder.encode(texts, normalize_embeddings=True).tolist()
        return found

    def embed_query(self, text: str) -> list[float]:
        """The vector of a query."""
        return self.embed_documents([text])[0]


class CcalRetriever(BaseRetriever):
    """Documents from an `Index`: the text of an item, or the name of its file.

    Args:
        index: opened with its model.
        modality: of the query.
        k: number of documents.
        search: further arguments of `Index.search`, such as `where`.
    """

    index: Any
    modality: str = "text"
    k: int = 10
    search: dict[str, Any] = Field(default_factory=dict)

    def __init__(self, index: Index, **fields: Any) -> None:
        super().__init__(index=index, **fields)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        hits = self.index.search(k=self.k, **self.search, **{self.modality: query})
        return [
            Document(
                id=hit.id,
                page_content=str(hit.metadata.get("text") or hit.file or hit.id),
                metadata={**hit.metadata, "score": hit.score, "modality": hit.modality},
            )
            for hit in hits
        ]
