from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed as dist


@pytest.fixture(scope="session")
def processes() -> ForkServerContext:
    """New processes that need not import torch again."""
    context = multiprocessing.get_context("forkserver")
    # Optimisers import the second at their first step, which takes seconds.
    context.set_forkserver_preload(["tests.training.stand_ins", "torch._dynamo"])
    return context


@pytest.fixture(scope="session")
def on_two_ranks(
    processes: ForkServerContext, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., list[Any]]:
    """Calls a function in two processes that talk over gloo; what each of them returned."""

    def call(work: Callable[..., Any], *arguments: Any) -> list[Any]:
        folder = tmp_path_factory.mktemp("ranks")
        ranks = [
            processes.Process(target=_one_of_two, args=(rank, folder, work, arguments))
            for rank in (0, 1)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join(60)
            assert process.exitcode == 0
        return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in (0, 1)]

    return call


def _one_of_two(rank: int, folder: Path, work: Callable[..., Any], arguments: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.save(work(rank, *arguments), folder / f"{rank}.pt")
    dist.destroy_process_group()
