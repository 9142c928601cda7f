"""Pictures in a terminal: which protocol, what is sent, and what a real terminal gets."""

from __future__ import annotations

import base64
import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ccal import DualEncoder
from ccal.cli.pictures import Graphics, picture, terminal_graphics
from ccal.encoders import DenseTower
from ccal.retrieval import Index
from tests.cli.conftest import environment

Image = pytest.importorskip("PIL.Image")


@pytest.mark.parametrize(
    ("environment", "graphics"),
    [
        ({}, None),
        ({"TERM": "dumb", "COLORTERM": "truecolor"}, None),
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm"),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, "iterm"),
        ({"TERM": "tmux-256color", "KITTY_WINDOW_ID": "1"}, "256"),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, "true"),
        ({"TERM": "xterm-256color"}, "256"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, None),
        ({"TERM": "vt100"}, None),
    ],
)
def test_the_environment_tells_the_protocol(
    environment: dict[str, str], graphics: Graphics | None
) -> None:
    assert terminal_graphics(environment, terminal=True) == graphics
    assert terminal_graphics(environment, terminal=False) is None


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """Noise, which does not compress: more than one piece is sent."""
    pixels = np.random.default_rng(0).integers(0, 255, (200, 300, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


def test_kitty_gets_the_image_in_pieces(photo: Path) -> None:
    sent = picture(str(photo), "kitty")
    assert sent is not None
    pieces = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", sent)
    assert "".join(f"\x1b_G{a};{b}\x1b\\" for a, b in pieces) == sent
    assert pieces[0][0].startswith("a=T,f=100,q=2,")
    assert [about[-3:] for about, _ in pieces] == ["m=1"] * (len(pieces) - 1) + ["m=0"]
    assert len(pieces) > 1
    assert max(len(piece) for _, piece in pieces) <= 4096
    assert decoded("".join(piece for _, piece in pieces)).size == (300, 200)


def test_iterm_gets_the_image_at_once(photo: Path) -> None:
    match = re.fullmatch(
        r"\x1b\]1337;File=inline=1;size=\d+;height=(\d+);preserveAspectRatio=1:(.*)\a",
        picture(str(photo), "iterm") or "",
    )
    assert match is not None
    assert match[1] == "11"
    assert decoded(match[2]).size == (300, 200)


def decoded(text: str) -> Any:
    return Image.open(io.BytesIO(base64.b64decode(text, validate=True)))


@pytest.mark.parametrize(
    ("graphics", "top", "bottom"),
    [
        ("true", "\x1b[38;2;255;0;0m", "\x1b[48;2;0;0;255m"),
        ("256", "\x1b[38;5;196m", "\x1b[48;5;21m"),
    ],
)
def test_half_blocks(tmp_path: Path, graphics: Graphics, top: str, bottom: str) -> None:
    image = Image.new("RGB", (3, 3), (255, 0, 0))
    image.paste((0, 0, 255), (0, 1, 3, 3))
    image.save(tmp_path / "a.png")
    first, last = (picture(str(tmp_path / "a.png"), graphics) or "").split("\n")
    assert first == f"{top}{bottom}▀" * 3 + "\x1b[0m"
    assert last.count("▀") == 3
    assert "[48" not in last


def test_what_is_no_picture(tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no image")
    (tmp_path / "text.txt").write_text("text")
    for file in (None, "absent.png", str(tmp_path / "broken.png"), str(tmp_path / "text.txt")):
        assert picture(file, "true") is None


def in_terminal(*arguments: object, **variables: str) -> str:
    """What a terminal gets from `ccal` in a process of its own."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "ccal", *map(str, arguments)]
    unset = {"TMUX", "KITTY_WINDOW_ID", "TERM_PROGRAM", "LC_TERMINAL", "NO_COLOR", "COLORTERM"}
    clean = {name: value for name, value in environment().items() if name not in unset}
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env={**clean, **variables}
    )
    os.close(theirs)
    got = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # so Linux says that the other end is closed
            part = b""
        if not part:
            break
        got += part
    os.close(ours)
    assert process.wait(timeout=60) == 0, got.decode()
    return got.decode()


def test_in_a_terminal(photo: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = DualEncoder(dim=4, projection="none", image=DenseTower(4, 4), text=DenseTower(4, 4))
    files = [str(photo), str(tmp_path / "absent.png")]
    options: dict[str, Any] = {"modality": "image", "ids": ["a", "b"], "files": files}
    Index.build(tmp_path / "index", model, torch.eye(4)[:2], **options).close()
    asked = ["search", tmp_path / "index", "--like", "b", "--within", "image"]
    shown = in_terminal(*asked, TERM="xterm-256color", COLORTERM="truecolor")
    assert shown.count("▀") == 32 * 11
    assert "\x1b_G" in in_terminal(*asked, TERM="xterm-kitty")
    assert "\x1b" not in in_terminal(*asked, "--no-pictures", TERM="xterm-kitty")
