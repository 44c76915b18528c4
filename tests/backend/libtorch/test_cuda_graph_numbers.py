"""Numbers beside tensors in recorded programs: they are rows of a ring, and what eager code computes of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from burn_torch import ops
from burn_torch.backend import LibTorch
from burn_torch.backend.libtorch.recorded.numbers import NumberBlock
from burn_torch.backend.libtorch.recorded.segments import Pack
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError
from burn_torch.core.philox import fold
from burn_torch.core.spec import FLOAT_NUMBER, INT_NUMBER
from burn_torch.graph import Trace, interpret
from burn_torch.ops.torch_types import FROM_TORCH as FROM
from burn_torch.ops.value import Value
from tests.backend.libtorch.host_arena import captured, elementwise, spec


# -- numbers ----------------------------------------------------------------------------------------------------
def test_numbers_beside_tensors_of_every_type() -> None:
    for dtype in (DType.F64, DType.F32, DType.F16, DType.BF16, DType.I64, DType.I32, DType.U8):
        number = FLOAT_NUMBER if dtype.is_float else INT_NUMBER

        def build(x: Any, one: Any, n: Any) -> list[Any]:
            return [x + n, n - x, x * n, ops.maximum(x, n), one * n, ops.clamp(x, 0, n)]

        graph = elementwise(build, spec(5, dtype=dtype), spec(dtype=dtype), number)
        program, _ = captured(graph)
        x = torch.arange(5).to({v: k for k, v in FROM.items()}[dtype])
        for n in (3, 2, 100) if dtype.is_int else (0.1, -1.7, 1e-3):
            outputs, expected = program(x, x[3], n), interpret(graph, LibTorch(), [x, x[3].clone(), n])
            assert program.splits == ()
            half = dtype in (DType.F16, DType.BF16)
            for y, z in zip(outputs, expected, strict=True):
                # on a CPU torch rounds a number to a half type before it computes, on a GPU after, as we do
                rtol, atol = (2 * torch.finfo(y.dtype).eps, 1e-2) if half else (0.0, 0.0)
                torch.testing.assert_close(y, z, rtol=rtol, atol=atol)


def test_comparisons_powers_and_tensors_made_of_numbers() -> None:
    def build(x: Any, n: Any) -> list[Any]:
        filled = ops.full.run(x.backend, Value, (n,), {"shape": (2, 2), "dtype": DType.F32, "place": "cpu"})
        steps = ops.arange.run(x.backend, Value, (n, 2), {"length": 3, "dtype": DType.F32, "place": "cpu"})
        return [
            ops.greater(x, n), ops.lower(n, x), ops.equal(x, n), ops.mask_where(x, ops.greater(x, n), n), filled, steps,
            ops.clamp(x, n, 2.0), ops.minimum(n, x), x / n, n / x, ops.remainder(x, n), ops.fmod(x, n), ops.pow(x, n),
        ]  # fmt: skip

    graph = elementwise(build, spec(6), FLOAT_NUMBER)
    program, _ = captured(graph)
    x = torch.tensor([-1.5, 0.5, 1.0, 2.0, 3.25, torch.nan])
    for n in (1.0, 0.5, -2.0):
        for y, z in zip(program(x, n), interpret(graph, LibTorch(), [x, n]), strict=True):
            torch.testing.assert_close(y, z, equal_nan=True)
    assert program.splits == ()


def test_arithmetic_on_numbers_is_the_host_s_in_double() -> None:
    def build(x: Any, t: Any) -> list[Any]:
        rate = 1.0 - 0.9**t
        return [x * rate, rate, t + 1]

    program, _ = captured(elementwise(build, spec(2, dtype=DType.F64), INT_NUMBER))
    for t in (1, 2, 50):
        y, rate, after = program(torch.ones(2, dtype=torch.float64), t)
        assert (rate, after) == (1.0 - 0.9**t, t + 1)
        assert y.tolist() == [rate, rate]


def test_signed_zeros_and_numbers_past_float32() -> None:
    program, _ = captured(elementwise(lambda x, n: [x * n], spec(1), FLOAT_NUMBER))
    x = torch.ones(1)
    assert [str(program(x, n)[0].item()) for n in (0.0, -0.0, 1e300, -1e300)] == ["0.0", "-0.0", "inf", "-inf"]


def test_more_calls_than_the_ring_has_rows() -> None:
    program, _ = captured(elementwise(lambda x, n: [x * n], spec(1), FLOAT_NUMBER))
    assert [program(torch.ones(1), float(n))[0].item() for n in range(200)] == list(range(200))


def test_an_integer_that_the_type_cannot_hold_is_refused_as_in_eager_code() -> None:
    program, _ = captured(elementwise(lambda x, n: [x + n], spec(2, dtype=DType.I32), INT_NUMBER))
    x = torch.tensor([1, 2], dtype=torch.int32)
    assert program(x, 5)[0].tolist() == [6, 7]
    with pytest.raises(ArgumentError, match=r"(?s)add: a number does not fit.*2147483648.*from -2147483648.*cast"):
        program(x, 2**31)
    assert program(x, 6)[0].tolist() == [7, 8]


def test_numbers_that_no_slot_holds_are_checked_and_not_copied() -> None:
    """A fused kernel may check a number that it does not read, such as the value of padding by nothing."""
    trace, seen = Trace(), []
    number = trace.input(FLOAT_NUMBER)
    pack = Pack((0,), lambda n: seen.append(n) or [], ())
    plan: Any = SimpleNamespace(numbers=trace.graph([number]), number_ids=(0,), packs=(pack,), slots={})
    machine: Any = SimpleNamespace(device=torch.device("cpu"))
    block = NumberBlock(plan, machine)
    for n in (1.5, 2.5, 1.5):
        assert block.fill([n]) == {0: n}
    assert (seen, block.slots) == ([1.5, 2.5, 1.5], {})


def test_a_key_draws_what_eager_code_draws() -> None:
    def build(x: Any, key: Any) -> list[Any]:
        def drawn(row: Any, *numbers: Any, dtype: DType = DType.F32) -> Any:
            return row.run(x.backend, Value, (*numbers, key, 7), {"shape": (5, 3), "dtype": dtype, "place": "cpu"})

        bits = ops.random_bits.run(x.backend, Value, (key, 2**64 - 1), {"shape": (9,), "place": "cpu"})
        return [
            ops.dropout(x, 0.3, key, 2**63 - 1), drawn(ops.dropout_mask, 0.5), drawn(ops.bernoulli, 0.2), bits,
            drawn(ops.uniform, -1.0, 2.0), drawn(ops.normal, 0.5, 2.0), drawn(ops.randint, -3, 9, dtype=DType.I64),
        ]  # fmt: skip

    graph = elementwise(build, spec(7, 3), INT_NUMBER)
    program, _ = captured(graph)
    x = torch.linspace(-2, 2, 21).reshape(7, 3)
    for key in (0, fold(1, 2), -1, 2**64 - 1, 2**63):
        for y, z in zip(program(x, key), interpret(graph, LibTorch(), [x, key]), strict=True):
            assert torch.equal(y, z)
    assert program.splits == ()


@pytest.mark.parametrize("nesterov", [False, True])
def test_gradient_descent_with_numbers_on_the_device(nesterov: bool) -> None:
    def build(p: Any, g: Any, v: Any, lr: Any, share: Any) -> list[Any]:
        plain = ops.sgd_update(lr, 0.1, p, g)
        lion = ops.lion_update(lr, 0.9, 0.99, 0.2, p, g, v)
        return [*plain, *lion, *ops.momentum_update(lr, 0.2, 0.9, share, p, g, v, nesterov=nesterov)]

    for dtype in (DType.F32, DType.F64):
        graph = elementwise(build, *[spec(4, 3, dtype=dtype)] * 3, FLOAT_NUMBER, FLOAT_NUMBER)
        program, _ = captured(graph)
        kind = torch.float32 if dtype is DType.F32 else torch.float64
        p, g, v = torch.randn(3, 4, 3, generator=torch.Generator().manual_seed(1)).to(kind)
        for lr, share in ((0.1, 1.0), (0.01, 0.7)):
            outputs, expected = program(p, g, v, lr, share), interpret(graph, LibTorch(), [p, g, v, lr, share])
            torch.testing.assert_close(list(outputs), expected)
        assert program.splits == ()
