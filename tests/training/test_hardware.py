from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from ccal.errors import InputError
from ccal.model import DualEncoder
from ccal.training.hardware import keep_freed_memory
from tests.training.stand_ins import Contrast, quick, run


class Watching(Contrast):
    """Notes in what precision towers and projection work."""

    def forward(self, model: DualEncoder, x: Tensor, y: Tensor) -> Tensor:
        self.towers = model.tower_outputs(x, y)[0].dtype
        self.embeddings = model(x, y)[0].dtype
        return super().forward(model, x, y)


def test_bf16_in_the_towers_alone() -> None:
    objective = Watching()
    model, history = run(quick(precision="bf16"), objective=objective)
    assert objective.towers == torch.bfloat16
    assert objective.embeddings == torch.float32
    assert all(p.dtype == torch.float32 for p in model.parameters())
    assert history.records[-1]["loss"] < history.records[0]["loss"]
    plain = Watching()
    run(objective=plain)
    assert plain.towers == torch.float32


def test_bf16_is_refused_where_it_may_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = tmp_path / "cpuinfo"
    facts.write_text("flags : fpu avx512f amx_bf16 amx_tile\n")
    monkeypatch.setattr("ccal.training.hardware._CPU_FACTS", facts)
    settings = quick(precision="bf16", max_epochs=1)
    run(settings)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
    with pytest.raises(InputError, match="ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"):
        run(settings)
    run(settings.changed(precision="float32"))
    facts.write_text("flags : fpu avx512f\n")
    run(settings)
    facts.unlink()
    run(settings)


def test_memory_can_be_kept() -> None:
    assert keep_freed_memory() in (True, False)
