"""Ranks of 16,042 x 16,042 in both directions, against the bare matrix product."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.timing import Row, medians, show
from ccal.evaluation import evaluate_embeddings, two_way_ranks

PAIRS = 16_042


def views(d: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(PAIRS, d, generator=generator)
    return x, x + 2 * torch.randn(PAIRS, d, generator=generator)


def resident() -> int:
    """Bytes of memory in use by this process (Linux)."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(fields["VmRSS"].split()[0])


def extra_memory(run: Callable[[], object]) -> float:
    """Megabytes in use while running beyond those before, looked at every millisecond."""
    before, done = resident(), threading.Event()
    peak = before

    def watch() -> None:
        nonlocal peak
        while not done.is_set():
            peak = max(peak, resident())
            time.sleep(1e-3)

    watcher = threading.Thread(target=watch)
    watcher.start()
    run()
    done.set()
    watcher.join()
    return (peak - before) / 1e6


def rows(seconds: float = 8.0) -> list[Row]:
    """Against the product written to memory that is at hand, the least it can take."""
    table: list[Row] = []
    for d in (32, 64, 128):
        x, y = views(d)
        # Before the product's own gigabyte is there, so that none of it can be used again.
        memory = extra_memory(lambda x=x, y=y: evaluate_embeddings(x, y))  # type: ignore[misc]
        scores = torch.empty(PAIRS, PAIRS)
        times = medians(
            {
                "matmul": lambda x=x, y=y, out=scores: torch.mm(x, y.mT, out=out),  # type: ignore[misc]
                "ranks": lambda x=x, y=y: two_way_ranks(x, y),  # type: ignore[misc]
                "evaluate": lambda x=x, y=y: evaluate_embeddings(x, y),  # type: ignore[misc]
            },
            seconds,
        )
        del scores
        table.append(
            {
                "d": d,
                **{f"{name}_ms": round(value) for name, value in times.items()},
                "ranks/matmul": round(times["ranks"] / times["matmul"], 2),
                "evaluate/matmul": round(times["evaluate"] / times["matmul"], 2),
                "extra_MB": round(memory),
            }
        )
    return table


def main() -> dict[str, list[Row]]:
    """Run, print, and return the table."""
    table = rows()
    show(f"Both directions of {PAIRS:,} pairs; evaluate adds 1,000 bootstrap draws", table)
    return {"evaluation": table}


if __name__ == "__main__":
    main()
