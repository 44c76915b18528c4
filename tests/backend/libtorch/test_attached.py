"""Functions attached to rows compute what the rows say; on the CPU, where kernels are their references."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from burn_torch import ops
from burn_torch.backend import LibTorch
from burn_torch.backend.libtorch.attached import table
from burn_torch.backend.libtorch.forms.numbers import RUN_TIME
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError
from burn_torch.core.spec import FLOAT_NUMBER, INT_NUMBER, TensorSpec
from burn_torch.ops.torch_types import FROM_TORCH

KEY, STREAM = 2**63 - 5, 11


def spec(x: torch.Tensor, place: str = "cpu") -> TensorSpec:
    return TensorSpec.of(tuple(x.shape), FROM_TORCH[x.dtype], place)


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def both(name: str, inputs: list[Any], attrs: dict[str, Any]) -> tuple[Any, Any]:
    """Returns the results of the attached function and of the row."""
    kinds = {int: INT_NUMBER, float: FLOAT_NUMBER}
    specs = [spec(x) if isinstance(x, torch.Tensor) else None if x is None else kinds[type(x)] for x in inputs]
    call = ops.REGISTRY[name].bind(specs, attrs)
    attached = table._ATTACHED[name](call)
    assert attached is not None
    return attached(*inputs), LibTorch().execute(call, inputs)[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("prob", [0.0, 0.3, 1.0])
def test_dropout_and_its_mask(dtype: torch.dtype, prob: float) -> None:
    actual, expected = both("dropout", [drawn(7, 33, dtype=dtype), prob, KEY, STREAM], {})
    assert torch.equal(actual, expected)
    attrs = {"shape": (5, 7), "dtype": FROM_TORCH[dtype], "place": "cpu"}
    actual, expected = both("dropout_mask", [prob, KEY, STREAM], attrs)
    assert actual.dtype == dtype
    assert torch.equal(actual, expected)


@pytest.mark.parametrize("dtype", [DType.BOOL, DType.F32, DType.F64, DType.I64])
def test_bernoulli(dtype: DType) -> None:
    actual, expected = both("bernoulli", [0.3, KEY, STREAM], {"shape": (41,), "dtype": dtype, "place": "cpu"})
    assert actual.dtype == expected.dtype
    assert torch.equal(actual, expected)


@pytest.mark.parametrize("name", ["dropout_mask", "bernoulli"])
def test_a_probability_out_of_range_is_refused(name: str) -> None:
    with pytest.raises(ArgumentError, match=r"(?s)probab.*1\.5"):
        both(name, [1.5, KEY, STREAM], {"shape": (3,), "dtype": DType.F32, "place": "cpu"})
    if name == "dropout_mask":
        with pytest.raises(ArgumentError, match=r"(?s)probab.*1\.5"):
            both("dropout", [drawn(3), 1.5, KEY, STREAM], {})


@pytest.mark.parametrize("pads", [(), (2,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_cross_entropy_and_its_gradient(pads: tuple[int, ...], dtype: torch.dtype) -> None:
    logits, targets, g = drawn(9, 5, dtype=dtype), torch.tensor([0, 1, 2, 3, 4, 2, 0, 4, 1]), drawn(9)
    actual, expected = both("cross_entropy", [logits, targets, None, None], {"pad_tokens": pads})
    torch.testing.assert_close(actual, expected)
    assert actual.dtype == torch.float32, "a loss of half types is float32"
    actual, expected = both("cross_entropy_backward", [g, logits, targets, None, None], {"pad_tokens": pads})
    torch.testing.assert_close(actual, expected)


def test_cross_entropy_with_weights_or_smoothing_is_torch_s() -> None:
    logits, targets, w = spec(drawn(9, 5)), TensorSpec.of((9,), DType.I64, "cpu"), spec(drawn(5))
    for weight, smoothing in ((w, None), (None, FLOAT_NUMBER)):
        call = ops.cross_entropy.bind((logits, targets, weight, smoothing), {"pad_tokens": ()})
        assert table._ATTACHED["cross_entropy"](call) is None
    call = ops.cross_entropy.bind((logits, targets, None, None), {"pad_tokens": (1, 2)})
    assert table._ATTACHED["cross_entropy"](call) is None


def test_sums_over_images_and_batch() -> None:
    for x in (drawn(6, 3, 5, 7), drawn(4, 3, 9), drawn(0, 3, 5, 7), drawn(6, 5, 7, 3).permute(0, 3, 1, 2)):
        dims = (0, *range(2, x.ndim))
        actual, expected = both("sum", [x], {"dims": dims})
        torch.testing.assert_close(actual, expected)
    call = ops.sum.bind((spec(drawn(3, 4)),), {"dims": (0,)})
    assert table._ATTACHED["sum"](call) is None


@pytest.mark.parametrize(("size", "counts"), [((24, 24), (8, 8)), ((6, 10), (6, 5)), ((4, 4), (1, 1))])
def test_pooling_in_bins_of_one_size(size: tuple[int, int], counts: tuple[int, int]) -> None:
    actual, expected = both("adaptive_avg_pool", [drawn(2, 3, *size)], {"output_size": counts})
    torch.testing.assert_close(actual, expected)
    actual, expected = both("adaptive_avg_pool_backward", [drawn(2, 3, *counts)], {"size": size})
    torch.testing.assert_close(actual, expected)
    assert actual.shape == expected.shape


def test_bins_that_overlap_are_torch_s() -> None:
    call = ops.adaptive_avg_pool.bind((spec(drawn(2, 3, 7, 8)),), {"output_size": (3, 4)})
    assert table._ATTACHED["adaptive_avg_pool"](call) is None
    call = ops.adaptive_avg_pool.bind((spec(drawn(2, 3, 9)),), {"output_size": (3,)})
    assert table._ATTACHED["adaptive_avg_pool"](call) is None


CONV_SETTINGS = {"stride": (2, 1), "padding": ((1, 1), (0, 0)), "dilation": (1, 2), "groups": 2}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_convolutions_of_few_channels(dtype: torch.dtype) -> None:
    x, w, b = drawn(3, 4, 9, 8, dtype=dtype), drawn(6, 2, 3, 2, dtype=dtype), drawn(6, dtype=dtype)
    for bias in (b, None):
        actual, expected = both("conv", [x, w, bias], CONV_SETTINGS)
        torch.testing.assert_close(actual, expected)
    g = drawn(*expected.shape, dtype=dtype)
    actual, expected = both("conv_input_gradient", [g, w], {"size": (9, 8), **CONV_SETTINGS})
    torch.testing.assert_close(actual, expected)
    actual, expected = both("conv_weight_gradient", [x, g], {"kernel": (3, 2), **CONV_SETTINGS})
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize(
    ("x", "w", "changes", "dtype"),
    [
        ((3, 4, 9), (6, 2, 3), {"stride": (1,), "padding": ((0, 0),), "dilation": (1,)}, DType.F32),
        ((3, 4, 9, 8), (6, 2, 3, 2), {"padding": ((1, 0), (0, 0))}, DType.F32),
        ((3, 4, 9, 8), (6, 2, 3, 2), {"padding": ((-1, -1), (0, 0))}, DType.F32),
        ((0, 4, 9, 8), (6, 2, 3, 2), {}, DType.F32),
        ((3, 4, 9, 8), (6, 2, 3, 2), {}, DType.F64),
        ((32, 64, 56, 56), (64, 64, 3, 3), {"groups": 1}, DType.F32),
    ],
    ids=["one axis", "other padding after", "cut off", "empty", "double", "many channels"],
)
def test_other_convolutions_are_torch_s(
    x: tuple[int, ...], w: tuple[int, ...], changes: dict[str, Any], dtype: DType
) -> None:
    attrs: dict[str, Any] = {**CONV_SETTINGS, "stride": (1, 1), "dilation": (1, 1), **changes}
    x_spec, w_spec = TensorSpec.of(x, dtype, "cuda:0"), TensorSpec.of(w, dtype, "cuda:0")
    call = ops.conv.bind((x_spec, w_spec, None), attrs)
    assert table.attached(call) is None
    y = call.result
    assert table.attached(ops.conv_input_gradient.bind((y, w_spec), {"size": x[2:], **attrs})) is None
    assert table.attached(ops.conv_weight_gradient.bind((x_spec, y), {"kernel": w[2:], **attrs})) is None


def test_nothing_is_attached_on_the_cpu_nor_in_double() -> None:
    assert table.attached(ops.dropout.bind((spec(drawn(3)), FLOAT_NUMBER, INT_NUMBER, INT_NUMBER), {})) is None
    double = spec(drawn(3, dtype=torch.float64), "cuda:0")
    assert table.attached(ops.dropout.bind((double, FLOAT_NUMBER, INT_NUMBER, INT_NUMBER), {})) is None


def test_which_updates_the_kernel_takes() -> None:
    pytest.importorskip("triton")

    def form(
        *, place: str = "cuda:0", dtype: torch.dtype = torch.float32, cautious: bool = False, **numbers: Any
    ) -> Any:
        x = spec(drawn(3, dtype=dtype), place)
        call = ops.adam_update.bind(
            [*[FLOAT_NUMBER] * 6, INT_NUMBER, x, x, x, x], {"amsgrad": False, "cautious": cautious}
        )
        known = {"lr": RUN_TIME, "beta_1": 0.9, "beta_2": 0.99, "epsilon": 1e-8, "penalty": 0.0, "decay": 0.1,
                 "time": RUN_TIME} | numbers  # fmt: skip
        return table.device_form(call, [*known.values(), *[None] * 4])

    three = (DType.F32,) * 3
    assert form().dtypes == three
    assert form(cautious=True, decay=0.0).dtypes == three
    kept, rate, second = form().pack(0.5, 2)
    assert (kept, rate, second) == (1 - 0.05, 0.5 / (1 - 0.9**2), 1 / (1 - 0.99**2) ** 0.5)
    # torch's own, which read the learning rate and the time
    assert form(place="cpu").dtypes == (DType.F32, DType.F32)
    assert form(penalty=0.1, decay=0.0).dtypes == (DType.F32, DType.F32)
    assert form(cautious=True).dtypes == three
    assert form(dtype=torch.float64).dtypes == (DType.F64,) * 3
    assert form(beta_1=RUN_TIME) is None
