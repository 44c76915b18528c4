"""Gradients of element-wise rows of one operand in f16, where squares leave the range and the gradients do not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from burn_torch import Device, DType, Tensor, vjp
from burn_torch.ops import REGISTRY
from burn_torch.ops.samples import normalise

CPU = Device.cpu(fused=False)
SIZES = np.array([0.02, 0.5, 3.0, 20.0, 100.0, 255.0, 257.0, 625.0, 3000.0, 30_000.0])
X = np.concatenate([SIZES, -SIZES]).astype(np.float16).astype(np.float64)


def _of_one_operand() -> list[str]:
    rows = [row for row in REGISTRY.values() if row.pointwise and not (row.random or row.nondifferentiable)]
    return [
        row.name for row in rows if "::" not in row.name and sum(map(callable, normalise(row.samples)[0].inputs)) == 1
    ]


def _gradient(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    y, pull = vjp(function, x)
    return pull(y.new_full(y.shape, 1.0))[0]


@pytest.mark.parametrize("name", _of_one_operand())
def test_gradients_of_large_halves(name: str) -> None:
    row = REGISTRY[name]
    sample = normalise(row.samples)[0]

    def run(x: Tensor) -> Tensor:
        return row(*[x if callable(i) else i for i in sample.inputs], **sample.attrs)

    with np.errstate(all="ignore"):
        wide = Tensor.from_data(X, CPU)
        half = wide.cast(DType.F16)
        if not run(half).dtype.is_float:
            pytest.skip("a cast to whole numbers")
        inside = np.isfinite(run(wide).into_data().values)
        for first in (lambda f: lambda x: _gradient(f, x), lambda f: lambda x: _gradient(lambda x: _gradient(f, x), x)):
            truth = first(run)(wide).into_data().values
            compared = inside & np.isfinite(truth) & (np.abs(truth) < 6e4)
            grad = first(run)(half).cast(DType.F64).into_data().values
            np.testing.assert_allclose(grad[compared], truth[compared], rtol=0.05, atol=2e-4)
