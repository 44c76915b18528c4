"""Index arithmetic against whole numbers, over chains of reshapes and permutations."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burn_torch.fusion.body.index import Index, Var, constant, flat_index, in_fours, index_of, split_index
from burn_torch.symbolic.sizes import Scope, Size


@st.composite
def chains(draw: st.DrawFn) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Shapes of as many elements each, and an order of the axes of each."""
    primes = draw(st.lists(st.sampled_from([2, 3, 5]), max_size=4))
    chain = []
    for _ in range(draw(st.integers(1, 4))):
        sizes = list(draw(st.permutations(primes)))
        while len(sizes) > 1 and draw(st.booleans()):
            sizes[:2] = [sizes[0] * sizes[1]]
        sizes.insert(draw(st.integers(0, len(sizes))), 1)
        axes = tuple(draw(st.permutations(range(len(sizes)))))
        chain.append((tuple(sizes), axes))
    return chain


def split(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    places = []
    for size in reversed(shape):
        places.append(flat % size)
        flat //= size
    return tuple(reversed(places))


def flatten(index: tuple[int, ...], shape: tuple[int, ...]) -> int:
    flat = 0
    for i, size in zip(index, shape, strict=True):
        flat = flat * size + i
    return flat


@settings(deadline=None, max_examples=60)
@given(chains())
def test_chains_of_views(chain: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> None:
    count = math.prod(chain[0][0])
    x = Var("x", count)
    symbolic = index_of(x)
    numbers = list(range(count))
    for shape, axes in chain:
        moved = tuple(shape[axis] for axis in axes)
        parts = split_index(symbolic, shape)
        symbolic = flat_index([parts[axis] for axis in axes], moved)
        numbers = [flatten(tuple(split(n, shape)[axis] for axis in axes), moved) for n in numbers]
    computed = eval(f"lambda x: {symbolic.written()}")  # the text is what kernels compute
    assert [computed(n) for n in range(count)] == numbers
    assert symbolic.low <= min(numbers)
    assert symbolic.high >= max(numbers)
    if all(axes == tuple(sorted(axes)) for _, axes in chain):
        assert symbolic == index_of(x), "reshapes leave the order alone, and the index says so"


@settings(deadline=None, max_examples=60)
@given(st.permutations([2, 3, 4, 4, 5]), st.permutations(range(4)), st.integers(0, 3))
def test_neighbours_in_fours(sizes: list[int], axes: list[int], joined: int) -> None:
    """Reads a turned tensor whose last axes are the loop: if the index claims fours, each four is one, in every row."""
    shape = (*sizes[:3], sizes[3] * sizes[4])
    moved = tuple(shape[axis] for axis in axes)
    rows, length = math.prod(moved[:joined]), math.prod(moved[joined:])
    x, r = Var("x", rows), Var("r", length)
    parts = split_index(flat_index([index_of(x), index_of(r)], (rows, length)), moved)
    flat = flat_index([parts[axes.index(axis)] for axis in range(4)], shape)
    computed = eval(f"lambda x, r: {flat.written()}")
    fours = all(
        computed(n, m) % 4 == 0
        and [computed(n, m + i) for i in range(4)] == list(range(computed(n, m), computed(n, m) + 4))
        for n in range(rows)
        for m in range(0, length - 3, 4)
    )
    assert fours or not in_fours(flat, r)
    if fours and length % 4 == 0 and axes == [1, 0, 2, 3]:
        assert in_fours(flat, r)


def test_images_are_summed_in_fours() -> None:
    """The gradient of a convolution's bias: 8 channels of 5 images of 26 x 26."""
    x, r = Var("x", 8), Var("r", 5 * 676)
    image, row, col = split_index(index_of(r), (5, 26, 26))
    flat = flat_index([image, index_of(x), row, col], (5, 8, 26, 26))
    assert repr(flat) == "((r) // 676) * 5408 + x * 676 + ((r) % 676)"
    assert in_fours(flat, r)
    assert not in_fours(flat + 2, r)
    assert not in_fours(flat_index([image, index_of(x), col, row], (5, 8, 26, 26)), r)


def test_equal_indexes_are_equal() -> None:
    x, y = index_of(Var("x", 12)), index_of(Var("y", 5))
    assert x + y == y + x
    assert hash((x + y) * 3) == hash(y * 3 + x * 3)
    assert (x * 5 + y) // 5 == x
    assert (x * 5 + y) % 5 == y
    assert (x // 4) // 3 == constant(0)
    assert x * 0 == constant(0)
    assert x != y


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (constant(7), "7"),
        (index_of(Var("x", 12)) * 3 + 2, "x * 3 + 2"),
        (index_of(Var("x", 12)) % 5, "((x) % 5)"),
        (index_of(Var("x", 12)) * -1 + 11, "x * -1 + 11"),
    ],
)
def test_source(index: Index, text: str) -> None:
    assert index.written() == text


@settings(deadline=None, max_examples=60)
@given(chains(), st.lists(st.booleans(), min_size=8, max_size=8))
def test_chains_of_flipped_views(chain: list[tuple[tuple[int, ...], tuple[int, ...]]], flips: list[bool]) -> None:
    """A flip counts down: indexes of it have negative multiples, and may not become negative where they are divided."""
    count = math.prod(chain[0][0])
    symbolic = index_of(Var("x", count))
    numbers = list(range(count))
    for step, (shape, _) in enumerate(chain):
        turned = [flips[(step + axis) % 8] for axis in range(len(shape))]
        parts = split_index(symbolic, shape)
        parts = tuple(at * -1 + (n - 1) if flip else at for at, n, flip in zip(parts, shape, turned, strict=True))
        symbolic = flat_index(parts, shape)
        numbers = [
            flatten(
                tuple(
                    n - 1 - at if flip else at for at, n, flip in zip(split(number, shape), shape, turned, strict=True)
                ),
                shape,
            )
            for number in numbers
        ]
    computed = eval(f"lambda x: {symbolic.written()}")
    assert [computed(n) for n in range(count)] == numbers


def test_a_flipped_remainder_is_not_negative() -> None:
    x = Var("x", 72)
    flipped = (index_of(x) % 36) * -1 + 35
    for index, wanted in ((flipped % 4, lambda n: (35 - n % 36) % 4), (flipped // 4, lambda n: (35 - n % 36) // 4)):
        computed = eval(f"lambda x: {index.written()}")
        assert [computed(n) for n in range(72)] == [wanted(n) for n in range(72)]


# -- symbolic shapes ---------------------------------------------------------------------------------
@st.composite
def symbolic_chains(draw: st.DrawFn) -> list[tuple[tuple[tuple[str, ...], ...], tuple[int, ...]]]:
    """Shapes of as many elements each, every axis a product of factors by name, and an order of the axes of each."""
    factors = draw(st.lists(st.sampled_from(["s0", "s1", "2", "4", "3"]), min_size=1, max_size=4))
    chain = []
    for _ in range(draw(st.integers(1, 4))):
        axes: list[tuple[str, ...]] = [(factor,) for factor in draw(st.permutations(factors))]
        while len(axes) > 1 and draw(st.booleans()):
            axes[:2] = [axes[0] + axes[1]]
        axes.insert(draw(st.integers(0, len(axes))), ())
        chain.append((tuple(axes), tuple(draw(st.permutations(range(len(axes)))))))
    return chain


def shape_of(axes: tuple[tuple[str, ...], ...], values: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(math.prod(values.get(factor) or int(factor) for factor in axis) for axis in axes)


@settings(deadline=None, max_examples=60)
@given(symbolic_chains(), st.lists(st.tuples(st.integers(2, 7), st.integers(2, 7)), min_size=2, max_size=4))
def test_chains_of_views_of_symbolic_shapes(chain: Any, values: list[tuple[int, int]]) -> None:
    """One index, made once, is what the numbers are at every value of the symbols; and nothing was asked of them."""
    scope = Scope({"s0": values[0][0], "s1": values[0][1]})
    symbols = {name: scope.symbol(name) for name in ("s0", "s1")}
    x = Var("x", math.prod(shape_of(chain[0][0], symbols)))
    symbolic = index_of(x)
    for axes, order in chain:
        shape = shape_of(axes, symbols)
        parts = split_index(symbolic, shape)
        symbolic = flat_index([parts[axis] for axis in order], tuple(shape[axis] for axis in order))
    for s0, s1 in values:
        at = {"s0": s0, "s1": s1}
        count = math.prod(shape_of(chain[0][0], at))
        numbers = list(range(count))
        for axes, order in chain:
            shape = shape_of(axes, at)
            moved = tuple(shape[axis] for axis in order)
            numbers = [flatten(tuple(split(n, shape)[axis] for axis in order), moved) for n in numbers]
        computed = eval(f"lambda x: {symbolic.written()}", dict(at))
        assert [computed(n) for n in range(count)] == numbers
        low, high = (end.replaced(at) if isinstance(end, Size) else end for end in (symbolic.low, symbolic.high))
        assert low <= min(numbers)
        assert high >= max(numbers)
    if all(order == tuple(sorted(order)) for _, order in chain):
        assert symbolic == index_of(x), "reshapes leave the order alone, and the index says so"
    assert not scope.guards


def test_symbolic_indexes_are_simplified() -> None:
    scope = Scope({"s0": 12, "s1": 5})
    s0, s1 = scope.symbol("s0"), scope.symbol("s1")
    x, y = index_of(Var("x", s0)), index_of(Var("y", s1))
    assert (x * s1 + y) // s1 == x
    assert (x * s1 + y) % s1 == y
    assert (x * (s1 * 4) + y) // s1 == x * 4
    assert (x // s0) == constant(0)
    assert (x * (s1 * 64) + y * 64) % 64 == constant(0)
    assert (x // 4 // 8) == x // 32
    assert (x * s1 + y).written() == "x * s1 + y"
    assert (y * -1 + (s1 - 1)).low == 0, "a flip stays in its axis"
    assert not scope.guards


def test_digits_of_one_number_are_one_remainder() -> None:
    """Three axes of a reduction that lie side by side are read as one."""
    r = index_of(Var("r", 50176))
    parts = split_index(r, (4, 4, 56, 56))
    assert flat_index(parts[1:], (4, 56, 56)) == r % 12544
    assert flat_index(parts, (4, 4, 56, 56)) == r


def test_how_far_apart_neighbours_lie() -> None:
    x = Var("x", 24576)
    at = index_of(x)
    columns = (at // 3072) * 6291456 + at % 3072
    assert columns.stride(x) == 1, "but for where a remainder begins anew"
    assert (at * 768).stride(x) == 768
    assert ((at % 768) * 50304 + at // 768).stride(x) == 50304
    assert (at // 3072).stride(x) == 0


def test_how_long_an_index_stays_the_same() -> None:
    x = Var("x", 1 << 20)
    at = index_of(x)
    assert ((at // 3136) % 64).constant_run(x) == 3136
    assert ((at // 12) + (at // 8) * 4).constant_run(x) == 4
    assert (at % 64).constant_run(x) == 0
    assert at.constant_run(x) == 0
