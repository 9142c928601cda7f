from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ccal.errors import InputError
from ccal.losses import PairwiseRankingLoss, TraceNormLoss
from ccal.model import DualEncoder
from ccal.training.batch_norm import batch_norm_over_ranks
from ccal.training.batches import share
from ccal.training.checkpoint import Interrupted
from ccal.training.parallel import average_gradients, distributed_from_environment, from_rank_0
from tests.training.stand_ins import Contrast, Signalling, make_model, pairs, quick, run, untimed


class Correlation(nn.Module):
    """DCCA: towers alone, compared by statistics that the loss sums over ranks itself."""

    def forward(self, model: DualEncoder, x: Tensor, y: Tensor) -> Tensor:
        loss: Tensor = TraceNormLoss()(*model.tower_outputs(x, y))
        return loss


class Ranking(nn.Module):
    def forward(self, model: DualEncoder, x: Tensor, y: Tensor) -> Tensor:
        loss: Tensor = PairwiseRankingLoss(direction="both", gather=True)(*model(x, y))
        return loss


VARIANTS: dict[str, tuple[Callable[[], nn.Module], str, dict[str, Any], dict[str, Any]]] = {
    "cca": (Contrast, "cca", {}, {}),
    "cca, running": (Ranking, "cca", {"momentum": 0.5}, {}),
    "cca, averaged": (Contrast, "cca", {"power": 1.0}, {"averaging": 0.9}),
    "trace norm": (Correlation, "cca", {}, {}),
    "learned": (Contrast, "learned", {}, {"optimiser": "adam"}),
    "none": (Ranking, "none", {}, {}),
}


def train(name: str, **options: Any) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    objective, projection, cca, changes = VARIANTS[name]
    # 201 pairs in batches of 67: the ranks' shares differ in length. In float64, since CCA makes
    # the towers' last biases irrelevant, and Adam would step along the rounding of a zero gradient.
    settings = quick(max_epochs=2, batch_size=67, **changes)
    model, history = run(
        settings,
        model=make_model(projection, **cca).double(),
        objective=objective().double(),
        train=pairs(201).double(),
        valid=pairs(60, start=900).double(),
        **options,
    )
    return model.state_dict(), history.records


def gradients(name: str) -> list[Tensor]:
    """Of one batch, averaged over ranks; Adam would hide a wrong factor."""
    objective, projection, cca, _ = VARIANTS[name]
    model, loss, data = make_model(projection, **cca), objective(), pairs(201).double()
    both = nn.ModuleList((model, loss)).double()
    with batch_norm_over_ranks(model):
        loss(model, *data.batch(share(np.arange(201)))).backward()
    average_gradients(list(both.parameters()))
    return [p.grad for p in both.parameters() if p.grad is not None]


def all_variants(rank: int, folder: Path) -> dict[str, Any]:
    results: dict[str, Any] = {name: train(name) for name in VARIANTS}
    results["gradients"] = {name: gradients(name) for name in VARIANTS}
    results["written"] = train("cca", folder=folder)
    results["resumed"] = train("cca", folder=folder, resume=True)
    try:
        train("cca", folder=folder)
    except InputError as error:
        results["refused"] = str(error)
    try:
        run(model=make_model(sync=False))
    except InputError as error:
        results["alone"] = str(error)
    uneven = make_model("learned")
    torch.nn.init.constant_(uneven.get_parameter("towers.text.layers.0.bias"), float(rank))
    results["uneven"] = run(model=uneven, epochs=1)[0].state_dict()
    results["told"] = from_rank_0(lambda: rank)
    return results


@pytest.fixture(scope="module")
def ranks(
    on_two_ranks: Callable[..., list[Any]], tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    return on_two_ranks(all_variants, tmp_path_factory.mktemp("shared") / "run")


@pytest.mark.parametrize("name", VARIANTS)
def test_two_ranks_train_the_model_of_one(name: str, ranks: list[dict[str, Any]]) -> None:
    weights, records = train(name)
    for rank in ranks:
        theirs, their_records = rank[name]
        torch.testing.assert_close(theirs, weights, rtol=1e-6, atol=1e-7)
        for one, other in zip(records, their_records, strict=True):
            assert other["loss"] == pytest.approx(one["loss"], rel=1e-6)
            assert other["mrr_x_to_y"] == pytest.approx(one["mrr_x_to_y"], abs=1e-7)
    for tensor, other in zip(ranks[0][name][0].values(), ranks[1][name][0].values(), strict=True):
        assert torch.equal(tensor, other)


@pytest.mark.parametrize("name", VARIANTS)
def test_two_ranks_have_the_gradient_of_one(name: str, ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        torch.testing.assert_close(rank["gradients"][name], gradients(name), rtol=1e-6, atol=1e-9)


def test_ranks_share_one_checkpoint(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        for name, tensor in rank["written"][0].items():
            assert torch.equal(rank["resumed"][0][name], tensor)
        assert untimed(rank["resumed"][1]) == untimed(rank["written"][1])
        assert "resume=True" in rank["refused"]


def test_weights_start_as_those_of_rank_0(ranks: list[dict[str, Any]]) -> None:
    expected = run(model=make_model("learned"), epochs=1)[0].state_dict()
    for rank in ranks:
        torch.testing.assert_close(rank["uneven"], expected, rtol=1e-4, atol=1e-4)


def test_errors_reach_every_rank(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert rank["told"] == 0
        assert "sync=False" in rank["alone"]


def broken_off(rank: int, folder: Path) -> dict[str, Any]:
    """A signal that only rank 1 gets, within the second epoch; then the rest of the run."""
    options: dict[str, Any] = {"folder": folder, "model": make_model(), "train": pairs()}
    if rank == 1:
        options["train"] = Signalling(pairs(), 8)
    try:
        run(**options)
    except Interrupted as error:
        told = str(error)
    model, _ = run(folder=folder, resume=True)
    whole, _ = run()
    return {"told": told, "model": model.state_dict(), "whole": whole.state_dict()}


def test_ranks_stop_together(on_two_ranks: Callable[..., list[Any]], tmp_path: Path) -> None:
    for rank in on_two_ranks(broken_off, tmp_path):
        assert "The state after epoch 1 is in" in rank["told"]
        for name, tensor in rank["whole"].items():
            assert torch.equal(rank["model"][name], tensor)


def test_more_ranks_than_pairs_in_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccal.training.parallel.world_size", lambda: 3)
    with pytest.raises(InputError, match="batch of 2 pairs cannot be shared by 3 processes"):
        run(train=pairs(2))


SCRIPT = """
import sys, time
from pathlib import Path
import torch
from ccal.distributed import rank, world_size
from ccal.training.parallel import distributed_from_environment
from ccal.training.checkpoint import Interrupted
from tests.training.stand_ins import Arrays, make_model, pairs, quick, run

folder, epochs, pause = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])

class Slow(Arrays):
    def batch(self, rows):
        time.sleep(pause)
        return super().batch(rows)

torch.set_num_threads(1)
with distributed_from_environment() as device:
    assert world_size() == 2, world_size()
    model, data = make_model("learned").to(device), pairs()
    try:
        run(quick(max_epochs=epochs, patience=99, averaging=0.5), model=model,
            train=Slow(data.x, data.y), folder=folder, resume=True, progress=True)
    except Interrupted as error:
        print(error, file=sys.stderr)
        sys.exit(130)
    torch.save(model.state_dict(), folder / f"{rank()}.pt")
assert world_size() == 1
# Threads of the group that outlive it may abort the process when Python leaves.
left = [name.read_text().strip() for name in Path("/proc/self/task").glob("*/comm")]
assert not any("gloo" in name for name in left), left
"""


ROOT = Path(__file__).parents[2]


def torchrun(folder: Path, content: str, *arguments: object) -> subprocess.Popen[str]:
    script = folder / "script.py"
    script.write_text(content)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    return subprocess.Popen(
        [*command, str(script), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow  # tests/cli/test_resume.py trains under torchrun as well
def test_torchrun(tmp_path: Path) -> None:
    assert_finishes(tmp_path)


def assert_finishes(folder: Path) -> None:
    process = torchrun(folder, SCRIPT, folder / "run", 6, 0)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 0, told
    assert told.count("train: epoch 6/6") == 1
    expected, history = run(
        quick(max_epochs=6, patience=99, averaging=0.5), model=make_model("learned")
    )
    for rank in (0, 1):
        weights = torch.load(folder / "run" / f"{rank}.pt", weights_only=True)
        torch.testing.assert_close(weights, expected.state_dict(), rtol=1e-3, atol=1e-4)
    records = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").open()]
    assert [r["epoch"] for r in records] == [r["epoch"] for r in history.records]


def test_the_loop_in_the_guide(tmp_path: Path) -> None:
    guide = (ROOT / "docs/training.md").read_text().split("## Your own DDP loop")[1]
    process = torchrun(tmp_path, guide.split("```python\n")[1].split("```")[0])
    out, told = process.communicate(timeout=120)
    assert process.returncode == 0, told
    losses = re.findall(r"epoch \d: loss (\S+)", out)
    assert len(losses) == 5, "only rank 0 prints"
    assert float(losses[-1]) < float(losses[0]) / 2
    assert out.count("x -> y") == 1


@pytest.mark.slow
def test_ctrl_c_under_torchrun(tmp_path: Path) -> None:
    process = torchrun(tmp_path, SCRIPT, tmp_path / "run", 6, 0.1)
    metrics = tmp_path / "run" / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.read_bytes()):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "Training was interrupted. The state after epoch" in told, told
    assert_finishes(tmp_path)


def test_without_torchrun_there_is_nothing_to_join(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with distributed_from_environment() as device:
        assert device.type in ("cpu", "cuda")
        assert not torch.distributed.is_initialized()
