import numpy as np
import pytest

from ccal.bounds import Number, Options, Rule, Whole, check, check_all
from ccal.errors import InputError


@pytest.mark.parametrize("value", [0, 0.5, np.float32(1), np.int64(1)])
def test_a_number_within_its_bounds_passes(value: object) -> None:
    check("share", value, Number(at_least=0, at_most=1))


@pytest.mark.parametrize("value", [True, "1", None, float("nan"), float("inf"), -0.1, 1.1, [0.5]])
def test_anything_else_is_refused_by_name(value: object) -> None:
    with pytest.raises(InputError, match=r"share must be a finite number of at least 0 and of at"):
        check("share", value, Number(at_least=0, at_most=1))


def test_open_bounds_exclude_their_ends() -> None:
    rule = Number(above=0, below=1)
    assert not rule.allows(0)
    assert not rule.allows(1)
    assert rule.allows(0.5)


def test_whole_numbers_are_whole() -> None:
    assert Whole(at_least=1).allows(np.int32(3))
    assert not Whole(at_least=1).allows(3.0)


def test_options_compare_type_and_value() -> None:
    rule = Options("auto", None, 1)
    assert rule.allows("auto")
    assert rule.allows(None)
    assert not rule.allows(True)
    assert not rule.allows(np.ones(2))


def test_a_table_names_the_argument_and_all_that_it_may_be() -> None:
    table: dict[str, Rule | tuple[Rule, ...]] = {
        "ridge": (Options("auto"), Number(at_least=0)),
        "k": Whole(at_least=1),
    }
    check_all(table, {"ridge": "auto", "k": 3, "other": "x"})
    with pytest.raises(InputError, match=r"^ridge must be 'auto' or a finite number of at least 0"):
        check_all(table, {"ridge": -1, "k": 3})
    with pytest.raises(InputError, match=r"got k=0\.$"):
        check_all(table, {"ridge": 0, "k": 0})
