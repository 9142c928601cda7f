"""The commands of docs/music.md, run as they stand there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import ccal
from ccal.model import DualEncoder
from ccal.music import SheetAudioStore, TuneLibrary, default, split_tunes
from tests.cli.conftest import ROOT, invoke
from tests.music.conftest import random_abc

soundfile = pytest.importorskip("soundfile")


def blocks(kind: str) -> list[str]:
    text = (ROOT / "docs" / "music.md").read_text()
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(
    library: TuneLibrary,
    store: SheetAudioStore,
    model: DualEncoder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """Files as the guide names them; the small model and two tunes stand for the large ones."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(default, "pretrained", lambda _: model)
    monkeypatch.setattr(ccal, "pretrained", lambda _: model, raising=False)
    own = split_tunes("".join(map(random_abc, (1, 2))), "random.abc")
    monkeypatch.setattr(default, "held_out_tunes", lambda: own)
    (tmp_path / "tunes.abc").write_text("".join(map(random_abc, (1, 2))))
    (tmp_path / "recording.wav").write_bytes(library.wav(1, (4.0, 14.0)))
    for name in ("staff.png", "page.jpg"):
        (tmp_path / name).write_bytes(library.staff_png(1, (150, 550)))
    return tmp_path


def test_the_guide_works(folder: Path) -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    # A store is named before the command that makes it.
    lines.sort(key=lambda line: not line.startswith("ccal data build"))
    assert len(lines) == 6
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == "ccal"
        outcome = invoke(*arguments)
        assert outcome.code == 0, f"{line}\n{outcome}"
        if arguments[0] == "identify":
            table = outcome.out[outcome.out.index("rank") :].splitlines()
            assert "Dance 2" in table[1]
    assert (folder / "preview.png").is_file()
    assert (folder / "found" / "1-Dance-2.png").is_file()
    (code,) = blocks("python")
    exec(compile(code, "music.md", "exec"), {})
    assert soundfile.info(folder / "part.wav").duration == pytest.approx(10, abs=2.5)
    assert np.frombuffer((folder / "part.png").read_bytes()[:4], "S4")[0] == b"\x89PNG"
