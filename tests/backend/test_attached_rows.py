"""Rows along the last axis: what `burn_kernels` computes of them has the results of torch's candidates."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from burn_torch.backend import LibTorch
from burn_torch.backend.libtorch.attached.rows import ROWS
from burn_torch.backend.libtorch.attached.table import attached
from burn_torch.core.dtype import DType
from burn_torch.core.spec import FLOAT_NUMBER, TensorSpec
from burn_torch.ops.op import REGISTRY, Call
from burn_torch.ops.torch_types import TO_TORCH

OFFSETS = torch.tensor([0, 2, 2, 7])
"""Cuts of seven rows, one of no rows."""
SHORTER = torch.tensor([0, 3, 4, 6])
"""Cuts of six rows: keys of sequences that have other numbers of queries."""
VALUES: dict[str, dict[int, Any]] = {
    "grouped_matmul": {2: OFFSETS},
    "grouped_outer": {2: OFFSETS},
    "jagged_attention": {3: OFFSETS, 4: SHORTER},
    "jagged_attention_backward": {6: OFFSETS, 7: SHORTER},
}
"""Inputs that are not drawn, by their places."""


def call(name: str, dtype: DType, place: str = "cpu", **changes: Any) -> Call:
    def spec(*shape: int, of: DType = dtype) -> TensorSpec:
        return TensorSpec.of(shape, of, place)

    x, w, s = spec(3, 5, 17), spec(17), spec(3, 5, 1, of=DType.F32)
    rows, queries, keys = spec(7, 5), spec(7, 4, 8), spec(6, 2, 8)
    cuts, lse = spec(4, of=DType.I64), spec(4, 7, of=DType.F32)
    sequences = {"causal": True, "longest_query": 5, "longest_key": 3}
    specs: dict[str, tuple[list[Any], dict[str, Any]]] = {
        "softmax": ([x], {"dim": 2}),
        "softmax_backward": ([x, x], {"dim": 2}),
        "log_softmax": ([x], {"dim": 2}),
        "log_softmax_backward": ([x, x], {"dim": 2}),
        "layer_norm": ([x, w, w, FLOAT_NUMBER], {}),
        "layer_norm_backward": ([x, x, s, s, w], {"live": (True, True, True)}),
        "grouped_matmul": ([rows, spec(3, 5, 9), cuts], {}),
        "grouped_outer": ([rows, spec(7, 9), cuts], {}),
        "jagged_attention": ([queries, keys, keys, cuts, cuts, FLOAT_NUMBER, None], sequences),
        "jagged_attention_backward": (
            [queries, queries, keys, keys, queries, lse, cuts, cuts, FLOAT_NUMBER, None],
            sequences | {"live": (True, True, True)},
        ),
        "band_scan": ([spec(2, 4, 7), spec(2, 3, 3, 7)], {}),
        "log_band_scan": ([spec(2, 7), spec(2, 3, 3, 7)], {}),
        "quantized_linear": (
            [spec(3, 5, 8), spec(8, 17, of=DType.I8), spec(1, of=DType.F32), w],
            {"value": "Q8S", "per_word": 1, "size": 17, "block": (0, 0)},
        ),
        "rms_norm": ([x, w, FLOAT_NUMBER], {}),
        "rms_norm_backward": ([x, x, s, w], {"live": (True, True)}),
    }
    inputs, attrs = specs[name]
    return REGISTRY[name].bind(inputs, attrs | changes)


def drawn(spec: Any, device: str) -> Any:
    if isinstance(spec, TensorSpec):
        return (torch.rand(spec.shape) + 0.5).to(device, TO_TORCH[spec.dtype])
    return None if spec is None else 1e-3


def results(outcome: Any) -> list[torch.Tensor | None]:
    return list(outcome) if isinstance(outcome, (tuple, list)) else [outcome]


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16], ids=str)
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", sorted(ROWS))
def test_results_are_those_of_torch(name: str, device: str, dtype: DType) -> None:
    bound = call(name, dtype)
    torch.manual_seed(0)
    inputs = [drawn(spec, device) for spec in bound.specs]
    for place, value in VALUES.get(name, {}).items():
        inputs[place] = value.to(device)
    if name == "jagged_attention_backward":  # y and lse are those of a forward
        inputs[4:6] = LibTorch().execute(call("jagged_attention", dtype), [*inputs[1:4], *inputs[6:]])
    run = ROWS[name](bound)
    assert run is not None
    expected = results(LibTorch().execute(bound, inputs))
    actual = results(run(*inputs))
    for one, other, spec in zip(actual, expected, bound.results, strict=True):
        assert one is not None
        assert isinstance(spec, TensorSpec)
        assert (tuple(one.shape), one.dtype) == (spec.shape, TO_TORCH[spec.dtype])
        assert other is not None
        unit = 1e-5 if dtype is DType.F32 else 2e-2
        torch.testing.assert_close(one.double(), other.double(), rtol=unit, atol=unit)


@pytest.mark.parametrize("name", sorted(ROWS))
def test_what_kernels_do_not_take_is_left_to_torch(name: str) -> None:
    assert ROWS[name](call(name, DType.F32)) is not None
    assert attached(call(name, DType.F32)) is None  # on a CPU torch computes all of them
    if "soft" in name:
        assert ROWS[name](call(name, DType.F64)) is None
        assert ROWS[name](call(name, DType.F32, dim=0)) is None
    if "grouped" in name or name == "jagged_attention":
        assert ROWS[name](call(name, DType.F64)) is None
    if name == "jagged_attention_backward":
        assert ROWS[name](call(name, DType.F32, live=(False, True, False))) is not None
        assert ROWS[name](call(name, DType.F32, live=(False, False, False))) is None
    if "norm_backward" in name:
        live = call(name, DType.F32).attrs["live"]
        assert ROWS[name](call(name, DType.F32, live=(False, *live[1:]))) is None
