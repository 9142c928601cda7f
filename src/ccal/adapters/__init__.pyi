from ccal.adapters.callbacks import MLflowCallback as MLflowCallback
from ccal.adapters.callbacks import WandbCallback as WandbCallback
from ccal.adapters.langchain import CcalEmbeddings as CcalEmbeddings
from ccal.adapters.langchain import CcalRetriever as CcalRetriever
from ccal.adapters.llama_index import CcalEmbedding as CcalEmbedding
from ccal.adapters.llama_index import CcalNodeRetriever as CcalNodeRetriever
from ccal.adapters.onnx import Embedder as Embedder
from ccal.adapters.onnx import to_onnx as to_onnx
from ccal.adapters.onnx import to_program as to_program
from ccal.adapters.rows import pairs_from_rows as pairs_from_rows
from ccal.adapters.rows import parquet_rows as parquet_rows
from ccal.adapters.sentences import SentenceEncoder as SentenceEncoder

__all__: list[str]
