"""Attention for which torch has no fused kernel: what `burn_kernels` computes of it has the results of the row."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from burn_torch.backend import LibTorch
from burn_torch.backend.libtorch.attached.attention import ATTENTIONS
from burn_torch.backend.libtorch.attached.table import attached
from burn_torch.core.dtype import DType
from burn_torch.core.spec import FLOAT_NUMBER, TensorSpec
from burn_torch.ops.op import REGISTRY, Call
from burn_torch.ops.torch_types import TO_TORCH

CASES: dict[str, dict[str, Any]] = {
    "softcap": {"softcap": True},
    "softcap, causal at the end": {"softcap": True, "causal": True, "offset": 9 - 7},
    "softcap, mask, bias": {"softcap": True, "mask": (2, 1, 1, 9), "bias": (4, 7, 9)},
    "shared heads, mask": {"kv_heads": 2, "mask": (1, 1, 7, 9)},
    "shared heads, causal": {"kv_heads": 1, "causal": True, "bias": (1, 9)},
    "5 columns": {"dim": 5, "mask": (2, 4, 7, 9)},
}


def call(
    name: str,
    case: str,
    dtype: DType = DType.F32,
    *,
    place: str = "cuda:0",
    **changes: Any,
) -> Call:
    """As it is bound for a GPU, whether there is one or not."""
    options: dict[str, Any] = {"kv_heads": 4, "dim": 8, "mask": None, "bias": None, "softcap": False}
    options |= {"causal": False, "offset": 0} | CASES[case] | changes
    dim, value_dim, shared = options["dim"], options.get("value_dim", options["dim"]), options["kv_heads"]

    def spec(*shape: int, of: DType = dtype) -> TensorSpec:
        return TensorSpec.of(shape, of, place)

    def added(what: str, of: DType) -> TensorSpec | None:
        return None if options[what] is None else spec(*options[what], of=of)

    q, k, v = spec(2, 4, 7, dim), spec(2, shared, 9, dim), spec(2, shared, 9, value_dim)
    y, lse = spec(2, 4, 7, value_dim), spec(2, 4, 7, of=DType.F64 if dtype is DType.F64 else DType.F32)
    rest = [added("mask", DType.BOOL), added("bias", dtype), FLOAT_NUMBER, FLOAT_NUMBER if options["softcap"] else None]
    attrs = {"causal": options["causal"], "offset": options["offset"]}
    if name == "attention":
        return REGISTRY[name].bind([q, k, v, *rest], attrs)
    live = options.get("live", (True,) * (3 if options["bias"] is None else 4))
    return REGISTRY[name].bind([y, q, k, v, y, lse, *rest], attrs | {"live": live})


def drawn(case: str, dtype: DType, device: str) -> list[Any]:
    """q, k, v, mask, bias, scale and softcap; the second query sees nothing where the mask has a line for each."""
    torch.manual_seed(0)
    inputs: list[Any] = []
    for spec in call("attention", case, dtype).specs:
        if not isinstance(spec, TensorSpec):
            inputs.append(None if spec is None else 0.7)
        elif spec.dtype is DType.BOOL:
            mask = torch.rand(spec.shape) < 0.4
            if spec.shape[-2] > 1:
                mask[..., 1, :] = True
            inputs.append(mask.to(device))
        else:
            inputs.append(torch.randn(spec.shape).to(device, TO_TORCH[spec.dtype]))
    return inputs


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16], ids=str)
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_the_row(case: str, device: str, dtype: DType) -> None:
    inputs = drawn(case, dtype, device)
    run, back = (ATTENTIONS[name](call(name, case, dtype)) for name in sorted(ATTENTIONS))
    assert run is not None
    assert back is not None
    wide = [x.cpu().double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs]
    wide = [x.cpu() if isinstance(x, torch.Tensor) else x for x in wide]
    exact = list(LibTorch().execute(call("attention", case, DType.F64, place="cpu"), wide))
    y, lse = run(*inputs)
    unit = 1e-5 if dtype is DType.F32 else 3e-2
    for one, other in zip((y, lse), exact, strict=True):
        torch.testing.assert_close(one.cpu().double(), other, rtol=unit, atol=unit)
    g = torch.randn_like(y)
    backward = call("attention_backward", case, DType.F64, place="cpu")
    expected = LibTorch().execute(backward, [g.cpu().double(), *wide[:3], *exact, *wide[3:]])
    for one, other in zip(back(g, *inputs[:3], y, lse, *inputs[3:]), expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert one.dtype == TO_TORCH[dtype]
            torch.testing.assert_close(one.cpu().double(), other, rtol=unit, atol=4 * unit)


def test_a_gradient_that_nobody_reads_is_not_given() -> None:
    case = "softcap, mask, bias"
    inputs = drawn(case, DType.F32, "cpu")
    run = ATTENTIONS["attention_backward"](call("attention_backward", case, live=(True, False, True, False)))
    assert run is not None
    y = torch.randn(2, 4, 7, 8)
    grads = run(y, *inputs[:3], y, torch.ones(2, 4, 7), *inputs[3:])
    assert [grad is None for grad in grads] == [False, True, False, True]


@pytest.mark.parametrize("name", sorted(ATTENTIONS))
def test_what_the_kernels_do_not_take_is_left_to_the_row(name: str) -> None:
    make = ATTENTIONS[name]
    assert make(call(name, "softcap")) is not None
    assert make(call(name, "softcap", DType.F64)) is None
    assert make(call(name, "softcap", value_dim=16)) is None
    assert make(call(name, "softcap", dim=264)) is None
    assert make(call(name, "softcap", causal=True, offset=1)) is None
    assert attached(call(name, "softcap", place="cpu")) is None
    # what torch's kernels compute is theirs: here the memory-efficient one, which takes masks
    assert make(call(name, "softcap", softcap=False, mask=(2, 1, 1, 9))) is None


def test_a_bias_whose_gradient_is_read_takes_the_kernels_and_others_torchs() -> None:
    case, make = "softcap", ATTENTIONS["attention_backward"]
    options: dict[str, Any] = {"softcap": False, "bias": (4, 7, 9)}
    assert make(call("attention_backward", case, **options)) is not None
    assert make(call("attention_backward", case, live=(True, True, True, False), **options)) is None
