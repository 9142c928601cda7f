"""Settings that must stand before torch and NumPy start, and processes for tests of several."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

# bf16 kernels kill the process on machines that advertise AMX wrongly.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# Threads that wait for a busy core make small linear algebra many times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A shell's background jobs ignore Ctrl-C, and so would the processes that tests send it to.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest
import torch
from hypothesis import settings
from torch import distributed as dist

# The same examples in every run; `make test-all` draws fresh ones. A busy machine is no failure.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("fresh", derandomize=False, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


_STARTED, _FAULT_SECONDS = time.monotonic(), float(os.environ.get("FAULT_SECONDS", "inf"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("faults") and time.monotonic() - _STARTED > _FAULT_SECONDS:
        pytest.skip(f"the {_FAULT_SECONDS:g} seconds for faults are over")


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def texts_are_tfidf(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """`text = "auto"` means TF-IDF, whether or not the extra `sentences` is installed."""
    if not request.path.stem.endswith("sentences"):
        monkeypatch.setattr("ccal.training.front_ends.has_minilm", lambda: False)


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
