"""SentenceEmbeddings: the network, against a slow reference; texts, the cache, saving."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import ccal
from ccal.encoders import DenseTower
from ccal.errors import InputError
from ccal.features import SentenceEmbeddings
from ccal.features.sentences import has_minilm
from tests.features.tiny_bert import CONFIG, WORDS, weights, write_tiny_bert

pytest.importorskip("tokenizers", reason="needs the extra sentences")

TEXTS = ["A dog runs", "", "red birds", "blue", "a dog", "a zebra runs a dog a bird red blue red a"]


def _norm(x: Tensor, w: dict[str, Tensor], name: str) -> Tensor:
    centred = x - x.mean()
    scaled = centred / torch.sqrt((centred**2).mean() + CONFIG["layer_norm_eps"])
    return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]


def _dense(x: Tensor, w: dict[str, Tensor], name: str) -> Tensor:
    return w[f"{name}.weight"] @ x + w[f"{name}.bias"]


def reference(tokens: list[str], pooling: str) -> Tensor:
    """BERT of one text, token by token and head by head, in float64."""
    w = {name: weight.double() for name, weight in weights().items()}
    states = []
    for position, token in enumerate(tokens):
        state = w["embeddings.word_embeddings.weight"][WORDS.index(token)]
        state = state + w["embeddings.position_embeddings.weight"][position]
        state = state + w["embeddings.token_type_embeddings.weight"][0]
        states.append(_norm(state, w, "embeddings.LayerNorm"))
    heads = CONFIG["num_attention_heads"]
    size = CONFIG["hidden_size"] // heads
    for number in range(CONFIG["num_hidden_layers"]):
        own = f"encoder.layer.{number}."
        q, k, v = (
            [_dense(state, w, f"{own}attention.self.{name}") for state in states]
            for name in ("query", "key", "value")
        )
        after = []
        for at, state in enumerate(states):
            mixed = []
            for head in range(heads):
                part = slice(head * size, (head + 1) * size)
                scores = torch.stack([q[at][part] @ key[part] for key in k]) / math.sqrt(size)
                shares = torch.exp(scores) / torch.exp(scores).sum()
                mixed.append(shares @ torch.stack([value[part] for value in v]))
            found = _dense(torch.cat(mixed), w, f"{own}attention.output.dense")
            state = _norm(state + found, w, f"{own}attention.output.LayerNorm")
            inner = _dense(state, w, f"{own}intermediate.dense")
            inner = inner * (1 + torch.erf(inner / math.sqrt(2))) / 2
            found = _dense(inner, w, f"{own}output.dense")
            after.append(_norm(state + found, w, f"{own}output.LayerNorm"))
        states = after
    row: Tensor = states[0] if pooling == "cls_token" else torch.stack(states).mean(0)
    length: Tensor = row.norm()
    return row / length


@pytest.mark.parametrize("pooling", ["mean_tokens", "cls_token"])
def test_rows_are_those_of_bert_by_hand(tmp_path: Path, pooling: str) -> None:
    front_end = SentenceEmbeddings(write_tiny_bert(tmp_path / "net", pooling=pooling), cache=None)
    rows = front_end.transform(TEXTS)
    # The last text is cut off at the ten tokens of the network.
    cut = "[CLS] a dog runs [SEP]|[CLS] [SEP]|[CLS] red bird ##s [SEP]|[CLS] blue [SEP]|"
    cut += "[CLS] a dog [SEP]|[CLS] a [UNK] runs a dog a bird red [SEP]"
    expected = torch.stack([reference(text.split(), pooling) for text in cut.split("|")])
    np.testing.assert_allclose(rows, expected.numpy(), rtol=0, atol=1e-5)
    assert rows.dtype == np.float32
    assert front_end.width == CONFIG["hidden_size"]


def test_batches_and_duplicates_change_nothing(tmp_path: Path) -> None:
    front_end = SentenceEmbeddings(write_tiny_bert(tmp_path / "net"), cache=None)
    alone = np.concatenate([front_end.transform([text]) for text in TEXTS])
    several = [text for text in TEXTS for _ in range(3)]
    np.testing.assert_allclose(front_end.transform(several), alone.repeat(3, axis=0), atol=1e-6)
    assert front_end.transform([]).shape == (0, CONFIG["hidden_size"])


def test_a_text_of_several_lines_is_the_mean_of_its_lines(tmp_path: Path) -> None:
    front_end = SentenceEmbeddings(write_tiny_bert(tmp_path / "net"), cache=None)
    rows = front_end.transform(
        ["a dog\nred birds\n \r\nblue\n", "a dog", "red birds", "blue", "\n"]
    )
    np.testing.assert_allclose(rows[0], rows[1:4].mean(0), rtol=0, atol=1e-6)
    assert np.isfinite(rows).all()


def test_a_second_run_asks_the_network_nothing(tmp_path: Path) -> None:
    texts = [" ".join(["dog"] * count) + end for count in range(1, 9) for end in " abcde"]
    folder, done = write_tiny_bert(tmp_path / "net"), []
    first = SentenceEmbeddings(folder, cache=tmp_path / "cache").transform(texts)
    again = SentenceEmbeddings(folder, cache=tmp_path / "cache")
    second = again.transform(texts[::-1], progress=lambda *now: done.append(now))
    assert not done
    assert first.tobytes() == second[::-1].tobytes()
    other = SentenceEmbeddings(write_tiny_bert(tmp_path / "b", seed=1), cache=tmp_path / "cache")
    assert not np.allclose(other.transform(texts), first)


def test_few_texts_leave_no_trace_on_disk(tmp_path: Path) -> None:
    folder = write_tiny_bert(tmp_path / "net")
    SentenceEmbeddings(folder, cache=tmp_path / "cache").transform(TEXTS)
    assert not (tmp_path / "cache").exists()


def test_a_saved_model_embeds_texts_as_before_and_refuses_another_network(tmp_path: Path) -> None:
    folder = write_tiny_bert(tmp_path / "net")
    model = ccal.DualEncoder(
        dim=3,
        projection="none",
        front_ends={"text": SentenceEmbeddings(folder)},
        image=DenseTower(5, 3),
        text=DenseTower(CONFIG["hidden_size"], 3),
    ).eval()
    model.save(tmp_path / "saved")
    found = ccal.load(tmp_path / "saved").encode("text", TEXTS)
    assert torch.equal(found, model.encode("text", TEXTS))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 4}')
    with pytest.raises(InputError, match="features would not fit"):
        ccal.load(tmp_path / "saved").encode("text", TEXTS)


def test_files_that_are_missing_or_do_not_fit_are_named(tmp_path: Path) -> None:
    folder = write_tiny_bert(tmp_path / "net", num_hidden_layers=3)
    with pytest.raises(InputError, match=r"do not fit config.json"):
        SentenceEmbeddings(folder).transform(["a"])
    (folder / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=r"lacks tokenizer.json"):
        SentenceEmbeddings(folder).transform(["a"])


@pytest.mark.skipif(not has_minilm(), reason="needs the extra sentences")
def test_minilm_gives_what_sentence_transformers_gives() -> None:
    rows = SentenceEmbeddings().transform(["Two dogs run over the grass.", "A red bird"])
    # Of sentence-transformers 6.2 with the same files.
    expected = [
        [0.00011411272, 0.01925888285, 0.03952917457, 0.02811804786],
        [0.03832024336, 0.02634977549, -0.07196575403, 0.04493556917],
    ]
    np.testing.assert_allclose(rows[:, :4], expected, rtol=0, atol=1e-5)
    assert rows[0] @ rows[1] == pytest.approx(0.09981206, abs=1e-5)
    assert rows.shape == (2, 384)
