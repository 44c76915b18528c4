"""Random programs: fused and unfused against float64, forward and gradients.

Sizes 0, 1, ragged and large; views, broadcasts, reductions, joined and padded values; floats, half types, integers and
booleans side by side.  Every program runs as it is planned, in place where that is legal, and leaves its inputs alone.
BURN_TORCH_SLOW=1 takes 300 of each.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

pytest.importorskip("triton")

from burn_torch.backend import LibTorch  # after the check for triton
from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion import plan_of
from burn_torch.graph.interpreter import interpret
from burn_torch.graph.verifier import verify
from tests.fusion.checking import in_float64, made
from tests.fusion.programs import traced
from tests.fusion.random_recipes import Recipe, cooked, recipes, specs_of

pytestmark = pytest.mark.filterwarnings(
    "ignore:(invalid value|overflow|divide by zero) encountered:RuntimeWarning"
)  # in lanes that are masked

SLOW = os.environ.get("BURN_TORCH_SLOW") == "1"
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # a smaller program is not worth the minutes it takes to find


def largest(values: Sequence[torch.Tensor]) -> float:
    return max([float(y.double().abs().max()) for y in values if y.numel()], default=1.0)


@settings(max_examples=300 if SLOW else 50, deadline=None, phases=PHASES)
@given(recipes(), st.integers(0, 2**32 - 1))
def test_forward(recipe: Recipe, number: int) -> None:
    inputs, steps = recipe
    specs = specs_of(inputs)
    graph = traced(lambda *xs: cooked(steps, xs), specs)
    given_ = made(specs, np.random.default_rng(number))
    before = [x.clone() for x in given_]
    planned = plan_of(graph)
    verify(planned.graph)
    exact = in_float64(graph, given_)
    outputs = LibTorch().program(planned.graph).run(*given_)
    unfused = interpret(graph, LibTorch(), before)
    for given_to, kept in zip(given_, before, strict=True):
        assert torch.equal(given_to, kept), "an input was written to"
    types = {spec.dtype for spec in graph.specs().values() if isinstance(spec, TensorSpec)}
    judged(outputs, unfused, exact, max(STEP[dtype] for dtype in types if dtype in STEP) if types & set(STEP) else 0.0)


STEP = {DType.F32: 2.0**-23, DType.F16: 2.0**-10, DType.BF16: 2.0**-7}
"""Between 1 and the next number."""


def judged(
    actual: Sequence[torch.Tensor], unfused: Sequence[torch.Tensor], exact: Sequence[torch.Tensor], step: float
) -> None:
    """Errors of at most twice those of unfused execution, and of what a few roundings give; integers are equal.

    step: of the coarsest type on the way.  Sums in another order differ by more roundings in float32 than there are in
    half types, which kernels round less often than unfused execution does.
    """
    few = 64 if step == STEP[DType.F32] else 4
    scale = max(largest(exact), largest(unfused), 1.0)
    for y, plain, z in zip(actual, unfused, exact, strict=True):
        assert y.dtype is plain.dtype
        assert y.shape == z.shape
        if not y.is_floating_point():
            assert torch.equal(y, plain)
            continue
        assert torch.equal(y.isnan(), plain.isnan())
        error, allowed = (errors(x, z) for x in (y, plain))
        assert error <= 2 * allowed + few * step * scale, (error, allowed, few * step * scale)


def errors(y: torch.Tensor, z: torch.Tensor) -> float:
    return float((y.double() - z.double()).nan_to_num(0.0, 0.0, 0.0).abs().max()) if y.numel() else 0.0


@settings(max_examples=300 if SLOW else 15, deadline=None, phases=PHASES)
@given(recipes([DType.F32]), st.integers(0, 2**32 - 1))
def test_gradients(recipe: Recipe, number: int) -> None:
    from burn_torch import Device, Tensor, compile, vjp

    inputs, steps = recipe
    plain = Device.cpu()
    given_ = made(specs_of(inputs), np.random.default_rng(number))

    def pulled(*xs: Tensor) -> Any:
        ys, pull = vjp(lambda *values: cooked(steps, values, casts=False), *xs)
        return pull(tuple(y * 0.5 + 1.0 for y in ys))

    def on_plain(inputs_: Sequence[torch.Tensor]) -> list[Tensor]:
        return [Tensor.from_torch(x, plain) for x in inputs_]

    exact = [g.into_torch() for g in pulled(*on_plain([x.double() for x in given_]))]
    unfused = [g.into_torch() for g in pulled(*on_plain(given_))]
    fused = [g.into_torch() for g in compile(pulled, fuse=True)(*on_plain(given_))]
    judged(fused, unfused, exact, STEP[DType.F32])
