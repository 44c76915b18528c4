"""Tensors of different ranks that are broadcast against each other: one notice a line, at the user's line."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from burn_torch import BroadcastWarning, Device, Tensor, compile, per_sample_grad
from burn_torch.tensor import activation

CPU = Device.cpu()
AD = CPU.autodiff()


def made(*shape: int, device: Device = CPU) -> Tensor:
    return Tensor.from_data(np.random.default_rng(0).normal(size=shape).astype("f4"), device)


def noticed(run: Callable[[], Any]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return [w for w in caught if w.category is BroadcastWarning]


@pytest.mark.parametrize(
    "run",
    [
        lambda a, b: a == b,
        lambda a, b: a != b,
        lambda a, b: a < b,
        lambda a, b: b - a,
        lambda a, b: a * b,
        lambda a, b: a / b,
        lambda a, b: a.sub(b),
        lambda a, b: a.equal(b),
        lambda a, b: a.max_pair(b),
        lambda a, b: a.argmax(1) == b.int(),
        lambda a, b: a.is_close(b),
        lambda a, b: a.mask_fill(b > 0.0, 0.0),
        lambda a, b: a.mask_where(a > 0.0, b),
    ],
)
@pytest.mark.parametrize("devices", [(CPU, CPU), (AD, AD), (AD, CPU)])
def test_pairs_where_one_of_each_was_meant_are_noticed(run: Callable[..., Any], devices: tuple[Device, Device]) -> None:
    a, b = made(5, 1, device=devices[0]), made(5, device=devices[1])
    warnings = noticed(lambda: run(a, b))
    assert len(warnings) == 1
    assert warnings[0].filename == __file__
    text = str(warnings[0].message)
    assert all(
        part in text for part in ("given: ", "(5, 5)", "expected: ", "mend: ", "squeeze_dim", "unsqueeze_dim(0)")
    )


def test_more_axes_are_noticed_too() -> None:
    assert len(noticed(lambda: made(4, 3, 1) * made(3))) == 1
    assert len(noticed(lambda: made(4, 4, 1) - made(4, 4))) == 1


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((5, 3), (3,)),
        ((3,), (5, 3)),
        ((5, 1), (1,)),
        ((5, 1), (1, 5)),
        ((5, 1), (5, 1)),
        ((7, 1), (4,)),  # positions by frequencies
        ((2, 5, 3), (5, 3)),
        ((2, 5, 3), (5, 1)),
        ((2, 5, 3), (1, 3)),
        ((2, 1, 5, 3), (5, 3)),
        ((5,), ()),
        ((5, 1), ()),
        ((1, 1), (1,)),
        ((0, 1), (0,)),
    ],
)
def test_a_smaller_tensor_beside_a_larger_one_is_not_noticed(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    assert noticed(lambda: (made(*left) + made(*right), made(*left) == made(*right))) == []
    assert noticed(lambda: (made(*left) + 1.0, 2 - made(*left))) == []


def test_one_notice_a_line() -> None:
    def loop() -> None:
        for n in (3, 4, 5, 5, 4, 3):
            _ = made(n, 1) == made(n)

    warnings = noticed(loop)
    assert [w.lineno for w in warnings] == [inspect.getsourcelines(loop)[1] + 2]

    def two_lines() -> None:
        _ = made(3, 1) == made(3)
        _ = made(3, 1) == made(3)

    assert len(noticed(two_lines)) == 2


def test_the_category_is_filtered_as_any_other() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BroadcastWarning)
        _ = made(3, 1) == made(3)
    for _again in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error", BroadcastWarning)
            with pytest.raises(BroadcastWarning, match="different ranks"):
                made(3, 1).equal(made(3))


def test_a_compiled_function_notices_when_it_is_traced() -> None:
    def wrong(a: Tensor, b: Tensor) -> Tensor:
        return (a - b).square().mean()

    run = compile(wrong)
    a, b = made(6, 1), made(6)
    warnings = noticed(lambda: (run(a, b), run(a, b)))
    assert [(w.filename, w.lineno) for w in warnings] == [(__file__, inspect.getsourcelines(wrong)[1] + 1)]


def test_functions_of_the_library_are_quiet() -> None:
    def run() -> None:
        Tensor.tril_mask((4, 4), 0, CPU)
        Tensor.triu_mask((3, 3), 1, CPU)
        Tensor.diag_mask((3, 3), 0, CPU)
        activation.softmax(made(4, 4), 1)
        made(4, 4).abs().categorical(4)
        per_sample_grad(lambda w, x: (w * x).sum())(made(3), made(3, 3))

    assert noticed(run) == []


@pytest.mark.parametrize(
    "shapes", [((5, 1), (5,)), ((5,), (5, 1)), ((5, 1), (1, 5)), ((2, 3), (3,)), ((1,), (5,)), ((0,), (1,))]
)
def test_all_close_of_other_shapes_is_noticed(shapes: Any) -> None:
    x, y = (Tensor.zeros(shape, CPU) for shape in shapes)
    warnings = noticed(lambda: x.all_close(y))
    assert [w.filename for w in warnings] == [__file__]
    for part in ("all_close: tensors of different shapes", f"given:    {shapes[0]} and {shapes[1]}", "squeeze_dim"):
        assert part in str(warnings[0].message)


def test_all_close_of_one_shape_or_with_a_number_says_nothing() -> None:
    x = Tensor.zeros((5, 2), CPU)
    assert not noticed(lambda: (x.all_close(x), x.all_close(Tensor.zeros((1,), CPU)), x[:1, :1].all_close(x[0, 0])))
