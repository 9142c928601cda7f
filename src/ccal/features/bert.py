"""Sentence embeddings by a BERT network, read from a folder that sentence-transformers wrote.

Torch has the layers of BERT, so that the network is here in a page; `tokenizers` cuts the texts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import normalize

from ccal.errors import InputError
from ccal.optional import require

# Of a batch, with padding. Activations of small batches stay in the caches of a CPU.
_TOKENS_IN_BATCH = 512
_TOKENISED_AT_ONCE = 4096
_FILES = ("config.json", "tokenizer.json", "model.safetensors")


class UnsupportedNetworkError(InputError):
    """The folder holds another kind of network than `BertSentences` computes."""


class Bert(nn.Module):
    """The network of Devlin et al. 2019, without its pooler: token numbers in, states out.

    Shapes: tokens (n, t), and the number of tokens of each text (n,) -> states (n, t, width).
    """

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        width, eps = config["hidden_size"], config["layer_norm_eps"]
        self.words = nn.Embedding(config["vocab_size"], width)
        self.positions = nn.Embedding(config["max_position_embeddings"], width)
        self.segments = nn.Embedding(config["type_vocab_size"], width)
        self.norm = nn.LayerNorm(width, eps=eps)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width,
                config["num_attention_heads"],
                config["intermediate_size"],
                dropout=0.0,
                activation="gelu",
                layer_norm_eps=eps,
                batch_first=True,
            )
            for _ in range(config["num_hidden_layers"])
        )

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """States of tokens; those of padding mean nothing."""
        t = tokens.shape[1]
        states: Tensor = self.words(tokens) + self.positions.weight[:t] + self.segments.weight[0]
        states = self.norm(states)
        # Without padding, attention needs no mask and is faster.
        padding = None if bool((lengths == t).all()) else torch.arange(t) >= lengths[:, None]
        for layer in self.layers:
            states = layer(states, src_key_padding_mask=padding)
        return states


class BertSentences:
    """Embeddings of texts, as sentence-transformers computes them from the same folder.

    Attributes:
        width: number of features of a text.
        weights_id: 16 hexadecimal digits of the SHA-256 of the files.
    """

    def __init__(self, folder: Path) -> None:
        from safetensors.torch import load

        tokenizers = require("tokenizers", extra="sentences", purpose="Embedding sentences")
        if missing := [name for name in _FILES if not (folder / name).is_file()]:
            raise InputError(
                f"{str(folder)!r} holds no sentence network: it lacks {', '.join(missing)}."
            )
        config = _json(folder / "config.json")
        self._pooling, self._normalise, pooling = _after_bert(folder)
        _check_supported(folder, config)
        limits = _json(folder / "sentence_bert_config.json", optional=True)
        own = _json(folder / "tokenizer_config.json", optional=True)
        longest = limits.get("max_seq_length") or own.get("model_max_length") or 512
        self._tokeniser = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokeniser.no_padding()
        # Files without a limit of their own give a huge number.
        self._tokeniser.enable_truncation(int(min(longest, config["max_position_embeddings"])))
        self._lower = bool(limits.get("do_lower_case"))
        content = (folder / "model.safetensors").read_bytes()
        with torch.device("meta"):
            network = Bert(config)
        try:
            network.load_state_dict(_torch_names(load(content)), assign=True)
        except (KeyError, RuntimeError) as error:
            raise InputError(
                f"{str(folder)!r}: the weights do not fit config.json: {error}"
            ) from error
        self._network = network.eval().requires_grad_(False)
        self.width = int(config["hidden_size"])
        digest = hashlib.sha256(content)
        for part in (config, limits, own, pooling):
            digest.update(json.dumps(part, sort_keys=True).encode())
        digest.update((folder / "tokenizer.json").read_bytes())
        self.weights_id = digest.hexdigest()[:16]

    @torch.inference_mode()
    def batches(self, texts: Sequence[str]) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        """Embeddings (m, width) of all texts with their positions, longest texts first."""
        tokens: list[list[int]] = []
        for start in range(0, len(texts), _TOKENISED_AT_ONCE):
            some = texts[start : start + _TOKENISED_AT_ONCE]
            some = [text.lower() for text in some] if self._lower else some
            tokens += [found.ids for found in self._tokeniser.encode_batch(some)]
        order = sorted(range(len(tokens)), key=lambda at: -len(tokens[at]))
        start = 0
        while start < len(order):
            longest = len(tokens[order[start]])
            batch = order[start : start + max(1, _TOKENS_IN_BATCH // longest)]
            start += len(batch)
            lengths = torch.tensor([len(tokens[at]) for at in batch])
            padded = torch.tensor([tokens[at] + [0] * (longest - len(tokens[at])) for at in batch])
            yield batch, self._pooled(self._network(padded, lengths), lengths).numpy()

    def _pooled(self, states: Tensor, lengths: Tensor) -> Tensor:
        """One row (m, width) for the states (m, t, width) of each text."""
        if self._pooling == "cls":
            rows = states[:, 0]
        else:
            own = torch.arange(states.shape[1]) < lengths[:, None]
            # Layers may leave anything, even NaN, in the states of padding.
            rows = states.where(own[..., None], 0.0).sum(1) / lengths[:, None]
        return normalize(rows, dim=1) if self._normalise else rows


def _json(path: Path, *, optional: bool = False) -> dict[str, Any]:
    if optional and not path.is_file():
        return {}
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{str(path)!r} cannot be read as JSON: {error}") from error
    return found


def _after_bert(folder: Path) -> tuple[str, bool, dict[str, Any]]:
    """How states become a row, whether it gets length 1, and the configuration that says so."""
    if not (folder / "modules.json").is_file():
        # sentence-transformers takes the mean of such folders, too.
        return "mean", False, {}
    modules: Any = _json(folder / "modules.json")
    kinds = [module["type"].rsplit(".", 1)[-1] for module in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ([], ["Normalize"]):
        raise UnsupportedNetworkError(f"{str(folder)!r} is a network of {', '.join(kinds)}")
    config = _json(folder / modules[1]["path"] / "config.json")
    # Since version 6 the mode is named; before, each had a flag.
    flags = [name.removeprefix("pooling_mode_") for name, on in config.items() if on is True]
    mode = config.get("pooling_mode") or "+".join(name for name in flags if name in _POOLING)
    if mode not in _POOLING:
        raise UnsupportedNetworkError(f"{str(folder)!r} pools by {mode or config}")
    return _POOLING[mode], len(kinds) == 3, {**config, "modules": kinds}


_POOLING = {"mean": "mean", "mean_tokens": "mean", "cls": "cls", "cls_token": "cls"}


def _check_supported(folder: Path, config: dict[str, Any]) -> None:
    found = {name: config.get(name, usual) for name, usual in _SUPPORTED.items()}
    for name, usual in _SUPPORTED.items():
        if found[name] != usual:
            raise UnsupportedNetworkError(f"{str(folder)!r} has {name} = {found[name]!r}")
    prompts = _json(folder / "config_sentence_transformers.json", optional=True)
    if prompts.get("default_prompt_name"):
        raise UnsupportedNetworkError(f"{str(folder)!r} puts a prompt before each text")


_SUPPORTED = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}


def _torch_names(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a BertModel under the names of `Bert`, in float32."""
    weights = {name.removeprefix("bert."): weight.float() for name, weight in weights.items()}
    tables = {"words": "word", "positions": "position", "segments": "token_type"}
    renamed = {
        f"{ours}.weight": f"embeddings.{own}_embeddings.weight" for ours, own in tables.items()
    }
    depth = 1 + max(int(n.split(".")[2]) for n in weights if n.startswith("encoder.layer."))
    for part in ("weight", "bias"):
        renamed[f"norm.{part}"] = f"embeddings.LayerNorm.{part}"
        for number in range(depth):
            for ours, own in _LAYER.items():
                renamed[f"layers.{number}.{ours}.{part}"] = f"encoder.layer.{number}.{own}.{part}"
    found = {ours: weights[own] for ours, own in renamed.items()}
    for number in range(depth):
        own = f"encoder.layer.{number}.attention.self."
        for part in ("weight", "bias"):
            stacked = [weights[f"{own}{name}.{part}"] for name in ("query", "key", "value")]
            found[f"layers.{number}.self_attn.in_proj_{part}"] = torch.cat(stacked)
    return found


_LAYER = {
    "self_attn.out_proj": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
    "linear1": "intermediate.dense",
    "linear2": "output.dense",
    "norm2": "output.LayerNorm",
}
