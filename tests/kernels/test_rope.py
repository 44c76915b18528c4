"""Rotary embedding: what holds of any rotation, exact angles far out, and what the launchers refuse."""

from __future__ import annotations

import doctest
import math
from collections.abc import Callable

import pytest
import torch

from burn_kernels import KernelArgumentError, KernelDTypeError, KernelError, KernelShapeError, rope
from burn_kernels.launch import H200
from burn_kernels.rope import references as rope_parts
from burn_kernels.spec import Draw

Q, K = torch.ones(2, 3, 4, 8), torch.ones(2, 3, 2, 8)
COS = torch.ones(3, 4)
TURNS = rope.turns(8)


@pytest.mark.parametrize("interleaved", [False, True])
def test_a_rotation_keeps_lengths_and_its_inverse_undoes_it(interleaved: bool) -> None:
    draw = Draw(3)
    q, k = draw.normal(2, 7, 3, 10), draw.normal(2, 7, 1, 10)
    turned = rope.forward_computed(q, k, rope.turns(6), offset=5, interleaved=interleaved)
    back = rope.backward_computed(*turned, rope.turns(6), offset=5, interleaved=interleaved)
    for x, y, z in zip((q, k), turned, back, strict=True):
        assert y is not None
        assert z is not None
        torch.testing.assert_close(y.norm(dim=-1), x.norm(dim=-1))
        torch.testing.assert_close(z, x)
        assert torch.equal(y[..., 6:], x[..., 6:])
        assert not torch.allclose(y[..., :6], x[..., :6])


@pytest.mark.parametrize("interleaved", [False, True])
def test_products_of_queries_and_keys_depend_on_their_distance_alone(interleaved: bool) -> None:
    draw = Draw(4)
    q, k = (draw.normal(1, 1, 1, 8).expand(1, 9, 1, 8) for _ in range(2))
    a, b = rope.forward_computed(q, k, TURNS, interleaved=interleaved)
    assert b is not None
    products = a[0, :, 0] @ b[0, :, 0].T
    for distance in range(-8, 9):
        diagonal = products.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))


def test_angles_are_exact_a_hundred_million_positions_out() -> None:
    # a quarter of a turn a position, and a hair: float32 angles of this size are off by whole turns
    steps = rope.turns_of([math.tau / 4, math.tau / 2**40])
    x = torch.zeros(1, 4, 1, 4)
    x[..., :2] = 1.0
    y, _ = rope.forward_computed(x, None, steps, offset=10**8)
    slow = torch.tensor([math.tau * (10**8 + i) / 2**40 for i in range(4)])
    torch.testing.assert_close(y[0, :, 0, 0], torch.tensor([1.0, 0.0, -1.0, 0.0]), atol=1e-7, rtol=0.0)
    torch.testing.assert_close(y[0, :, 0, 1], slow.cos())
    torch.testing.assert_close(y[0, :, 0, 3], slow.sin())


def test_frequencies_are_those_of_the_paper() -> None:
    fractions = rope.turns(8, 10_000.0).double() / 2.0**64
    exact = torch.tensor([10_000.0 ** (-2 * i / 8) for i in range(4)], dtype=torch.float64) / math.tau
    torch.testing.assert_close(fractions, exact, rtol=1e-15, atol=0.0)
    torch.testing.assert_close(rope.turns(8, scale=4.0).double() / 2.0**64, exact / 4, rtol=1e-15, atol=0.0)


def test_tables_in_a_half_type_and_no_keys() -> None:
    draw = Draw(5)
    q, angle = draw.normal(1, 3, 2, 8).float(), draw.normal(3, 4)
    y, none = rope.forward(q, None, angle.cos().bfloat16(), angle.sin().bfloat16())
    exact, _ = rope.forward(q, None, angle.cos().bfloat16().float(), angle.sin().bfloat16().float())
    assert none is None
    assert torch.equal(y, exact)


def test_candidates_begin_with_the_default() -> None:
    for heads, pairs in ((1, 1), (32, 64), (40, 40), (8, 128), (128, 32)):
        for by_head in (False, True):
            configs = rope.candidates(heads, pairs, 2, H200, by_head=by_head)
            assert rope.default(heads, pairs, 2, H200, by_head=by_head) == configs[0]
            assert len(set(configs)) == len(configs)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (
            KernelShapeError,
            r"rope: the sizes do not fit.*k \(2, 3, 2, 6\).*k \(batch, seq, kv_heads, d_head\).*pass views",
            lambda: rope.forward(Q, torch.ones(2, 3, 2, 6), COS, COS),
        ),
        (
            KernelShapeError,
            r"rope backward: the sizes do not fit.*cos \(3, 5\).*pairs from 1 to d_head / 2",
            lambda: rope.backward(Q, K, torch.ones(3, 5), torch.ones(3, 5)),
        ),
        (
            KernelShapeError,
            r"rope: the sizes do not fit.*cos \(1, 3, 4\).*offset 2.*then neither positions nor an offset",
            lambda: rope.forward(Q, K, COS[None], COS[None], offset=2),
        ),
        (
            KernelShapeError,
            r"rope: the sizes do not fit.*positions \(2,\).*positions \(seq,\)",
            lambda: rope.forward_computed(Q, K, TURNS, torch.zeros(2, dtype=torch.int64)),
        ),
        (
            KernelDTypeError,
            r"rope: the element types do not fit.*turns \(4,\) float32.*integers.*rope.turns",
            lambda: rope.forward_computed(Q, K, torch.ones(4)),
        ),
        (
            KernelDTypeError,
            r"rope: the element types do not fit.*q \(2, 3, 4, 8\) float32.*k \(2, 3, 2, 8\) float16.*one float type",
            lambda: rope.forward(Q, K.half(), COS, COS),
        ),
        (
            KernelArgumentError,
            r"rope: positions outside the tables.*2 positions, the first 3.*from 0 to 2.*forward_computed",
            lambda: rope.forward(Q, K, COS, COS, offset=2),
        ),
        (
            KernelArgumentError,
            r"rope: frequencies of numbers outside.*rotary 7.*an even number.*10000",
            lambda: rope.turns(7),
        ),
    ],
)
def test_refusals(error: type[KernelError], message: str, call: Callable[[], object]) -> None:
    with pytest.raises(error, match=f"(?s){message}"):
        call()


def test_examples_in_docstrings() -> None:
    ran = doctest.testmod(rope_parts)
    assert ran.attempted > 0
    assert ran.failed == 0
