"""A process that renders one tune after the other, and the side of it that others hold.

A job is a line of JSON on its input, with the tune and the file for the result; the answer is a
line on its output. Whatever happens to it happens to one tune.
"""

from __future__ import annotations

import io
import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ccal.errors import CcalError, InputError
from ccal.files import write_atomically
from ccal.music.rendering import MusicSettings, RenderedTune, render_tune

__all__ = ["Worker", "read_part", "write_part"]

_START = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from ccal.music.worker import serve
serve()
"""


class Worker:
    """A process that renders tunes; `start` one, and `take` the answer when there is one."""

    def __init__(self, settings: MusicSettings) -> None:
        self._first = json.dumps(asdict(settings))
        # Beyond the engraver's own limit there is the sound, and the start of the process.
        self._patience = 2 * settings.timeout + 120
        self._process: subprocess.Popen[str] | None = None
        self._deadline = 0.0

    def start(self, abc: str, path: Path) -> None:
        """Begin with a tune; the result will be in `path`."""
        if self._process is None:
            # In a session of its own, so that Ctrl-C reaches only whoever waits for it.
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            self._send(self._first)
        self._deadline = time.monotonic() + self._patience
        self._send(json.dumps({"abc": abc, "path": str(path)}))

    def fileno(self) -> int:
        """What becomes readable with the answer."""
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def take(self) -> dict[str, Any]:
        """{"seconds": by stage} or {"error": why not}; a dead process counts as an error."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            return dict(json.loads(line))
        code = self._process.wait()
        self.stop()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return {"error": f"the process that rendered it ended ({how})."}

    @property
    def late(self) -> bool:
        """Whether the answer should have come long ago."""
        return time.monotonic() > self._deadline

    def stop(self) -> None:
        """End the process and what it has started, at once."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()

    def _send(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        # A process that is gone is noticed when its answer is taken.
        with suppress(BrokenPipeError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()


def wait_for(workers: list[Worker], seconds: float) -> list[Worker]:
    """Those workers that have an answer, after at most some seconds."""
    return select.select(workers, [], [], seconds)[0]


def serve() -> None:
    """The life of a worker: settings on the first line, then a job a line until there are none."""
    # One tune is too small to share, and threads do not survive the fork of the engraver.
    torch.set_num_threads(1)
    # Whatever libraries print must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    settings = MusicSettings(**json.loads(sys.stdin.readline()))
    for line in sys.stdin:
        job = json.loads(line)
        seconds: dict[str, float] = {}
        try:
            write_part(Path(job["path"]), render_tune(job["abc"], settings, seconds=seconds))
            answer: dict[str, Any] = {"seconds": seconds}
        except InputError as error:
            answer = {"error": str(error)}
        except CcalError as error:
            answer = {"fatal": str(error)}
        print(json.dumps(answer), file=answers, flush=True)


def write_part(path: Path, tune: RenderedTune) -> None:
    """One rendered tune as a file."""
    content = io.BytesIO()
    np.savez(content, sheet=tune.sheet, audio=tune.audio, onsets=tune.onsets)
    write_atomically(path, content.getvalue())


def read_part(path: Path) -> RenderedTune:
    """What `write_part` wrote."""
    with np.load(path) as arrays:
        return RenderedTune(arrays["sheet"], arrays["audio"], arrays["onsets"])
