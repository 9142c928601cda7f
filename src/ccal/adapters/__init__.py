"""Adapters: models, data and searches of ccal in other libraries.

onnx         a tower with its projection as an ONNX file or a `torch.export` program
sentences    `encode(texts)` as sentence-transformers has it
langchain    embeddings and a retriever for LangChain
llama_index  embeddings and a retriever for LlamaIndex
rows         pairs from Hugging Face datasets, WebDataset shards and Parquet with image bytes
callbacks    log the epochs of a training to MLflow and to Weights & Biases

Each needs its own package, and is imported when one of its names is first used.
"""

from ccal.optional import lazy_names

__getattr__, __all__ = lazy_names(__name__)
