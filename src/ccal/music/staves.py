"""Staves on a page, however it was scanned or photographed, and their lines straightened.

The page is cut into narrow upright strips. In each, five lines at equal distances are looked for at
every height; a staff is a chain of such places from strip to strip, which may rise, fall and bend.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ccal.music.engraving import ROWS

Floats = NDArray[np.float32]

# Pixels from line to line, as models know it, and the row of the middle line.
SPACE, MIDDLE = 4.0, ROWS / 2 + 0.5
# The smallest distance from line to line that is looked for, in pixels of the page.
_SMALLEST = 3.5
# Strips of a page, and parts of a strip: lines go through all, notes through some.
_STRIPS, _PARTS = 72, 4
# Staves rise or fall by this much at most, pixels up or down per pixel to the right.
_STEEPEST = 0.16
# Perspective makes the staves of a page differ in size by these factors.
_SIZES = np.exp(np.linspace(-0.16, 0.16, 9)).astype(np.float32)
# A staff is clear in one strip by this much, on the mean over all strips, and, in its clearest
# quarter, since the last staff may be short, as a share of the clearest staff of the page.
_CLEAR, _FAINT, _SHARE = 0.04, 0.02, 0.25
# Between thin lines, so much above and below the middle is empty.
_EMPTY = 0.3
# The shortest staff, and the longest gap within one, in spaces.
_SHORTEST, _GAP = 12.0, 14.0
# Samples for each pixel of a straightened line, along and across.
_FINE = 3
# A faint column of a staff line has this share of the ink of a dark one.
_EVEN = 0.1
# The faintest line has this share of the ink of the middle one.
_DARK = 0.3
# Between the lines there is at most this share of their ink.
_GREY = 0.85
# Columns of a part of a staff whose lines are measured once more.
_PART = 120


@dataclass(frozen=True)
class Staff:
    """A staff on a page: y of the middle line, its slope and the space at each `x`, in pixels."""

    x: Floats
    y: Floats
    slope: Floats
    space: Floats


def find_staves(ink: Floats) -> list[Staff]:
    """The staves of a page from top to bottom; none if there are none.

    >>> page = np.zeros((80, 300), dtype=np.float32)
    >>> page[[20, 28, 36, 44, 52], 20:280] = 1
    >>> [staff] = find_staves(page)
    >>> round(float(staff.y.mean()), 1), round(float(staff.space.mean()), 1)
    (36.5, 8.0)
    """
    height, width = ink.shape
    if height < 5 * _SMALLEST or width < 5 * _SMALLEST:
        return []
    middles, profiles = _profiles(ink)
    space = _usual_space(profiles)
    if space is None:
        return []
    sizes = space * _SIZES
    clear = np.stack([_comb(profiles, float(size)) for size in sizes])
    best = clear.max(axis=0)
    slope = _slope(best, middles)
    found: list[Staff] = []
    most = 0.0
    left = best.copy()
    while len(found) < 40:
        seed = _strongest(left, middles, slope, space)
        path, value = _chain(left, middles, seed, slope, space)
        strips = np.arange(len(middles))
        along = left[strips, path]
        for strip, row in enumerate(path.tolist()):
            reach = int(3.5 * space)
            left[strip, max(0, row - reach) : row + reach + 1] = 0
        quarter = float(np.sort(along)[-max(1, len(along) // 4) :].mean())
        if value < _FAINT or quarter < _SHARE * most:
            break
        staff = _staff(clear[:, strips, path], along, path, middles, sizes, width)
        staff = None if staff is None else _refined(ink, staff)
        if staff is not None:
            found.append(staff)
            most = max(most, quarter)
    return sorted(found, key=lambda staff: float(staff.y.mean()))


def straighten(ink: Floats, staff: Staff) -> Floats:
    """A staff as a line (columns, 40), 4 pixels from line to line."""
    fine, _ = _fine_line(ink, staff)
    columns = fine.shape[1] // _FINE
    line = fine.reshape(ROWS, _FINE, columns, _FINE).mean(axis=(1, 3)).T
    black = max(0.2, float(np.quantile(line, 0.985)))
    return np.ascontiguousarray(np.clip(line / black, 0, 1), dtype=np.float32)


def _fine_line(ink: Floats, staff: Staff) -> tuple[Floats, NDArray[np.float64]]:
    """The same three times as large, and the x of each column."""
    # The x at which each column begins: steps grow and shrink with the space.
    steps = SPACE / np.interp(np.arange(staff.x[0], staff.x[-1] + 1), staff.x, staff.space)
    reach = np.concatenate([[0.0], np.cumsum(steps)])
    columns = max(1, int(reach[-1]))
    fine = (np.arange(columns * _FINE) + 0.5) / _FINE
    x = staff.x[0] + np.interp(fine, reach, np.arange(len(reach)))
    y, slope, space = (np.interp(x, staff.x, v) for v in (staff.y, staff.slope, staff.space))
    rows = (np.arange(ROWS * _FINE) + 0.5) / _FINE - MIDDLE
    down = rows[:, None] * space / SPACE
    return _sample(ink, y + down, x - slope * down), x


def _refined(ink: Floats, staff: Staff) -> Staff | None:
    """With the height and the space that the five lines have in each part of the staff.

    None if they are not lines: text has gaps, and noise is dark between them, too.
    """
    fine, x = _fine_line(ink, staff)
    rows = MIDDLE + SPACE * np.arange(-2, 2.5, 0.5)
    least, usual, most = np.stack([_darkest(fine, row, (0.2, 0.5, 0.7)) for row in rows], axis=1)
    even, dark = (least / np.maximum(most, 1e-3))[::2], most[::2]
    if sorted(even)[1] < _EVEN or min(dark) < _DARK * np.median(dark):
        return None
    if np.median(usual[1::2]) > _GREY * np.median(usual[::2]):
        return None
    parts = max(1, fine.shape[1] // (_FINE * _PART))
    wanted = np.arange(-2, 3) * SPACE * _FINE
    at, heights, sizes = [], [], []
    for columns in np.array_split(np.arange(len(x)), parts):
        # Heads and beams are in the upper half of the values of a row, a line in all of them.
        rows = np.quantile(fine[:, columns], 0.4, axis=1)
        centres = []
        for middle in wanted + MIDDLE * _FINE:
            first = round(middle - 0.4 * SPACE * _FINE)
            near = rows[first : first + round(0.8 * SPACE * _FINE)]
            weight = np.maximum(near - 0.5 * near.max(), 0) + 1e-9
            places = first + 0.5 + np.arange(len(near)) - MIDDLE * _FINE
            centres.append(float((weight * places).sum() / weight.sum()))
        size, height = np.polyfit(wanted, centres, 1)
        at.append(float(x[columns].mean()))
        heights.append(float(height) / _FINE)
        sizes.append(min(max(float(size), 0.85), 1.18))
    factor = np.interp(staff.x, at, sizes)
    by = np.interp(staff.x, at, heights) * staff.space / SPACE
    return Staff(
        staff.x,
        (staff.y + by).astype(np.float32),
        staff.slope,
        (staff.space * factor).astype(np.float32),
    )


def _darkest(fine: Floats, row: float, shares: tuple[float, ...]) -> NDArray[np.float64]:
    """Quantiles of the darkest ink near a row of a line, over its columns."""
    first = round((row - 0.7) * _FINE)
    return np.asarray(np.quantile(fine[first : first + 5].max(axis=0), shares))


def _profiles(ink: Floats) -> tuple[Floats, Floats]:
    """The x of the middle of each strip, and the ink of its faint parts at each height.

    Of the parts of a strip the second faintest counts: heads and stems are in few of them.
    """
    height, width = ink.shape
    strips = max(1, min(max(_STRIPS, width // 28), width // (2 * _PARTS)))
    edges = np.linspace(0, width, strips * _PARTS + 1).astype(int)
    totals = np.concatenate([np.zeros((height, 1)), np.cumsum(ink, axis=1)], axis=1)
    means = np.diff(totals[:, edges], axis=1) / np.diff(edges)
    parts = np.sort(means.reshape(height, strips, _PARTS), axis=2)
    middles = (edges[:-1:_PARTS] + edges[_PARTS::_PARTS]) / 2
    return middles.astype(np.float32), np.ascontiguousarray(parts[:, :, 1].T, dtype=np.float32)


def _comb(profiles: Floats, space: float, share: float = 0.0) -> Floats:
    """How clear five lines are around each height: the faintest of them, less what is between.

    Between two lines the darkest within this share of the space above and below the middle counts.
    """
    height = profiles.shape[1]
    reach = max(1, round(0.12 * space))
    wide = profiles.copy()
    for by in range(1, reach + 1):
        wide[:, by:] = np.maximum(wide[:, by:], profiles[:, :-by])
        wide[:, :-by] = np.maximum(wide[:, :-by], profiles[:, by:])
    margin = int(np.ceil(3 * space)) + 1
    padded = np.pad(profiles, ((0, 0), (margin, margin)))
    gaps = _widest(padded, max(0, int(share * space - 1)))
    lines = np.pad(wide, ((0, 0), (margin, margin)))

    def at(values: Floats, lines_down: float) -> Floats:
        first = margin + round(lines_down * space)
        return values[:, first : first + height]

    on = np.stack([at(lines, k) for k in range(-2, 3)])
    between = sum(at(gaps, k + 0.5) for k in range(-2, 2)) / 4
    beyond = np.minimum(at(padded, -3), at(padded, 3))
    faint = np.sort(on, axis=0)
    # One line may be broken in a strip.
    clear = 0.6 * faint[0] + 0.4 * faint[1] - between - 0.5 * beyond
    return np.asarray(np.maximum(clear, 0), dtype=np.float32)


def _usual_space(profiles: Floats) -> float | None:
    """The distance from line to line of most staves of the page.

    Staves at equal distances are like the lines of a giant one, but thick and striped.
    """
    largest = min(profiles.shape[1] / 4.5, 100.0)
    if largest <= _SMALLEST:
        return None
    spaces = np.geomspace(_SMALLEST, largest, max(2, int(np.log(largest / _SMALLEST) / 0.035)))
    some = profiles[:: max(1, len(profiles) // 36)]
    combs = (_comb(some, space, _EMPTY).astype(np.float64) for space in spaces.tolist())
    # A larger comb spreads its clear places over more rows.
    value = np.array([(comb**2).sum() for comb in combs]) / spaces**0.5
    best = int(value.argmax())
    return float(spaces[best]) if value[best] > 0 else None


def _slope(clear: Floats, middles: Floats) -> float:
    """The slope at which most clear places of the strips are in a row."""
    height = clear.shape[1]
    heights = np.arange(height)
    best, found = -1.0, 0.0
    for slope in sorted(np.linspace(-_STEEPEST, _STEEPEST, 65).tolist(), key=abs):
        total = np.zeros(height)
        for row, x in zip(clear, middles - middles.mean(), strict=True):
            by = round(slope * float(x))
            inside = (heights + by >= 0) & (heights + by < height)
            total[inside] += row[heights[inside] + by]
        value = float((total**2).sum())
        if value > 1.02 * best:
            best, found = value, slope
    return found


def _strongest(clear: Floats, middles: Floats, slope: float, space: float) -> float:
    """The height, in the middle of the page, of the sloping line with most clear places."""
    height = clear.shape[1]
    shifts = np.rint(slope * (middles - middles.mean())).astype(int)
    total = np.zeros(height)
    # Staves bend: what is near counts.
    for row, by in zip(_widest(clear, max(1, round(0.4 * space))), shifts.tolist(), strict=True):
        rows = np.arange(height) + by
        inside = (rows >= 0) & (rows < height)
        total[inside] += row[rows[inside]]
    return float(total.argmax())


def _widest(values: Floats, reach: int) -> Floats:
    windows = np.pad(values, ((0, 0), (reach, reach)))
    near = np.lib.stride_tricks.sliding_window_view(windows, 2 * reach + 1, axis=1)
    return np.asarray(near.max(axis=2))


def _chain(
    clear: Floats, middles: Floats, seed: float, slope: float, space: float
) -> tuple[NDArray[np.int64], float]:
    """The row in each strip of the clearest smooth chain near a sloping line, and its clearness."""
    strips, height = clear.shape
    band = max(3, round(1.9 * space))
    offsets = np.arange(-band, band + 1)
    line = np.rint(seed + slope * (middles - middles.mean())).astype(int)
    at = line[:, None] + offsets
    values = np.where(
        (at >= 0) & (at < height), clear[np.arange(strips)[:, None], at.clip(0, height - 1)], 0.0
    )
    # To leave the slope costs little for a pixel, and much for a line.
    step = max(1, round(0.35 * space))
    moves = np.arange(-step, step + 1)
    cost = 0.15 * (np.abs(moves) / space) + 0.6 * (moves / space) ** 2
    total, came = values[0], np.zeros((strips, len(offsets)), dtype=np.int64)
    for strip in range(1, strips):
        padded = np.pad(total, step, constant_values=-np.inf)
        moved = [padded[step + m : step + m + len(offsets)] for m in moves.tolist()]
        options = np.stack(moved) - cost[:, None]
        came[strip] = options.argmax(axis=0)
        total = options.max(axis=0) + values[strip]
    places = [int(total.argmax())]
    for strip in range(strips - 1, 0, -1):
        places.append(places[-1] + int(moves[came[strip, places[-1]]]))
    place = np.array(places[::-1])
    path = at[np.arange(strips), place].clip(0, height - 1)
    return path, float(values[np.arange(strips), place].mean())


def _staff(
    sizes_along: Floats,
    clear: Floats,
    path: NDArray[np.int64],
    middles: Floats,
    sizes: Floats,
    width: int,
) -> Staff | None:
    """A smooth staff along a chain, from its first to its last strip; None if it is too short."""
    wide = float(middles[1] - middles[0]) if len(middles) > 1 else float(width)
    share = sizes_along.sum(axis=1)
    best = int(share.argmax())
    space = float(sizes[best])
    if 0 < best < len(sizes) - 1:
        before, here, after = share[best - 1 : best + 2]
        bend = before - 2 * here + after
        by = 0.5 * (before - after) / bend if bend < 0 else 0.0
        space *= float((sizes[1] / sizes[0]) ** by)
    usual = float(np.quantile(clear, 0.75))
    there = clear > max(0.25 * usual, 0.4 * _CLEAR)
    first, last = _longest_run(there, max(1, round(_GAP * space / wide)))
    if (last - first + 1) * wide < _SHORTEST * space or usual < _CLEAR:
        return None
    inside = np.arange(first, last + 1)
    smooth = [
        _local_line(middles[inside], path[inside] + 0.5, clear[inside] + 1e-3, x, 9 * wide)
        for x in middles[inside]
    ]
    y, slope = np.array(smooth, dtype=np.float32).T
    # To both ends, and a little beyond for what was cut off.
    ends = [
        max(0.0, float(middles[first]) - wide / 2 - space),
        min(float(width), float(middles[last]) + wide / 2 + space),
    ]
    x = np.concatenate([[ends[0]], middles[inside], [ends[1]]]).astype(np.float32)
    y = np.concatenate(
        [[y[0] - slope[0] * (x[1] - x[0])], y, [y[-1] + slope[-1] * (x[-1] - x[-2])]]
    ).astype(np.float32)
    slope = np.concatenate([slope[:1], slope, slope[-1:]])
    return Staff(x, y, slope, np.full(len(x), space, dtype=np.float32))


def _longest_run(there: NDArray[np.bool_], gap: int) -> tuple[int, int]:
    """First and last of the strips with a staff, where gaps up to `gap` strips do not count."""
    places = np.flatnonzero(there)
    if len(places) == 0:
        return 0, -1
    cuts = np.flatnonzero(np.diff(places) > gap + 1)
    starts = np.concatenate([[0], cuts + 1])
    ends = np.concatenate([cuts, [len(places) - 1]])
    counts = ends - starts
    best = int(counts.argmax())
    return int(places[starts[best]]), int(places[ends[best]])


def _local_line(
    x: Floats, y: NDArray[np.floating], weight: Floats, at: float, reach: float
) -> tuple[float, float]:
    """Value and slope at a place of the line through the points near it."""
    away = (x - at) / reach
    near = weight * np.maximum(1 - np.abs(away), 0) ** 2 + 1e-9
    total = near.sum()
    mx, my = (near * x).sum() / total, (near * y).sum() / total
    spread = (near * (x - mx) ** 2).sum()
    slope = (near * (x - mx) * (y - my)).sum() / spread if spread > 1e-6 else 0.0
    return float(my + slope * (at - mx)), float(slope)


def _sample(ink: Floats, y: NDArray[np.floating], x: NDArray[np.floating]) -> Floats:
    """Ink at any places, between pixels and, as paper, beyond the page."""
    padded = np.pad(ink, 1)
    y, x = (y + 0.5).clip(0, ink.shape[0] + 0.999), (x + 0.5).clip(0, ink.shape[1] + 0.999)
    row, column = y.astype(int), x.astype(int)
    down, right = y - row, x - column
    top = padded[row, column] * (1 - right) + padded[row, column + 1] * right
    below = padded[row + 1, column] * (1 - right) + padded[row + 1, column + 1] * right
    return np.asarray(top * (1 - down) + below * down, dtype=np.float32)
