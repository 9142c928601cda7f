from __future__ import annotations

import json
import math
import os
import random
import signal
import time
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ccal.errors import InputError
from ccal.model import DualEncoder
from ccal.training.checkpoint import Interrupted, State, write_checkpoint
from ccal.training.progress import History
from ccal.training.settings import Settings
from tests.training.stand_ins import (
    Contrast,
    Signalling,
    long_run,
    make_model,
    pairs,
    quick,
    run,
    untimed,
)


def walk(state: State, steps: int) -> list[Tensor]:
    """Some steps on one batch; copies of all that they changed."""
    data = pairs(50)
    for _ in range(steps):
        state.optimiser.zero_grad()
        state.objective(state.model, data.x, data.y).backward()
        state.step()
    state.copy_buffers()
    modules = (state.model, state.kept, state.objective)
    return [t.clone() for module in modules for t in module.state_dict().values()]


@pytest.mark.parametrize("averaging", [0.0, 0.8])
@pytest.mark.parametrize("optimiser", ["adam", "adamw"])
def test_a_restored_snapshot_repeats_the_same_steps(averaging: float, optimiser: str) -> None:
    state = State(make_model(), Contrast(), quick(averaging=averaging, optimiser=optimiser))
    walk(state, 3)
    snapshot = state.snapshot()
    expected = walk(state, 4)
    for _ in range(2):
        # Twice: the first way back must not have changed the snapshot.
        state.restore(snapshot)
        for one, other in zip(walk(state, 4), expected, strict=True):
            assert torch.equal(one, other)


def test_a_snapshot_holds_the_optimiser() -> None:
    state = State(make_model(), Contrast(), quick())
    walk(state, 3)
    snapshot = state.snapshot()
    expected = walk(state, 1)
    fresh = State(make_model(), Contrast(), quick())
    fresh.restore({**snapshot, "optimiser": fresh.optimiser.state_dict()})
    assert any(not torch.equal(a, b) for a, b in zip(walk(fresh, 1), expected, strict=True))


@pytest.mark.parametrize("optimiser", ["adam", "adamw"])
def test_only_matrices_decay(optimiser: str) -> None:
    state = State(make_model(), Contrast(), quick(weight_decay=0.3, optimiser=optimiser))
    decays = {
        id(p): group["weight_decay"]
        for group in state.optimiser.param_groups
        for p in group["params"]
    }
    assert len(decays) == len(state.parameters)
    for parameter in state.parameters:
        assert decays[id(parameter)] == (0.3 if parameter.ndim >= 2 else 0.0)


def test_frozen_parameters_do_not_change() -> None:
    model = make_model()
    model.towers["text"].requires_grad_(False)
    before = [p.clone() for p in model.towers["text"].parameters()]
    state = State(model, Contrast(), quick(averaging=0.5))
    walk(state, 2)
    for owner in (model, state.kept):
        after = list(owner.towers["text"].parameters())
        assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))


@pytest.fixture(scope="module")
def unbroken(processes: ForkServerContext, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbs."""
    folder = tmp_path_factory.mktemp("unbroken")
    finish(processes, folder)
    return folder


def start(processes: ForkServerContext, folder: Path) -> ForkServerProcess:
    process = processes.Process(target=long_run, args=(str(folder), str(folder / "result.pt")))
    process.start()
    return process


def finish(processes: ForkServerContext, folder: Path) -> None:
    process = start(processes, folder)
    process.join()
    assert process.exitcode == 0


def wait_for_lines(folder: Path, count: int) -> None:
    """Until so many epochs are recorded; half a line counts."""
    path = folder / "metrics.jsonl"
    while not path.exists() or len(path.read_bytes().splitlines()) < count:
        time.sleep(0.005)


def lines(folder: Path) -> list[dict[str, Any]]:
    return untimed([json.loads(line) for line in (folder / "metrics.jsonl").open()])


def assert_same_result(folder: Path, other: Path) -> None:
    one, two = (torch.load(f / "result.pt", weights_only=True) for f in (folder, other))
    assert all(torch.equal(one["model"][name], two["model"][name]) for name in one["model"])
    assert untimed(one["records"]) == untimed(two["records"]) == lines(folder) == lines(other)


def test_the_long_run_has_refinements(unbroken: Path) -> None:
    records = lines(unbroken)
    assert [r["epoch"] for r in records] == list(range(len(records)))
    assert len(records) > 10
    assert len({r["learning_rate"] for r in records}) > 2


@pytest.mark.parametrize("seed", range(3))
def test_killed_at_any_moment_and_resumed(
    seed: int, tmp_path: Path, unbroken: Path, processes: ForkServerContext
) -> None:
    moments, part = random.Random(seed), len(lines(unbroken)) // 5
    for kill in range(4):
        process = start(processes, tmp_path)
        wait_for_lines(tmp_path, part * kill + moments.randrange(part))
        time.sleep(moments.uniform(0, 0.1))
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL
    finish(processes, tmp_path)
    assert_same_result(tmp_path, unbroken)
    assert not [f for f in tmp_path.iterdir() if f.name.startswith(".")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_stopped_by_a_signal_resumes(
    number: signal.Signals, tmp_path: Path, unbroken: Path, processes: ForkServerContext
) -> None:
    process = start(processes, tmp_path)
    wait_for_lines(tmp_path, 4)
    assert process.pid is not None
    os.kill(process.pid, number)
    process.join(20)
    assert process.exitcode == 1
    assert (tmp_path / "checkpoint-train.pt").exists()
    finish(processes, tmp_path)
    assert_same_result(tmp_path, unbroken)


# Batches read: 1 at the door; then an epoch is 4 of training and 1 of refitting.
@pytest.mark.parametrize(("moment", "epoch"), [(3, 0), (6, 0), (7, 1), (16, 2), (19, 3)])
def test_ctrl_c_writes_the_last_whole_epoch(moment: int, epoch: int, tmp_path: Path) -> None:
    expected, whole = run(folder=tmp_path / "whole")
    handler = signal.getsignal(signal.SIGINT)
    folder = tmp_path / "broken"
    with pytest.raises(Interrupted, match=f"after epoch {epoch}.*resume=True") as caught:
        run(folder=folder, train=Signalling(pairs(), moment))
    assert caught.value.signal == signal.SIGINT
    assert isinstance(caught.value, KeyboardInterrupt)
    assert signal.getsignal(signal.SIGINT) is handler
    assert len(lines(folder)) == epoch
    model, history = run(folder=folder, resume=True)
    assert all(torch.equal(model.state_dict()[n], t) for n, t in expected.state_dict().items())
    assert lines(folder) == lines(tmp_path / "whole") == untimed(whole.records)
    assert untimed(history.records) == untimed(whole.records)


def test_ctrl_c_in_the_last_moment_is_not_lost(tmp_path: Path) -> None:
    with pytest.raises(Interrupted, match="after epoch 3"):
        run(folder=tmp_path, epochs=3, train=Signalling(pairs(), 14))
    model, history = run(folder=tmp_path, epochs=3, resume=True)
    assert history.epochs == 3
    expected, _ = run(epochs=3)
    assert all(torch.equal(model.state_dict()[n], t) for n, t in expected.state_dict().items())


def test_a_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    class Twice(Contrast):
        calls = 0

        def forward(self, *arguments: Any) -> Any:
            self.calls += 1
            if self.calls == 2:
                signal.raise_signal(signal.SIGINT)
            return super().forward(*arguments)

    with pytest.raises(Interrupted, match="Stopped at once by a second"):
        run(folder=tmp_path, train=Signalling(pairs(), 3), objective=Twice())
    assert not (tmp_path / "checkpoint-train.pt").exists()


def test_ctrl_c_without_a_folder() -> None:
    with pytest.raises(Interrupted, match="no folder was given"):
        run(train=Signalling(pairs(), 3))


def finished(folder: Path, **options: Any) -> tuple[DualEncoder, History]:
    return run(folder=folder, **options)


def test_resuming_what_is_finished_changes_nothing(tmp_path: Path) -> None:
    model, history = finished(tmp_path)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    again, same = finished(tmp_path, resume=True)
    assert same == history
    assert (tmp_path / "metrics.jsonl").read_bytes() == before
    assert all(torch.equal(again.state_dict()[n], t) for n, t in model.state_dict().items())


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    finished(tmp_path)
    before = {f.name: f.read_bytes() for f in tmp_path.iterdir()}
    with pytest.raises(InputError, match=r"checkpoint-train.pt.*resume=True.*another folder"):
        finished(tmp_path)
    assert {f.name: f.read_bytes() for f in tmp_path.iterdir()} == before


def test_stages_share_a_folder(tmp_path: Path) -> None:
    finished(tmp_path)
    finished(tmp_path, stage="all", epochs=2)
    records = lines(tmp_path)
    assert [r["stage"] for r in records] == ["train"] * 4 + ["all"] * 2
    finished(tmp_path, resume=True)
    finished(tmp_path, stage="all", epochs=2, resume=True)
    assert lines(tmp_path) == records


def test_temporary_files_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".checkpoint-train.pt.x1y2").write_bytes(b"half")
    finished(tmp_path)
    assert {f.name for f in tmp_path.iterdir()} == {"checkpoint-train.pt", "metrics.jsonl"}


DIFFERENT: list[tuple[Settings, dict[str, Any], str]] = [
    (quick(learning_rate=0.02), {}, "learning_rate is 0.01, and now it is 0.02"),
    (quick(dim=4), {}, "dim is not set, and now it is 4"),
    (quick(), {"train": pairs(199)}, "number of training pairs is 200, and now it is 199"),
    (quick(), {"valid": pairs(9)}, "number of validation pairs is 60, and now it is 9"),
    (quick(), {"epochs": 4}, "epochs is not set, and now it is 4"),
    (quick(), {"select": "x->y"}, "select is 'both', and now it is 'x->y'"),
    (
        quick(),
        {"model": make_model(hidden=(9,))},
        r"shape of towers.image.layers.0.weight is \[8, 6\], and now it is \[9, 6\]",
    ),
]


@pytest.mark.parametrize(("settings", "options", "message"), DIFFERENT)
def test_another_run_is_refused(
    settings: Settings, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    finished(tmp_path)
    with pytest.raises(InputError, match=f"{message}.*same settings"):
        run(settings, folder=tmp_path, resume=True, **options)


def test_damaged_checkpoints_are_named(tmp_path: Path) -> None:
    finished(tmp_path)
    path = tmp_path / "checkpoint-train.pt"
    whole = path.read_bytes()
    weights = torch.load(path, weights_only=True)["latest"]["model"]["towers.text.layers.0.weight"]
    flipped = bytearray(whole)
    flipped[whole.index(weights.numpy().tobytes())] ^= 1
    for content in (whole[: len(whole) // 2], whole[:-1], b"", b"no zip", bytes(flipped)):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"checkpoint-train.pt' is damaged"):
            finished(tmp_path, resume=True)
        assert path.read_bytes() == content
    torch.save({"other": 1}, path)
    with pytest.raises(InputError, match="is damaged"):
        finished(tmp_path, resume=True)


def test_checkpoints_wait_for_their_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []

    def note(path: Path, facts: Any, content: dict[str, Any]) -> None:
        written.append(content["schedule"]["epoch"])
        write_checkpoint(path, facts, content)

    monkeypatch.setattr("ccal.training.checkpoint.write_checkpoint", note)
    finished(tmp_path / "never", checkpoint_seconds=math.inf)
    assert written == [4]
    written.clear()
    finished(tmp_path / "always", checkpoint_seconds=0.0)
    assert written == [1, 2, 3, 4, 4]
