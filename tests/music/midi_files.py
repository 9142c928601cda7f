"""MIDI files, written byte by byte."""

from __future__ import annotations

from collections.abc import Sequence

QUARTER = 480
Note = tuple[float, float, int]  # start and length in quarter notes, key
SCALE: list[Note] = [(n, 1, key) for n, key in enumerate((67, 69, 71, 72, 74, 76, 78, 79))]
CHORDS: list[Note] = [(n, 4, key) for n in (0, 4) for key in (43, 47, 50)]
G_MAJOR = (0.0, b"\xff\x59\x02\x01\x00")


def metre(at: float, count: int, power: int) -> tuple[float, bytes]:
    return at, b"\xff\x58\x04" + bytes((count, power, 24, 8))


def track(
    notes: Sequence[Note],
    name: str = "",
    channel: int = 0,
    meta: Sequence[tuple[float, bytes]] = (),
) -> bytes:
    """A track chunk; of events at the same time, those that end a note come first."""
    text = name.encode()
    events = [(0, 0, b"\xff\x03" + bytes((len(text),)) + text)]
    events += [(round(at * QUARTER), 1, content) for at, content in meta]
    for start, length, key in notes:
        events.append((round(start * QUARTER), 3, bytes((0x90 | channel, key, 90))))
        events.append((round((start + length) * QUARTER), 2, bytes((0x80 | channel, key, 0))))
    content, now = b"", 0
    for at, _, event in sorted(events):
        content += delta(at - now) + event
        now = at
    content += b"\x00\xff\x2f\x00"
    return b"MTrk" + len(content).to_bytes(4, "big") + content


def delta(ticks: int) -> bytes:
    parts = [ticks & 0x7F]
    while ticks := ticks >> 7:
        parts.append(ticks & 0x7F | 0x80)
    return bytes(reversed(parts))


def midi(*tracks: bytes, kind: int = 1, division: int = QUARTER) -> bytes:
    numbers = (kind, len(tracks), division)
    return (
        b"MThd\x00\x00\x00\x06" + b"".join(n.to_bytes(2, "big") for n in numbers) + b"".join(tracks)
    )
