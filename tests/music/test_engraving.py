from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest

from ccal.errors import InputError
from ccal.music import engrave, parse_abc
from ccal.music.engraving import ChildFailedError, in_child
from tests.music.tunes import needs_music, tunes


@needs_music
def test_lines_are_where_they_should_be_and_heads_are_hit() -> None:
    # Crotchets in the upper half have their stems on the left, and heads in a space are alone.
    staff = engrave(parse_abc("X:1\nM:4/4\nL:1/4\nK:C\ncece|ecec|]"))
    assert staff.pixels.shape[0] == 40
    dark = (staff.pixels < 160).mean(axis=1)
    assert np.flatnonzero(dark > 0.8).tolist() == [12, 16, 20, 24, 28]
    assert len(staff.left) == len(staff.centre) == 8
    rows = {"c": 18, "e": 14}
    for letter, centre, left in zip("ceceecec", staff.centre, staff.left, strict=True):
        row = staff.pixels[rows[letter]]
        assert row[int(centre)] < 60, "the centre of a black head is black"
        assert row[int(left) - 2] > 200, "and left of it is paper"
        assert row[int(left) + 7] > 200


@needs_music
def test_every_onset_has_a_head_from_left_to_right() -> None:
    for tune in tunes():
        score = parse_abc(tune.abc)
        staff = engrave(score)
        assert len(staff.left) == len(score.attacks())
        assert (np.diff(staff.left) > 3).all()
        assert staff.left[0] > 0
        assert staff.left[-1] < staff.pixels.shape[1]


@needs_music
def test_printed_looks_differ_and_their_heads_are_hit() -> None:
    score = parse_abc(tunes()[0].abc)
    pages = [engrave(score, look=seed) for seed in (1, 2)]
    assert not np.array_equal(pages[0].pixels[:, :200], pages[1].pixels[:, :200])
    assert np.array_equal(pages[0].pixels, engrave(score, look=1).pixels)
    for page in (engrave(score), *pages):
        assert len(page.left) == len(score.attacks())
        assert (np.diff(page.left) > 3).all()
        inside = page.heads[(page.heads[:, 1] > 1) & (page.heads[:, 1] < 38)].astype(int)
        # Half of a white head is paper, and even there a line or its edge is near.
        around = [page.pixels[y - 1 : y + 2, x - 1 : x + 2].min() for x, y in inside]
        assert max(around) < 200


@needs_music
def test_tunes_do_not_depend_on_those_before_nor_on_the_thread() -> None:
    plain = parse_abc("X:1\nL:1/4\nK:C\nFGAB|]")
    first = engrave(plain)
    engrave(parse_abc("X:1\nL:1/4\nK:E\nFGAB|]"))
    results = [engrave(plain)]
    thread = threading.Thread(target=lambda: results.append(engrave(plain)))
    thread.start()
    thread.join()
    assert len(results) == 2
    for again in results:
        assert np.array_equal(first.pixels, again.pixels)


@needs_music
def test_size_follows_the_space_between_lines() -> None:
    score = parse_abc("X:1\nL:1/4\nK:C\nFGAB|]")
    small, large = engrave(score, space=3), engrave(score, space=6)
    assert large.pixels.shape[1] == pytest.approx(2 * small.pixels.shape[1], abs=2)
    assert large.left == pytest.approx(2 * small.left)


def test_a_child_may_crash_hang_or_fail() -> None:
    with pytest.raises(ChildFailedError, match="SIGABRT"):
        in_child(os.abort, timeout=20)
    with pytest.raises(ChildFailedError, match="exit code 3"):
        in_child(os._exit, 3, timeout=20)
    with pytest.raises(ChildFailedError, match=r"no result after 0\.2 seconds"):
        in_child(time.sleep, 30, timeout=0.2)
    with pytest.raises(InputError, match="no notes"):
        in_child(parse_abc, "X:1\nK:C\nz", timeout=20)
    with pytest.raises(InputError, match="ZeroDivisionError"):
        in_child(divmod, 1, 0, timeout=20)
    # More than a pipe holds.
    assert len(in_child(bytes, 3_000_000, timeout=20)) == 3_000_000
