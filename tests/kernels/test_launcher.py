"""The one launcher: what it compares of a call's tensors, and where the reference computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from burn_kernels import KernelArgumentError, KernelDTypeError, KernelShapeError
from burn_kernels.autotune.trial import Trial
from burn_kernels.launch import H200, recording
from burn_kernels.launcher import Shapes, launcher

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
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        toy(n=2)  # type: ignore[call-arg]  # that is the fault


def test_a_trial_runs_a_launcher_beside_its_reference() -> None:
    trial = Trial.of(toy, torch.ones(2, 3), n=2)
    assert torch.equal(trial.run(trial.inputs, None), trial.reference(trial.inputs))
