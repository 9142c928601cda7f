"""A tiny sentence network with random weights, in the files that sentence-transformers writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "dog", "runs", "##s", "bird", "red", "blue"]
CONFIG: dict[str, Any] = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "hidden_size": 8,
    "intermediate_size": 12,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 16,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "type_vocab_size": 2,
    "vocab_size": len(WORDS),
}


def weights(seed: int = 0) -> dict[str, Tensor]:
    width, between = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    shapes = {
        "embeddings.word_embeddings.weight": (CONFIG["vocab_size"], width),
        "embeddings.position_embeddings.weight": (CONFIG["max_position_embeddings"], width),
        "embeddings.token_type_embeddings.weight": (CONFIG["type_vocab_size"], width),
        "embeddings.LayerNorm.weight": (width,),
        "embeddings.LayerNorm.bias": (width,),
        "pooler.dense.weight": (width, width),
    }
    for number in range(CONFIG["num_hidden_layers"]):
        for name, (rows, columns) in {
            "attention.self.query": (width, width),
            "attention.self.key": (width, width),
            "attention.self.value": (width, width),
            "attention.output.dense": (width, width),
            "intermediate.dense": (between, width),
            "output.dense": (width, between),
        }.items():
            shapes[f"encoder.layer.{number}.{name}.weight"] = (rows, columns)
            shapes[f"encoder.layer.{number}.{name}.bias"] = (rows,)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            for part in ("weight", "bias"):
                shapes[f"encoder.layer.{number}.{name}.{part}"] = (width,)
    random = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=random) for name, shape in shapes.items()}


def write_tiny_bert(
    folder: Path, *, pooling: str = "mean_tokens", seed: int = 0, **changes: Any
) -> Path:
    """The folder of such a network; `changes` are of its config."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    (folder / "1_Pooling").mkdir(parents=True)
    save_file(weights(seed), folder / "model.safetensors")
    numbers = {word: number for number, word in enumerate(WORDS)}
    tokeniser = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
    tokeniser.normalizer = normalizers.BertNormalizer()
    tokeniser.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokeniser.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokeniser.save(str(folder / "tokenizer.json"))
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    for name, content in {
        "config.json": {**CONFIG, **changes},
        "sentence_bert_config.json": {"max_seq_length": 10, "do_lower_case": False},
        "modules.json": [{"path": p, "type": f"models.{kind}"} for p, kind in kinds.items()],
        "1_Pooling/config.json": {f"pooling_mode_{pooling}": True},
    }.items():
        (folder / name).write_text(json.dumps(content))
    return folder
