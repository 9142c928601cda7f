"""One tune in both modalities, its staff line and its spectrogram, and a process that renders them.

Engraver, synthesiser and spectrogram must stay bit-identical: the weights and the figures of the
bundled model were made from their exact output.
"""

import hashlib
import io
import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ccal.bounds import Number, Options, Rule, Whole, check_all
from ccal.errors import CcalError, InputError
from ccal.files import write_atomically
from ccal.music.abc import parse_abc
from ccal.music.audio import FRAME_RATE, spectrogram
from ccal.music.engraving import engrave
from ccal.music.sound import RENDER_RATE, onset_seconds, sound_font_digest, synthesise
from ccal.optional import install_command
from ccal.processes import end_with_parent

# One onset: columns of the head's left edge and centre in the staff line, frame of the spectrogram,
# highest new pitch (MIDI), start in 1/960 quarter notes.
ONSET = np.dtype(
    [("left", "<f4"), ("centre", "<f4"), ("frame", "<i4"), ("pitch", "<i2"), ("tick", "<i4")]
)
# Part of every hash: raise it whenever drawing or playing changes its output.
_VERSION = 1
_BOUNDS: dict[str, Rule | tuple[Rule, ...]] = {
    "space": Number(at_least=1, at_most=10),
    "tempo": Number(at_least=20, at_most=400),
    "program": Whole(at_least=0, at_most=127),
    "look": Options("plain", "printed"),
    "timeout": Number(above=0),
}


@dataclass(frozen=True)
class MusicSettings:
    """How tunes look and sound.

    Args:
        space: pixels from one line of the staff to the next, 1 to 10.
        tempo: quarter notes a minute, 20 to 400.
        program: instrument of General MIDI, 0 to 127; 0 is a grand piano.
        sound_font: path of an .sf2 file, or None for the one that comes with the extra `music`.
        look: "plain" for one unbroken line as libraries have it, "printed" for lines of a page with
            a look of each tune's own (fonts, widths, spacing, other signs), to train on.
        timeout: seconds after which the engraver of one tune is given up.
    """

    space: float = 4.0
    tempo: float = 120.0
    program: int = 0
    sound_font: str | None = None
    look: str = "plain"
    timeout: float = 60.0

    def __post_init__(self) -> None:
        check_all(_BOUNDS, self.__dict__)

    def digest(self) -> str:
        """A hash of everything that a rendering depends on besides the tune."""
        parts = asdict(self) | {"sound_font": sound_font_digest(self.sound_font), "form": _VERSION}
        del parts["timeout"]
        if self.look == "plain":
            # So that stores of earlier versions stay valid.
            del parts["look"]
        try:
            parts |= {name: version(name) for name in ("verovio", "resvg_py")}
        except PackageNotFoundError as error:
            raise CcalError(
                f"Rendering tunes needs the package {error.name}; "
                f"install it with: {install_command('music')}"
            ) from error
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class RenderedTune:
    """`sheet` (width, 40) uint8, black 0 on white 255; `audio` (frames, 136) float16; `onsets`.

    Time runs along the first axis of both, so that a snippet is one piece of memory.
    """

    sheet: NDArray[np.uint8]
    audio: NDArray[np.float16]
    onsets: NDArray[np.void]

    def save(self, path: Path) -> None:
        """Write the three arrays to one .npz file."""
        content = io.BytesIO()
        np.savez(content, sheet=self.sheet, audio=self.audio, onsets=self.onsets)
        write_atomically(path, content.getvalue())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file that `save` wrote."""
        with np.load(path) as arrays:
            return cls(arrays["sheet"], arrays["audio"], arrays["onsets"])


def render_tune(abc: str, settings: MusicSettings | None = None) -> RenderedTune:
    """Engrave and synthesise one tune.

    Raises `InputError` for a tune that cannot be read, engraved or played.
    """
    how = settings or MusicSettings()
    score = parse_abc(abc)
    look = None
    if how.look == "printed":
        look = int(hashlib.sha256(abc.encode()).hexdigest()[:8], 16)
    staff = engrave(score, space=how.space, timeout=how.timeout, look=look)
    sound = synthesise(score, sound_font=how.sound_font, program=how.program, tempo=how.tempo)
    audio = spectrogram(sound, RENDER_RATE).numpy().astype(np.float16)
    highest: dict[int, int] = {}
    for note in score.sounding():
        tick = round(note.start * 960)
        highest[tick] = max(note.midi, highest.get(tick, 0))
    onsets = np.zeros(len(staff.left), dtype=ONSET)
    onsets["tick"], onsets["pitch"] = list(highest), list(highest.values())
    onsets["left"], onsets["centre"] = staff.left, staff.centre
    onsets["frame"] = np.rint(onset_seconds(score, tempo=how.tempo) * FRAME_RATE)
    return RenderedTune(np.ascontiguousarray(staff.pixels.T), audio, onsets)


_START = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from ccal.music.rendering import serve
serve(json.loads(sys.argv[2]), int(sys.argv[3]))
"""


class Worker:
    """A process that renders one tune after the other; whatever happens to it costs one tune.

    A job is a line of JSON on its input, with the tune and the file for the result; the answer is a
    line on its output.
    """

    def __init__(self, settings: MusicSettings) -> None:
        self._settings = json.dumps(asdict(settings))
        # Beyond the engraver's own limit there are the sound and the start of the process.
        self._patience = 2 * settings.timeout + 120
        self._process: subprocess.Popen[str] | None = None
        self._deadline = 0.0

    def start(self, abc: str, path: Path) -> None:
        """Begin with a tune; the result will be in `path`."""
        if self._process is None:
            # In a session of its own, so that Ctrl-C reaches only the parent.
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    _START,
                    json.dumps(sys.path),
                    self._settings,
                    str(os.getpid()),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        self._deadline = time.monotonic() + self._patience
        assert self._process.stdin is not None
        # `take` notices a process that is gone.
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"abc": abc, "path": str(path)}) + "\n")
            self._process.stdin.flush()

    @property
    def late(self) -> bool:
        """Whether the answer should have come long ago."""
        return time.monotonic() > self._deadline

    def fileno(self) -> int:
        """The descriptor that becomes readable with the answer, for `select`."""
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def take(self) -> str | None:
        """Why the tune could not be rendered, or None if it was.

        Raises `CcalError` for what would stop every tune, such as a missing package.
        """
        if not select.select([self], [], [], 0)[0]:
            self.stop()
            return "the process that rendered it did not come back."
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            answer = json.loads(line)
            if answer["fatal"]:
                raise CcalError(answer["error"])
            return answer["error"]  # type: ignore[no-any-return]
        code = self._process.wait()
        self.stop()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"the process that rendered it ended ({how})."

    def stop(self) -> None:
        """End the process and its children at once."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            # Waits, and closes both pipes.
            process.communicate()


def serve(settings: dict[str, Any], parent: int) -> None:
    """The loop of a worker process: one job per line, until there are no more."""
    end_with_parent(parent)
    # One tune is too small to share, and threads do not survive the fork of the engraver.
    torch.set_num_threads(1)
    # Lines that libraries print must not be taken for answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    how = MusicSettings(**settings)
    for line in sys.stdin:
        job = json.loads(line)
        answer: dict[str, Any] = {"error": None, "fatal": False}
        try:
            render_tune(job["abc"], how).save(Path(job["path"]))
        except CcalError as error:
            answer = {"error": str(error), "fatal": not isinstance(error, InputError)}
        print(json.dumps(answer), file=answers, flush=True)
