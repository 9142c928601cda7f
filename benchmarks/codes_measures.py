"""What benchmarks.codes measures: codes, fewer dimensions, and hubs set back at query time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccal.codes import BinaryCodes, CodeIndex
from ccal.evaluation import Measures
from ccal.evaluation.hubs import HubCorrection, csls_scores, inverted_softmax_scores
from ccal.model import DualEncoder
from ccal.ranks import unit_rows
from ccal.retrieval.codes.binary import Kind

BYTES, RERANK = (32, 16, 8), 100
KINDS: tuple[Kind, ...] = get_args(Kind)
DIMS = (256, 128, 64, 32, 16, 8)
HUB_WEIGHT, BANK = 0.5, 20_000

Both = tuple[Tensor, Tensor]
Row = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """Embeddings of pairs, without hub correction, and test vectors as the model gives them."""

    model: DualEncoder
    training: Both
    test: Both
    vectors: Both


def measured(scores: Tensor) -> dict[str, float]:
    """MRR and R@10, in %, of square scores whose diagonal is the right answer."""
    right = scores.diagonal()[:, None]
    found = Measures.of(1 + (scores > right).sum(1))
    return {"mrr": found.mrr, "r10": found.r10}


def two_ways(task: Task, forward: dict[str, float], backward: dict[str, float]) -> Row:
    x, y = task.model.modalities
    return {f"{x} -> {y}": forward, f"{y} -> {x}": backward}


def cosine_row(task: Task, views: Both) -> Row:
    x, y = (unit_rows(view.float(), "view") for view in views)
    return two_ways(task, measured(x @ y.mT), measured(y @ x.mT))


def found_ranks(rows: NDArray[np.int64]) -> dict[str, float]:
    """Measures of hits (n, n or fewer); what is not among them counts as found after all others."""
    hit = rows == np.arange(len(rows))[:, None]
    ranks = np.where(hit.any(1), hit.argmax(1) + 1, len(rows))
    found = Measures.of(ranks)
    return {"mrr": found.mrr, "r10": found.r10}


def code_rows(task: Task, codes: BinaryCodes, prefix: str) -> Iterator[tuple[str, Row]]:
    """By the codes alone, and with the first hundred ranked anew by the model's own vectors."""
    packed = [
        codes.encode(name, view)
        for name, view in zip(task.model.modalities, task.test, strict=True)
    ]
    for rerank in (0, RERANK):
        ways = []
        for query, other in ((0, 1), (1, 0)):
            index = CodeIndex(codes, packed[other], vectors=task.vectors[other])
            vectors = task.vectors[query] if rerank else None
            hits = index.search(
                packed[query], k=rerank or len(index), rerank=rerank, vectors=vectors
            )
            ways.append(found_ranks(hits.rows))
        name = f"{prefix} {codes.bytes}" + (f" rerank {rerank}" if rerank else "")
        yield name, two_ways(task, ways[0], ways[1])


def all_codes(task: Task, have: Row) -> Iterator[tuple[str, Row]]:
    """Every form of an item but those that were measured before."""
    yield "float32", cosine_row(task, task.vectors)
    if task.model.hubs is not None:
        yield "float32 uncorrected", cosine_row(task, task.test)
    for kind in KINDS:
        for size in BYTES:
            if kind == "sign" and 8 * size > task.test[0].shape[1]:
                continue
            if f"{kind} {size} rerank {RERANK}" in have:
                continue
            codes = BinaryCodes.fit(task.model, *task.training, bits=8 * size, kind=kind)
            yield from code_rows(task, codes, kind)


def truncations(task: Task) -> Iterator[tuple[str, Row]]:
    for dims in DIMS:
        if dims <= task.test[0].shape[1]:
            x, y = (unit_rows(view[:, :dims], "view") for view in task.test)
            yield f"float32 {dims}", cosine_row(task, (x, y))
            yield f"float16 {dims}", cosine_row(task, (x.half(), y.half()))


def corrections(task: Task) -> Iterator[tuple[str, Row]]:
    x, y = task.test
    rows = torch.linspace(0, len(task.training[0]) - 1, min(len(task.training[0]), BANK)).long()
    bank_x, bank_y = (view[rows] for view in task.training)
    yield "none", cosine_row(task, task.test)
    hubs = task.model.hubs
    if hubs is None:
        hubs = HubCorrection.of(bank_x, bank_y, weight=HUB_WEIGHT)
    yield "HubCorrection", cosine_row(task, (hubs.correct_x(x), hubs.correct_y(y)))
    for name, scores in (("CSLS", csls_scores), ("inverted softmax", inverted_softmax_scores)):
        for where, banks in (("training", (bank_x, bank_y)), ("batch", (x, y))):
            forward, backward = scores(x, y, bank=banks[0]), scores(y, x, bank=banks[1])
            yield f"{name}, {where}", two_ways(task, measured(forward), measured(backward))


def measure(task: Task, have: Row) -> Row:
    """What is missing in `have`, and what is there."""
    hubs = task.model.hubs
    codes = have.get("codes", {})
    return {
        "pairs": len(task.training[0]),
        "candidates": len(task.test[0]),
        "dim": task.test[0].shape[1],
        "hub weight": hubs.weight if hubs else None,
        "codes": {**codes, **dict(all_codes(task, codes))},
        "dims": have.get("dims") or dict(truncations(task)),
        "hubs": have.get("hubs") or dict(corrections(task)),
    }
