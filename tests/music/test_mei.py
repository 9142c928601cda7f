from __future__ import annotations

from fractions import Fraction

import pytest

from ccal.errors import InputError
from ccal.music import parse_abc
from ccal.music.mei import parts_of, to_mei


def test_parts_of_a_length_add_up_to_it() -> None:
    for count in range(1, 300):
        parts = parts_of(Fraction(count, 64))
        total = sum(Fraction(1, unit) * (2 - Fraction(1, 2**dots)) for unit, dots in parts)
        assert total == Fraction(count, 64)
    with pytest.raises(InputError, match="cannot be written"):
        to_mei(parse_abc("X:1\nM:4/4\nL:1/8\nK:C\nC1/3\n"))
