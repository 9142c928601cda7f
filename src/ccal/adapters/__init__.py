"""Adapters: models, data and searches of ccal in other libraries.

onnx         a tower with its projection as an ONNX file or a `torch.export` program
sentences    `encode(texts)` as sentence-transformers has it
langchain    embeddings and a retriever for LangChain
llama_index  embeddings and a retriever for LlamaIndex
rows         pairs from Hugging Face datasets, WebDataset shards and Parquet with image bytes
mlflow       a callback that logs the epochs of a training to MLflow
wandb        the same for Weights & Biases

Each needs its own package, and is imported when one of its names is first used.
"""

from ccal.optional import lazy_names

__getattr__, __all__ = lazy_names(__name__)
