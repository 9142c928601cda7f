"""Children end with their parent, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import environment
from tests.serve.live import until

ENGRAVER = """
import sys, time
from pathlib import Path
from ccal.music.engraving import in_child

def work(folder):
    (folder / "child").write_text(str(__import__("os").getpid()))
    while True:
        pass

in_child(work, Path(sys.argv[1]), timeout=600)
"""
RENDERER = """
import sys
from pathlib import Path
from ccal.music.rendering import MusicSettings, Worker

worker = Worker(MusicSettings())
worker.start("X:1", Path(sys.argv[1], "tune"))
Path(sys.argv[1], "child").write_text(str(worker._process.pid))
while True:
    pass
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of the end")
@pytest.mark.parametrize("program", [ENGRAVER, RENDERER], ids=["engraver", "renderer"])
def test_workers_end_with_a_killed_parent(program: str, tmp_path: Path) -> None:
    pytest.importorskip("verovio")
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, env=environment()) as parent:
        until(lambda: (tmp_path / "child").exists() and bool((tmp_path / "child").read_text()))
        child = int((tmp_path / "child").read_text())
        time.sleep(0.1)
        assert is_running(child)
        parent.kill()
    until(lambda: not is_running(child), seconds=10)


def is_running(process: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        os.kill(process, 0)
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"


@pytest.mark.parametrize("wait", [0.0, 0.1])
def test_ctrl_c_while_the_command_imports(wait: float) -> None:
    program = "import ccal.cli; print(flush=True); ccal.cli.main()"
    command = [sys.executable, "-c", program, "search", "nowhere", "a"]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment(), **pipes) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(wait)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert "Traceback" not in err, err
