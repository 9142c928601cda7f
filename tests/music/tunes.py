"""Invented tunes, and whether the packages that draw and play them are there."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from ccal.music import Tune, split_tunes

PACKAGES = ["verovio", "resvg_py", "pretty_midi", "soundfile", "music21", "PIL"]
MISSING = [name for name in PACKAGES if find_spec(name) is None]
needs_music = pytest.mark.skipif(
    bool(MISSING), reason=f"the extra music is not installed: {', '.join(MISSING)} missing"
)

ABC = """X:1
T:Up and Down
M:3/4
L:1/8
K:D
A2|:"D"d2 f2 a2|(3fga f4|"A7"e2 c2- c2|d5 A:|[1 d4 {e}f2|[2 d6||
P:B
M:2/4
K:C
G,>A, B,<C|^FGA_B|c'2 [Gc]2|!trill!e2 z2|(3G2A2B2|C4-|C4|c2d2|e2f2|g4|]

X:2
T:The Same, Higher
M:3/4
L:1/8
K:G
d2|:g2 b2 d'2|(3bc'd' b4|a2 f2- f2|g5 d:|g4 b2|g6|
M:2/4
K:F
C>D E<F|^Bcd_e|f'2 [cf]2|a2 z2|(3c2d2e2|F4-|F4|f2g2|a2b2|c'4|]

X:3
T:Other Steps
M:6/8
K:Em
E2F GAB|e3 B3|\\
dBG AFD|E6|egb age|fdB AFD|GEG FDF|E3 E3|B,EG BGE|DFA dAF|E3 E3|]
"""


def tunes() -> list[Tune]:
    return split_tunes(ABC, "invented.abc")
