"""Progress of long work: one line on a terminal, plain lines now and then in a log.

`counting` is for one loop; `Steps` shows work of several steps as one.
"""

import shutil
import sys
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TextIO

_BAR = 24
"""Width of a bar."""


class StatusLine:
    """A line that a terminal sees rewritten, and a file or pipe gets again and again.

    Args:
        stream: where to write; standard error if not given.
        every: seconds between two lines; None for 0.2 on a terminal and 10 elsewhere.
        delay: seconds before the first line; None for `every`.
        clock: seconds, for tests.

    >>> line = StatusLine(sys.stdout, every=0)
    >>> if line.due():
    ...     line.show("half done")
    half done
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        every: float | None = None,
        delay: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # Programs without a console have no standard error.
        self._stream: TextIO | None = sys.stderr if stream is None else stream
        self._terminal = self._stream is not None and self._stream.isatty()
        self._every = (0.2 if self._terminal else 10.0) if every is None else every
        self._clock = clock
        self._next = clock() + (self._every if delay is None else delay)
        self._width = 0
        self.shown = False

    def due(self) -> bool:
        """Whether it is time for a line."""
        return self._clock() >= self._next

    def show(self, text: str, share: float | None = None) -> None:
        """Write the line; a terminal also sees a bar of which `share` is filled, if it has room."""
        self._next, self.shown = self._clock() + self._every, True
        if self._terminal:
            # A line that wraps could not be rewritten. Blanks cover the end of a longer one.
            columns = shutil.get_terminal_size().columns - 1
            room = share is not None and len(text) + _BAR + 2 <= columns
            text = text[:columns]
            bar = _bar(share, self._stream) if room else ""
            width = len(text) + (_BAR + 2 if bar else 0)
            self.write("\r" + bar + text + " " * (self._width - width))
            self._width = width
        else:
            self.write(text + "\n")

    def erase(self) -> None:
        """Take the line away from a terminal, which goes on in its place."""
        if self._terminal and self._width:
            self.write("\r" + " " * self._width + "\r")
        self._width = 0

    def end(self) -> None:
        """Leave the line as it is; the terminal goes on below."""
        if self._terminal and self.shown:
            self.write("\n")
        self._width = 0

    def write(self, text: str) -> None:
        """Write text as it is."""
        if self._stream is not None:
            self._stream.write(text)
            self._stream.flush()


def _bar(share: float | None, stream: TextIO | None) -> str:
    """A bar and two blanks; empty without rich, or on a terminal without colours."""
    if share is None or find_spec("rich") is None:
        return ""
    from rich.console import Console
    from rich.progress_bar import ProgressBar

    console = Console(file=stream)
    # Without colours the empty part of a bar looks like the full one.
    if console.no_color or console.color_system is None:
        return ""
    with console.capture() as drawn:
        console.print(ProgressBar(total=1.0, completed=share, width=_BAR), end="")
    return drawn.get() + "  "


def clock_time(seconds: float) -> str:
    """Minutes and seconds, with hours if need be, rounded up.

    >>> clock_time(200), clock_time(3661.2), clock_time(0)
    ('3:20', '1:01:02', '0:00')
    """
    whole = int(-(-seconds // 1))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def counting(
    title: str, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
) -> Callable[[int, int], None]:
    """A function of (done, total) that shows their numbers, the rate and the time left.

    The first two seconds are silent, so short work shows nothing.

    >>> counting("image: features")(10, 100)
    """
    line, begun = StatusLine(stream, delay=2.0, clock=clock), clock()

    def show(done: int, total: int) -> None:
        over = done >= total and line.shown
        if over or line.due():
            rate = max(done, 1e-9) / max(clock() - begun, 1e-9)
            left = clock_time((total - done) / rate)
            text = f"{title}: {done:,} of {total:,}, {rate:,.0f}/s, {left} left"
            line.show(text, share=done / max(total, 1))
        if over:
            line.end()

    return show


def about(seconds: float) -> str:
    """An expected time in words, no more precise than a guess is.

    >>> about(3), about(47), about(250), about(9000), about(360_000)
    ('a few seconds', 'about 50 seconds', 'about 4 minutes', 'about 2.5 hours', 'about 4 days')
    """
    if seconds < 10:
        return "a few seconds"
    if seconds < 95:
        return f"about {round(seconds, -1):.0f} seconds"
    if seconds < 95 * 60:
        return f"about {seconds / 60:.0f} minutes"
    if seconds < 36 * 3600:
        return f"about {seconds / 3600:.2g} hours"
    return f"about {seconds / 86400:.0f} days"


class Steps:
    """One line for work of several steps: the share of the time, the present step, the time left.

    The time left is that of all steps together. A step's own pace replaces its expected time as
    soon as it shows; later steps have theirs.

    Args:
        expected: seconds of each step by its name, in their order. A step that never begins is
            over as soon as a later one begins.
        enabled: False writes nothing.
        stream, every, clock: those of `StatusLine`.

    >>> steps = Steps({"features": 10, "training": 20}, stream=sys.stdout, every=0)
    >>> steps.begin("features")
    0%  step 1 of 2, features, about 0:30 left in all
    >>> steps.begin("training")
    0%  step 2 of 2, training, about 0:20 left in all
    """

    def __init__(
        self,
        expected: Mapping[str, float],
        *,
        enabled: bool = True,
        stream: TextIO | None = None,
        every: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.enabled, self._clock, self._later = enabled, clock, dict(expected)
        self._names, self._number = list(expected), 0
        self._line = StatusLine(stream, every=every, clock=clock)
        self._started = self._begun = clock()
        self._name, self._expected, self._share = "", 0.0, 0.0

    def begin(self, name: str) -> None:
        """Go on to a step."""
        if name in self._later:
            while (first := next(iter(self._later))) != name:
                del self._later[first]
            self._number = self._names.index(name) + 1
        self._name, self._expected = name, self._later.pop(name, 0.0)
        self._begun = self._clock()
        self.update(0.0)

    def expect(self, name: str, seconds: float) -> None:
        """Correct the expected time of a later step."""
        if name in self._later:
            self._later[name] = seconds

    def update(self, share: float, text: str = "") -> None:
        """Show how far the present step is, from 0 to 1, and what it does, if a line is due."""
        if not self.enabled or not self._line.due():
            return
        now = self._clock()
        spent = now - self._begun
        own = max(self._expected - spent, 0.0)
        if share >= 0.05 and spent >= 1:
            own = spent * (1 - share) / share
        left = own + sum(self._later.values())
        # It would worry people to see a share shrink.
        self._share = max(
            self._share, (now - self._started) / max(now - self._started + left, 1e-9)
        )
        what = f"{self._name}: {text}" if text else self._name
        if self._number:
            what = f"step {self._number} of {len(self._names)}, {what}"
        line = f"{100 * self._share:.0f}%  {what}, about {clock_time(left)} left in all"
        self._line.show(line, share=self._share)

    def counting(self, name: str) -> Callable[[int, int], None]:
        """Begin a step; returns the function of (done, total) that shows how far it is."""
        self.begin(name)
        return lambda done, total: self.update(done / max(total, 1), f"{done:,} of {total:,}")

    def of(self, what: str) -> Callable[[str], Callable[[int, int], None]]:
        """`counting` for steps such as "photo features of training pairs"."""
        return lambda name: self.counting(f"{name} of {what}")

    def say(self, text: str) -> None:
        """Write a line that stays."""
        if self.enabled:
            self._line.erase()
            self._line.write(text + "\n")

    def close(self) -> None:
        """Take the line away."""
        self._line.erase()
