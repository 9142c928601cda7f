"""Inputs that the tests of reports share."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import torch

from ccal.evaluation import (
    CorrelationStructure,
    Direction,
    Measures,
    Report,
    correlation_structure,
    evaluate_embeddings,
)

HOSTILE = (
    "</style><script>alert('x')</script> & id=\"a\" url(#a) </svg> #0068a8 $a_1$ 🎉 𝔘 \u202e עברית "
    "\x00\x1b\x85\ud800 --> ]]> _end"
)


def pair(n: int = 60, d: int = 8, noise: float = 1.0, seed: int = 0) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator)
    return x, x + noise * torch.randn(n, d, generator=generator)


def report(n: int = 60, seed: int = 0, bootstrap: int = 50, name: str = "image") -> Report:
    return evaluate_embeddings(*pair(n, seed=seed), bootstrap=bootstrap, names=(name, "text"))


def huge(n: int = 16_000) -> Report:
    ranks = torch.randint(1, n + 1, (n,), generator=torch.Generator().manual_seed(0))
    one = Direction("a -> b", n, Measures.of(ranks), None, None, ranks)
    return Report(one, one, "optimistic", 0)


def structure(held_out: bool = True, d: int = 8, n: int = 60) -> CorrelationStructure:
    return correlation_structure(
        *pair(n, d), held_out=pair(40, d, noise=2.0, seed=1) if held_out else None
    )


def records(epochs: int = 12, stage: str = "train") -> list[dict[str, Any]]:
    return [
        {
            "stage": stage,
            "epoch": epoch,
            "loss": 3.0 / epoch,
            "learning_rate": 1e-3 if epoch <= 8 else 1e-4,
            "mrr_x_to_y": 0.9 ** abs(epoch - 9),
            "mrr_y_to_x": 0.8 ** abs(epoch - 9),
            "seconds": 1.0,
            "pairs_per_second": 1000.0,
        }
        for epoch in range(1, epochs + 1)
    ]


class Page(HTMLParser):
    """Reads a page strictly: every element is closed, in order; collects what tests ask for."""

    VOID = frozenset({"meta", "br", "img"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"{tag} repeats an attribute"
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"{tag} is closed but not open"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def attributes(self, name: str) -> list[str]:
        return [value for _, attrs in self.seen if (value := attrs.get(name)) is not None]

    def tags(self) -> set[str]:
        return {tag for tag, _ in self.seen}
