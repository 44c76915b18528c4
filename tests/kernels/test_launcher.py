"""The one launcher: what it compares of a call's tensors, and where the reference computes."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor

from burn_kernels import (
    KernelArgumentError,
    KernelDeviceError,
    KernelDTypeError,
    KernelShapeError,
    attention,
    convolution,
    cross_entropy,
    linear_cross_entropy,
    matmul,
    reduce,
    rope,
    softmax,
)
from burn_kernels.autotune.trial import Trial
from burn_kernels.launch import H200, recording
from burn_kernels.launcher import Shapes, launcher

CUBES, ROWS, LOSS, CLASSES = torch.ones(1, 2, 2, 2), torch.ones(2, 3), torch.ones(2), torch.arange(2)
NORM = "dy as x, x (*batch, cols), w (cols); mean (*batch, 1), first (2)"


def tensors(**changes: Any) -> list[torch.Tensor | None]:
    """The tensors of a call that fits NORM, with changes."""
    x = torch.zeros(3, 4, 5)
    call = {"dy": x, "x": x, "w": torch.zeros(5), "mean": torch.zeros(3, 4, 1).double(), "first": torch.zeros(2).int()}
    return list((call | changes).values())


@pytest.mark.parametrize("absent", ["none", "dy", "w", "mean", "first"])
def test_tensors_of_the_table_fit(absent: str) -> None:
    assert Shapes(NORM).fit(tensors(**({} if absent == "none" else {absent: None})))


@pytest.mark.parametrize(
    ("name", "wrong", "error", "message"),
    [
        (
            "dy",
            torch.zeros(3, 4, 6),
            KernelShapeError,
            r"(?s)toy: dy has another shape.*dy \(3, 4, 6\).*dy \(3, 4, 5\)",
        ),
        ("w", torch.zeros(4), KernelShapeError, r"(?s)toy: w has another shape.*w \(4,\).*w \(5,\).*belong together"),
        ("mean", torch.zeros(4, 1), KernelShapeError, r"(?s)toy: mean has.*mean \(4, 1\).*mean \(3, 4, 1\)"),
        ("first", torch.zeros(3), KernelShapeError, r"(?s)toy: first has.*first \(3,\).*first \(2,\)"),
        ("w", torch.zeros(5).half(), KernelDTypeError, r"(?s)toy: the element types.*float16.*one float type.*x\.to"),
        ("x", torch.zeros(()), KernelShapeError, r"(?s)toy: the input has no axis.*x \(\).*cols.*unsqueeze"),
    ],
)
def test_one_tensor_that_does_not_fit_is_refused(
    name: str, wrong: torch.Tensor, error: type[Exception], message: str
) -> None:
    shapes, call = Shapes(NORM), tensors(**{name: wrong})
    assert not shapes.fit(call)
    with pytest.raises(error, match=message):
        shapes.refuse("toy", call)


@pytest.mark.parametrize("annotation", ["torch.Tensor | None", "Tensor | None"])
def test_tensors_beside_the_table_come_by_position_however_they_are_annotated(annotation: str) -> None:
    seen: list[tuple[object, ...]] = []

    def toy(x: Tensor, rest: Any = None) -> Tensor:
        return x

    toy.__annotations__["rest"] = annotation
    run = launcher("toy", "x", reference=toy, options=lambda op, *args: seen.append(args))(toy)
    run(CUBES, rest=ROWS)
    assert len(seen[0]) == 2


def test_axes_may_stand_before_and_behind_the_starred_one() -> None:
    shapes = Shapes("x (batch, channels, *space); w (channels), rest (batch, *space)")
    x = torch.zeros(2, 3, 4, 5)
    assert shapes.fit([x, torch.zeros(3), torch.zeros(2, 4, 5)])
    assert not shapes.fit([x, torch.zeros(2), None])
    assert not shapes.fit([x, None, torch.zeros(2, 3, 4)])


def require_even(op: str, x: torch.Tensor, n: int, **_: object) -> None:
    if n % 2:
        raise KernelArgumentError(f"{op}: odd", given=f"n {n}", expected="an even number", mend="add one")


@launcher("toy", "x (*batch, cols)", reference=lambda x, n: x + n, options=require_even)
def toy(x: torch.Tensor, n: int, *, config: object = None) -> torch.Tensor:
    """Marks that kernels would run."""
    return torch.full_like(x, -1.0)


def test_the_reference_computes_where_no_kernel_runs() -> None:
    x = torch.ones(2, 3)
    assert torch.equal(toy(x, 4, config="unused"), x + 4)
    assert torch.equal(toy(n=2, x=x), x + 2)  # by name too
    with recording(H200):
        assert torch.equal(toy(x, 4), -x)


@pytest.mark.parametrize("kernels", [False, True])
def test_both_are_refused_the_same_arguments(kernels: bool) -> None:
    def call(x: torch.Tensor, n: int) -> object:
        if not kernels:
            return toy(x, n)
        with recording(H200):
            return toy(x, n)

    with pytest.raises(KernelArgumentError, match=r"(?s)toy: odd.*n 3.*an even number.*add one"):
        call(torch.ones(2, 3), 3)
    with pytest.raises(KernelDTypeError, match=r"(?s)toy: the element types.*int64.*one float type for x.*x\.to"):
        call(torch.ones(2, 3, dtype=torch.int64), 2)
    with pytest.raises(KernelArgumentError, match=r"(?s)toy: there is no x.*None.*a tensor x \(\*batch, cols\)"):
        call(None, 2)  # type: ignore[arg-type]  # that is the fault


@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        ((), {"n": 2}, r"^toy\(\) missing 1 required positional argument: 'x'"),
        ((torch.ones(1, 1),), {}, r"^toy\(\) missing 1 required positional argument: 'n'"),
        ((torch.ones(1, 1), 2), {"m": 3}, r"^toy\(\) got an unexpected keyword argument 'm'"),
        ((torch.ones(1, 1), 2, 3), {}, r"^toy\(\) takes 2 positional arguments but 3 were given"),
    ],
)
def test_arguments_that_do_not_fit_the_function_are_refused_under_its_name(
    args: tuple[Any, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        toy(*args, **options)


def test_a_reference_that_takes_more_hides_no_mistake() -> None:
    @launcher("loose", "x (*batch, cols)", reference=lambda x, **others: x)
    def loose(x: torch.Tensor, *, config: object = None) -> torch.Tensor:
        return x

    with pytest.raises(TypeError, match=r"loose\(\) got an unexpected keyword argument 'm'"):
        loose(torch.ones(1, 1), m=3)  # type: ignore[call-arg]  # that is the fault


@pytest.mark.parametrize("back", [reduce.var_backward, reduce.logsumexp_backward, reduce.extreme_backward])
def test_tensors_may_be_called_by_the_names_of_the_function(back: Any) -> None:
    dy, x = torch.ones(4), torch.randn(4, 8)
    third = x.amax(1)
    kept = {list(inspect.signature(back).parameters)[2]: third}
    torch.testing.assert_close(back(dy, x=x, dim=1, **kept), back(dy, x, third, 1))


def test_rotations_back_may_be_called_by_the_names_of_their_gradients() -> None:
    dq, cos, sin = torch.randn(2, 5, 3, 8), torch.randn(16, 4), torch.randn(16, 4)
    torch.testing.assert_close(rope.backward(dq=dq, dk=None, cos=cos, sin=sin), rope.backward(dq, None, cos, sin))


def test_a_tensor_without_memory_lies_not_on_the_cpu() -> None:
    x = torch.ones(2, 3)
    with pytest.raises(KernelDeviceError, match="softmax backward: the tensors lie on different devices"):
        softmax.backward(x.to("meta"), x)


@pytest.mark.parametrize(
    ("function", "tensors"),
    [
        (convolution.forward, (CUBES, CUBES)),
        (attention.forward, (CUBES, CUBES, CUBES)),
        (linear_cross_entropy.forward, (ROWS, ROWS, CLASSES)),
        (linear_cross_entropy.backward, (LOSS, ROWS, ROWS, CLASSES)),
        (linear_cross_entropy.forward_with_gradient, (ROWS, ROWS, CLASSES)),
        (linear_cross_entropy.losses_with_gradient, (LOSS, ROWS, ROWS, CLASSES)),
        (cross_entropy.forward_with_gradient, (ROWS, CLASSES)),
        (cross_entropy.forward_with_gradient_, (ROWS, CLASSES)),
    ],
)
def test_an_option_that_no_table_of_options_has_is_refused_under_the_functions_name(
    function: Any, tensors: tuple[torch.Tensor, ...]
) -> None:
    with pytest.raises(TypeError, match=rf"^{function.__name__}\(\) got an unexpected keyword argument 'strid'"):
        function(*tensors, strid=2)


def test_an_option_of_other_losses_is_refused_too() -> None:
    with pytest.raises(TypeError, match=r"^losses_with_gradient\(\) got an unexpected keyword argument 'reduction'"):
        linear_cross_entropy.losses_with_gradient(LOSS, ROWS, ROWS, CLASSES, reduction="sum")  # type: ignore[call-arg]


def test_an_option_by_position_is_refused_under_the_functions_name() -> None:
    with pytest.raises(TypeError, match=r"^forward\(\) takes from 2 to 4 positional arguments but 5 were given"):
        matmul.forward(ROWS, ROWS, None, None, "gelu")  # type: ignore[call-arg]
    lse = torch.ones(1, 2, 2)
    with pytest.raises(TypeError, match=r"^backward\(\) takes 8 positional arguments but 9 were given"):
        attention.backward(CUBES, CUBES, CUBES, CUBES, None, None, CUBES, lse, True)  # type: ignore[call-arg]


def test_a_missing_tensor_without_axes_is_named_alone() -> None:
    with pytest.raises(KernelArgumentError, match=r"(?s)linear: there is no x.*expected: a tensor x\n"):
        matmul.forward(None, ROWS)  # type: ignore[arg-type]


def test_a_reference_is_told_no_config() -> None:
    def plain(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @launcher("toy", "x", reference=plain)
    def toy(x: torch.Tensor, *, config: object = None, weight_config: object = None) -> torch.Tensor:
        raise AssertionError("no kernel runs here")

    assert toy(torch.ones(2), config=1, weight_config=2).tolist() == [2.0, 2.0]


def test_a_trial_runs_a_launcher_beside_its_reference() -> None:
    trial = Trial.of(toy, torch.ones(2, 3), n=2)
    assert torch.equal(trial.run(trial.inputs, None), trial.reference(trial.inputs))
