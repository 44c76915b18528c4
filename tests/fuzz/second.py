"""Doors of second gradients: tape over tape, as one program, and on other devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from burn_torch import Device, DType, Tensor, compile
from burn_torch.core.data import TensorData
from tests.fuzz.case import PLAIN, Case, Outcome, data_of, first_by_vjp, second_by_transforms, skip
from tests.fuzz.differences import along, is_double, pins_of, weighted

__all__ = ["second", "second_compiled", "second_eager"]


def second(case: Case) -> Outcome:
    """Tape over tape on devices; in float64 the transforms are compared with differences too."""
    if not case.second or not case.differentiates:
        return skip("one program in ten")
    program = case.program
    differences = case.second_judge.differences(_second_by_devices(case))
    if differences:
        return Outcome(tuple(f"by devices: {words}" for words in differences))
    if not is_double(case):
        return Outcome()
    pins, upstream = pins_of(program), case.upstream_on(PLAIN)

    def value(xs: Sequence[Tensor]) -> float:
        results = first_by_vjp(program, xs, program.numbers, upstream, lambda n, y: pins[n])
        return weighted(data_of(results[len(program.outputs) :]), [w.values for w in case.weights])

    return along(case, value, lambda case: case.second_judge, slice(len(program.wanted)), "second gradient")


def _second_by_devices(case: Case) -> list[TensorData | None]:
    program = case.program
    inner = PLAIN.autodiff()
    low = program.tensors(inner)
    fed = [Tensor.from_inner(x) for x in low]
    for i in program.wanted:
        low[i] = low[i].require_grad()
        fed[i] = Tensor.from_inner(low[i]).require_grad()
    ys = program(fed, program.numbers)
    seeds = [None if g is None else Tensor.from_data(g, inner).require_grad() for g in case.upstream]
    loss: Tensor | None = None
    for y, g in zip(ys, seeds, strict=True):
        if g is not None and y.backend.is_tracked(y.primitive):  # type: ignore[attr-defined]  # a tape
            part = (y * Tensor.from_inner(g)).cast(DType.F64).sum()
            loss = part if loss is None else loss + part
    nothing: list[TensorData | None] = [None] * (len(program.wanted) + sum(g is not None for g in seeds))
    if loss is None:
        return nothing
    gradients = loss.backward()
    total: Tensor | None = None
    for i, w in zip(program.wanted, case.weights_on(inner), strict=True):
        first = fed[i].grad(gradients)
        if first is not None and first.backend.is_tracked(first.primitive):  # type: ignore[attr-defined]  # a tape
            part = (first * w).cast(DType.F64).sum()
            total = part if total is None else total + part
    if total is None:
        return nothing
    again = total.backward()
    return data_of([*[low[i].grad(again) for i in program.wanted], *[g.grad(again) for g in seeds if g is not None]])


def second_compiled(case: Case, device: Device = PLAIN, **options: Any) -> Outcome:
    """Second gradients as one program."""
    if not case.second or not case.differentiates:
        return skip("one program in ten")
    program = case.program

    def function(xs: list[Tensor], numbers: list[Any], upstream: list[Any], weights: list[Tensor]) -> Any:
        return second_by_transforms(program, xs, numbers, upstream, weights)

    results = compile(function, **options)(
        program.tensors(device), list(program.numbers), case.upstream_on(device), case.weights_on(device)
    )
    return Outcome(tuple(case.second_judge.differences(data_of(results))))


def second_eager(case: Case, device: Device) -> Outcome:
    """Second gradients by nested transforms on another device."""
    if not case.second or not case.differentiates:
        return skip("one program in ten")
    return Outcome(tuple(case.second_judge.differences(case.second_on(device))))
