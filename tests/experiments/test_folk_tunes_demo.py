"""The demonstration itself, with fewer tunes."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ccal.cli.app import app
from ccal.errors import InputError
from ccal.experiments import folk_tunes_demo as tunes
from tests.music.tunes import needs_music

pytest.importorskip("matplotlib", reason="the demo's report needs the extra plots")


@needs_music
def test_the_demo_renders_trains_listens_and_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"_TUNES": 12, "_VALID": 2, "_TEST": 3, "_EPOCH_PAIRS": 200}.items():
        monkeypatch.setattr(tunes, name, value)
    monkeypatch.setattr(tunes, "_EPOCHS", 1)
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    for words in ("Engraving and playing 12 tunes", "CCA layer", "learned projections"):
        assert words in result.output
    heard = [line for line in result.output.splitlines() if line.startswith("   8 s,")]
    assert len(heard) == 4
    # Twelve tunes the model has never seen: two of four recordings by chance is next to impossible.
    assert sum("right" in line for line in heard) >= 2, "\n".join(heard)
    page = (tmp_path / "report.html").read_text()
    assert page.count("data:image/") >= 12

    def enough(*_: object, **__: object) -> None:
        raise InputError("The tunes are rendered; training need not follow.")

    monkeypatch.setattr(tunes, "split_tunes_by_melody", enough)
    again = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert "Engraving and playing 12 tunes" in again.output
    assert "rendering tunes" not in again.output, "what is there is not rendered again"
