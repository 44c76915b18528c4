"""cat, pad and slice_assign inside of Triton kernels, under the interpreter, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")

from burn_torch.backend import LibTorch  # after the check for triton
from burn_torch.backend.libtorch.generated.triton_kernels import FusedKernel
from burn_torch.core.dtype import DType
from burn_torch.core.spec import FLOAT_NUMBER, NumberSpec, TensorSpec
from burn_torch.fusion import plan_of
from burn_torch.fusion.body import needs
from burn_torch.fusion.rows.row import body_of
from burn_torch.fusion.triton import lowering
from tests.fusion.checking import agree, in_float64, made
from tests.fusion.programs import row, tensor, traced
from tests.fusion.regions import REGIONS


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16], ids=str)
@pytest.mark.parametrize("name", REGIONS)
def test_values(name: str, dtype: DType, seed: np.random.Generator) -> None:
    function, specs, _ = REGIONS[name]
    typed = [s.with_dtype(dtype) if isinstance(s, TensorSpec) and s.dtype.is_float else s for s in specs]
    plan = plan_of(traced(function, typed))
    (body,) = [body_of(node.call.attrs["body"]) for node in plan.graph.nodes if "body" in node.call.attrs]
    inputs = made([spec for _, spec in body.inputs], seed)
    agree(FusedKernel(body, strict=False)(*inputs), in_float64(body, inputs))


def test_rows_in_steps(seed: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "LONGEST_ROW", 8)

    def function(x: Any, y: Any) -> Any:
        z = row("pad")(row("cat")(x, y, dim=1), -1.0, padding=((0, 0), (1, 2)), mode="constant")
        return row("softmax")(z, dim=1)

    body = traced(function, [tensor(3, 30), tensor(3, 11)])
    inputs = made([spec for _, spec in body.inputs], seed)
    opened = plan_of(traced(lambda x, y: function(x, y) * 2.0, [tensor(3, 30), tensor(3, 11)]))
    (inner,) = [body_of(node.call.attrs["body"]) for node in opened.graph.nodes if "body" in node.call.attrs]
    assert not lowering.lower(inner).whole_rows
    agree(FusedKernel(inner, strict=False)(*inputs), [y * 2.0 for y in in_float64(body, inputs)])


def test_inputs_that_are_strided(seed: np.random.Generator) -> None:
    body = traced(lambda x, y: row("cat")(x, y * 2.0, dim=0) + 1.0, [tensor(5, 4), tensor(3, 4)])
    x, y = made([tensor(4, 5), tensor(3, 8)], seed)
    inputs = [x.t(), y[:, ::2]]
    agree(FusedKernel(body, strict=False)(*inputs), in_float64(body, inputs))


@pytest.mark.parametrize(
    ("dtype", "number"),
    [(DType.F32, 0.5), (DType.BF16, 0.5), (DType.I64, 7), (DType.F32, FLOAT_NUMBER), (DType.BF16, FLOAT_NUMBER)],
    ids=str,
)
def test_a_border_around_nothing_is_a_number_everywhere(dtype: DType, number: Any, seed: np.random.Generator) -> None:
    """All other regions are empty: of a whole kernel, and beside a reduction."""
    specs = [number] if isinstance(number, NumberSpec) else []

    def padded(x: Any, *numbers: Any) -> Any:
        with_border = row("pad")(x, *(numbers or [number]), padding=((1, 2), (0, 0)), mode="constant")
        return row("cat")(with_border, x, dim=0), row("sum")(with_border + with_border, dims=(0,))

    body = traced(padded, [tensor(0, 4, dtype=dtype), *specs])
    inputs = [*made([tensor(0, 4, dtype=dtype)], seed), *([1.25] if specs else [])]
    alone = traced(lambda *values: padded(*values)[0], [tensor(0, 4, dtype=dtype), *specs])
    agree(FusedKernel(alone, strict=False)(*inputs), in_float64(alone, inputs))
    agree(LibTorch().program(plan_of(body).graph).run(*inputs), in_float64(body, inputs))
