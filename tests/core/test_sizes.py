"""Symbolic sizes against whole numbers: what they are, what is known of them, and what is noted when they are asked."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from burn_torch.symbolic.sizes import (
    Real,
    Scope,
    Size,
    exact_quotient,
    greatest_divisor,
    known_below,
    known_multiple,
    largest_sizes,
    same_size,
    size_hint,
)
from burn_torch.symbolic.solving import solved

PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # expressions are functions: nothing to shrink
SYMBOLS = ("s0", "s1", "s2")
VALUES = st.integers(2, 40)
Expression = Callable[[Sequence[Any]], Any]


def add(a: Expression, b: Expression) -> Expression:
    return lambda v: a(v) + b(v)


def times(a: Expression, b: Expression) -> Expression:
    return lambda v: a(v) * b(v)


def less(a: Expression, b: Expression) -> Expression:
    return lambda v: a(v) - b(v)


def divided(a: Expression, n: int) -> Expression:
    return lambda v: a(v) // n


def rest(a: Expression, n: int) -> Expression:
    return lambda v: a(v) % n


def over(a: Expression, n: int) -> Expression:
    return lambda v: a(v) // v[n]


def modulo(a: Expression, n: int) -> Expression:
    return lambda v: a(v) % v[n]


def symbol(n: int) -> Expression:
    return lambda v: v[n]


def number(n: int) -> Expression:
    return lambda v: n + v[0] * 0


EXPRESSIONS: st.SearchStrategy[Expression] = st.recursive(
    st.one_of(st.integers(0, 2).map(symbol), st.integers(-9, 9).map(number)),
    lambda inner: st.one_of(
        st.builds(add, inner, inner),
        st.builds(times, inner, inner),
        st.builds(less, inner, inner),
        st.builds(divided, inner, st.integers(1, 9)),
        st.builds(rest, inner, st.integers(1, 9)),
        st.builds(over, inner, st.integers(0, 2)),
        st.builds(modulo, inner, st.integers(0, 2)),
    ),
    max_leaves=8,
)


def symbols(values: Sequence[int]) -> list[Any]:
    scope = Scope(dict(zip(SYMBOLS, values, strict=True)))
    return [scope.symbol(name) for name in SYMBOLS]


def at(size: Any, values: Sequence[int]) -> Any:
    return size.replaced(dict(zip(SYMBOLS, values, strict=True))) if isinstance(size, Size) else size


@settings(deadline=None, max_examples=100, phases=PHASES)
@given(EXPRESSIONS, st.lists(VALUES, min_size=3, max_size=3), st.lists(VALUES, min_size=3, max_size=3))
def test_arithmetic(expression: Expression, here: list[int], there: list[int]) -> None:
    """A size is what the same arithmetic makes of numbers, here and at any other values; its text says so too."""
    size = expression(symbols(here))
    assert size_hint(size) == expression(here)
    assert at(size, there) == expression(there)
    if isinstance(size, Size):
        text = size.written(names=False)
        assert eval(text, {}, dict(zip(SYMBOLS, there, strict=True))) == expression(there)
        for values in (here, there):
            assert size.low <= expression(values) <= size.high
        assert not size.scope.guards, "arithmetic asks nothing"


@settings(deadline=None, max_examples=100, phases=PHASES)
@given(EXPRESSIONS, EXPRESSIONS, st.lists(VALUES, min_size=3, max_size=3), st.lists(VALUES, min_size=3, max_size=3))
def test_what_is_known_holds_everywhere(a: Expression, b: Expression, here: list[int], there: list[int]) -> None:
    given_symbols = symbols(here)
    x, y = a(given_symbols), b(given_symbols)
    if known_below(x, y):
        assert a(there) < b(there)
    if same_size(x, y):
        assert a(there) == b(there)
    quotient = exact_quotient(x, y) if not same_size(y, 0) else None
    if quotient is not None:
        assert at(quotient, there) * b(there) == a(there)
    if isinstance(x, Size) and isinstance(y, Size):
        common = greatest_divisor(x, y)
        assert exact_quotient(x, common) is not None
        assert exact_quotient(y, common) is not None
    kept = largest_sizes([x, y])
    assert max(at(size, there) for size in kept) == max(a(there), b(there))
    assert not given_symbols[0].scope.guards, "what follows is not noted"


def answers(expressions: Sequence[Expression], values: Sequence[Any]) -> list[bool]:
    truths: list[bool] = []
    for a, b in itertools.pairwise(expressions):
        truths += [op(a(values), b(values)) for op in (operator.eq, operator.lt, operator.ge, operator.ne)]
        truths += [bool(a(values)), a(values) in (1, b(values))]
    return truths


@settings(deadline=None, max_examples=100, phases=PHASES)
@given(
    st.lists(EXPRESSIONS, min_size=2, max_size=4),
    st.lists(VALUES, min_size=3, max_size=3),
    st.lists(st.lists(VALUES, min_size=3, max_size=3), min_size=1, max_size=6),
)
def test_where_the_guards_hold_every_answer_is_the_same(
    expressions: list[Expression], here: list[int], others: list[list[int]]
) -> None:
    given_symbols = symbols(here)
    truths = answers(expressions, given_symbols)
    assert truths == answers(expressions, here)
    scope = given_symbols[0].scope
    for values in (here, *others):
        names = dict(zip(SYMBOLS, values, strict=True))
        every = all(eval(guard.text, {}, names) for guard in scope.guards)
        assert every == all(eval(guard.text, {}, names) for guard in scope.needed())
        if every:
            assert answers(expressions, values) == truths


def test_small_sizes_are_no_symbols_so_nothing_is_noted_of_0_and_1() -> None:
    (a, b, _) = symbols([12, 5, 7])
    assert a != 1
    assert a
    assert a * b > b
    assert max(a, 1) is a
    assert not a * 64 % 8
    assert a * 64 // 8 == a * 8
    assert not a.scope.guards


def test_equal_by_chance_is_noted_and_equal_by_name_is_not() -> None:
    a, b, _ = symbols([8, 8, 3])
    assert a + 1 - 1 == a
    assert not a.scope.guards
    assert a == b
    assert [guard.text for guard in a.scope.guards] == ["s0 == s1"]


@pytest.mark.parametrize("plain", [int, float, operator.index, lambda a: 1.0 / (float(1 / a) * 12)])
def test_a_plain_number_of_a_size_is_noted(plain: Callable[[Any], float]) -> None:
    a, _, _ = symbols([12, 5, 7])
    assert plain(a) in (12, 1.0)
    assert [guard.text for guard in a.scope.guards] == ["s0 == 12"]


def test_numbers_made_of_sizes() -> None:
    a, _, _ = symbols([12, 5, 7])
    ratio = 3.0 / a
    assert isinstance(ratio, Real)
    assert (ratio.of(12), ratio.of(6)) == (0.25, 0.5)
    assert ratio == 3.0 / a
    assert isinstance(a / 4.0, Real)
    assert (a / 4.0).of(10) == 2.5
    assert not a.scope.guards
    assert ratio * 2.0 == 0.5
    assert [guard.text for guard in a.scope.guards] == ["s0 == 12"]


def test_a_multiple_is_noted_where_it_is_one() -> None:
    a, b, _ = symbols([12, 5, 7])
    assert known_multiple(a * 8, 4)
    assert not known_multiple(b, 4)
    assert not a.scope.guards
    assert known_multiple(a, 4)
    assert [guard.text for guard in a.scope.guards] == ["((s0) % 4) == 0"]


def test_guards_that_follow_from_others_are_left_out() -> None:
    a, b, _ = symbols([12, 5, 7])
    assert a < 1000
    assert a * b < 1000
    assert b * a < 2000
    assert [guard.text for guard in a.scope.guards] == ["s0 < 1000", "s0 * s1 < 1000"]
    assert [guard.text for guard in a.scope.needed()] == ["s0 * s1 < 1000"]


def test_solving() -> None:
    a, b, c = symbols([12, 5, 60])
    assert solved(a * 64 - c * 64, ["s2", "s0"]) == ("s2", a)
    assert solved(a * b * 4 - c * 4, ["s2"]) == ("s2", a * b)
    assert solved(a * b - b * c, ["s2"]) == ("s2", a)
    assert solved(a * b - c * c, ["s2"]) is None
    assert solved(a * 2 - c * 3, ["s2"]) is None
    assert solved(a - 5, ["s0"]) == ("s0", 5)


def test_division_by_zero() -> None:
    a, _, _ = symbols([12, 5, 7])
    with pytest.raises(ZeroDivisionError, match="a size is divided by 0"):
        a // 0


def test_products_and_sums_of_python_stay_symbolic() -> None:
    a, b, _ = symbols([12, 5, 7])
    assert same_size(math.prod((a, 4, b)), a * b * 4)
    assert same_size(sum((a, 4, b)), a + b + 4)
    assert not a.scope.guards
