"""Convolution, its transposes and unfold4d against torch.nn.functional over odd settings, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from burn_torch.core.dtype import DType
from burn_torch.core.errors import DTypeError, ShapeError
from burn_torch.core.spec import TensorSpec
from burn_torch.ops import REGISTRY
from tests.ops.window_cases import LEAVES, assert_close, by_torch, gradients, run

functional = torch.nn.functional
CONV = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
CONV_TRANSPOSE = {
    1: functional.conv_transpose1d,
    2: functional.conv_transpose2d,
    3: functional.conv_transpose3d,
}


@st.composite
def convolutions(draw: Any) -> dict[str, Any]:
    spatial = draw(st.sampled_from([1, 2, 2, 3]))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(spatial))

    groups = draw(st.integers(1, 3))
    return {
        "batch": draw(st.integers(0, 2)),
        "groups": groups,
        "channels_in": groups * draw(st.integers(1, 2)),
        "channels_out": groups * draw(st.integers(1, 2)),
        "size": each(1, 6 if spatial < 3 else 4),
        "kernel": each(1, 3),
        "stride": each(1, 3),
        "dilation": each(1, 2),
        "padding": tuple(zip(each(0, 2), each(0, 2), strict=True)),
        "bias": draw(st.booleans()),
    }


def padded_conv(x: Any, weight: Any, bias: Any, case: dict[str, Any]) -> Any:
    flat = [n for pair in reversed(case["padding"]) for n in pair]
    return CONV[len(case["size"])](
        functional.pad(x, flat), weight, bias, case["stride"], 0, case["dilation"], case["groups"]
    )


@settings(max_examples=60, deadline=None, derandomize=True)
@given(case=convolutions())
def test_conv_agrees_with_torch(case: dict[str, Any]) -> None:
    assume(
        all(
            d * (k - 1) + 1 <= s + sum(pair)
            for s, k, d, pair in zip(case["size"], case["kernel"], case["dilation"], case["padding"], strict=True)
        )
    )
    generator = np.random.default_rng(0)
    x = generator.normal(size=(case["batch"], case["channels_in"], *case["size"]))
    weight = generator.normal(size=(case["channels_out"], case["channels_in"] // case["groups"], *case["kernel"]))
    bias = generator.normal(size=case["channels_out"]) if case["bias"] else None
    attrs = {name: case[name] for name in ("stride", "padding", "dilation", "groups")}
    y, _ = by_torch(lambda *inputs: padded_conv(*inputs, case), x, weight, bias)
    g = generator.normal(size=y.shape)
    _, expected = by_torch(lambda *inputs: padded_conv(*inputs, case), x, weight, bias, g=g)
    for leaf in LEAVES:
        assert_close(run(leaf, "conv", x, weight, bias, **attrs)[0], y, f"{leaf}")
        grads = gradients(leaf, "conv", x, weight, bias, g=g, **attrs)
        for name, ours, theirs in zip(("x", "weight", "bias"), grads, expected, strict=True):
            assert (ours is None) == (theirs is None)
            if ours is not None and theirs is not None:
                assert_close(ours, theirs, f"{leaf} gradient of {name}")


@settings(max_examples=50, deadline=None, derandomize=True)
@given(case=convolutions(), data=st.data())
def test_conv_transpose_agrees_with_torch(case: dict[str, Any], data: st.DataObject) -> None:
    spatial = len(case["size"])
    extra = tuple(
        data.draw(st.integers(0, max(s, d) - 1)) for s, d in zip(case["stride"], case["dilation"], strict=True)
    )
    padding = tuple(before for before, _ in case["padding"])
    size = [
        (s - 1) * step - 2 * p + d * (k - 1) + o + 1
        for s, step, p, d, k, o in zip(
            case["size"], case["stride"], padding, case["dilation"], case["kernel"], extra, strict=True
        )
    ]
    assume(min(size) >= 1)
    generator = np.random.default_rng(1)
    groups = case["groups"]
    x = generator.normal(size=(case["batch"], case["channels_in"], *case["size"]))
    weight = generator.normal(size=(case["channels_in"], case["channels_out"] // groups, *case["kernel"]))
    bias = generator.normal(size=case["channels_out"]) if case["bias"] else None
    attrs = {
        "stride": case["stride"],
        "padding": padding,
        "output_padding": extra,
        "dilation": case["dilation"],
        "groups": groups,
    }

    def theirs(x: Any, weight: Any, bias: Any) -> Any:
        settings = (case["stride"], padding, extra, groups, case["dilation"])
        return CONV_TRANSPOSE[spatial](x, weight, bias, *settings)

    y, _ = by_torch(theirs, x, weight, bias)
    g = generator.normal(size=y.shape)
    _, expected = by_torch(theirs, x, weight, bias, g=g)
    for leaf in LEAVES:
        assert_close(run(leaf, "conv_transpose", x, weight, bias, **attrs)[0], y, f"{leaf}")
        grads = gradients(leaf, "conv_transpose", x, weight, bias, g=g, **attrs)
        for name, ours, other in zip(("x", "weight", "bias"), grads, expected, strict=True):
            assert (ours is None) == (other is None)
            if ours is not None and other is not None:
                assert_close(ours, other, f"{leaf} gradient of {name}")


def test_depthwise_convolution_of_a_strided_input() -> None:
    generator = np.random.default_rng(2)
    wide = generator.normal(size=(2, 5, 6, 8))
    x = wide.transpose(0, 3, 1, 2)[:, ::2]  # channels last, every second
    weight = generator.normal(size=(8, 1, 3, 2))
    attrs = {"stride": (1, 2), "padding": ((1, 1), (0, 0)), "dilation": (1, 1), "groups": 4}
    expected, _ = by_torch(lambda x, w: functional.conv2d(x, w, None, (1, 2), (1, 0), 1, 4), x, weight)
    torch_leaf, numpy_leaf = LEAVES
    strided = torch.from_numpy(wide).permute(0, 3, 1, 2)[:, ::2]
    call = REGISTRY["conv"].bind([torch_leaf.spec(strided), torch_leaf.spec(torch.from_numpy(weight)), None], attrs)
    assert_close(torch_leaf.execute(call, [strided, torch.from_numpy(weight), None])[0].numpy(), expected)
    assert_close(numpy_leaf.execute(call, [x, weight, None])[0], expected)


def test_negative_padding_cuts_off() -> None:
    generator = np.random.default_rng(3)
    x, weight = generator.normal(size=(1, 2, 6)), generator.normal(size=(3, 2, 2))
    attrs = {"stride": (1,), "dilation": (1,), "groups": 1}
    for leaf in LEAVES:
        cut = run(leaf, "conv", x, weight, None, padding=((-1, 1),), **attrs)[0]
        whole = run(leaf, "conv", x[:, :, 1:], weight, None, padding=((0, 1),), **attrs)[0]
        assert_close(cut, whole)


@pytest.mark.parametrize("leaf", LEAVES, ids=repr)
def test_an_input_gradient_that_nobody_needs_is_not_computed(leaf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from burn_torch import Autodiff
    from burn_torch.backend.autodiff.derive import derive

    x, weight = TensorSpec.of((1, 1, 4, 4), DType.F32, "cpu"), TensorSpec.of((2, 1, 3, 3), DType.F32, "cpu")
    bias = TensorSpec.of((2,), DType.F32, "cpu")
    attrs = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}
    call = REGISTRY["conv"].bind([x, weight, bias], attrs)
    derivation = derive(call, (False, True, True), (True,), recompute=False, tape=Autodiff.over)
    rows = [node.call.op.name for node in derivation.graph.nodes]
    assert "conv_weight_gradient" in rows
    assert "conv_input_gradient" not in rows
    assert derivation.saves == (("x", 0),)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(case=convolutions())
def test_unfold4d_and_fold4d_agree_with_torch(case: dict[str, Any]) -> None:
    assume(len(case["size"]) == 2)
    padding = tuple(before for before, _ in case["padding"])
    assume(
        all(
            d * (k - 1) + 1 <= s + 2 * p
            for s, k, d, p in zip(case["size"], case["kernel"], case["dilation"], padding, strict=True)
        )
    )
    attrs = {"kernel": case["kernel"], "stride": case["stride"], "dilation": case["dilation"], "padding": padding}
    order = (case["kernel"], case["dilation"], padding, case["stride"])
    generator = np.random.default_rng(4)
    x = generator.normal(size=(case["batch"], case["channels_in"], *case["size"]))
    columns, _ = by_torch(lambda x: functional.unfold(x, *order), x)
    g = generator.normal(size=columns.shape)
    image, _ = by_torch(lambda g: functional.fold(g, case["size"], *order), g)
    for leaf in LEAVES:
        assert_close(run(leaf, "unfold4d", x, **attrs)[0], columns)
        assert_close(run(leaf, "fold4d", g, output_size=case["size"], **attrs)[0], image)
        grad = gradients(leaf, "unfold4d", x, g=g, **attrs)[0]
        assert grad is not None
        assert_close(grad, image)


# -- messages ----------------------------------------------------------------------------------------------
def refuse(name: str, *shapes: tuple[int, ...] | None, dtype: DType = DType.F32, **attrs: Any) -> str:
    specs = [None if shape is None else TensorSpec.of(shape, dtype, "cpu") for shape in shapes]
    with pytest.raises((ShapeError, DTypeError), match=r"(?s)given:.*expected:.*mend:") as caught:
        REGISTRY[name].bind(specs, attrs)
    return str(caught.value)


PLAIN = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}


@pytest.mark.parametrize(
    ("shapes", "changes", "words"),
    [
        (((2, 3, 5, 5), (4, 2, 3, 3), None), {}, "1 groups, so 2; x has 3"),
        (((2, 4, 5, 5), (3, 2, 3, 3), None), {"groups": 2}, "groups 2 does not divide the 3 output channels"),
        (((2, 3, 2, 5), (4, 3, 3, 3), None), {}, "kernel is larger than the padded input along spatial axis 0"),
        (((2, 3, 4, 5), (4, 3, 3, 3), None), {"dilation": (2, 1)}, "size 3 with dilation 2 reaches over 5"),
        (((2, 3, 5, 5), (4, 3, 3, 3), (3,)), {}, "bias (4,)"),
        (((2, 3, 5, 5), (4, 3, 3), None), {}, "weight has 3 axes"),
        (((2, 3), (4, 3, 3, 3), None), {}, "x has 2 axes"),
        (((2, 3, 5, 5), (4, 3, 3, 3), None), {"stride": (0, 1)}, "stride (0, 1) has an entry below 1"),
        (((2, 3, 5, 5), (4, 3, 3, 3), None), {"stride": (1,)}, "stride (1,) has 1 entries"),
        (((2, 3, 5, 5), (4, 3, 3, 3), None), {"groups": 0}, "groups is 0"),
        (((2, 3, 0, 5), (4, 3, 3, 3), None), {}, "x has an empty axis besides the batch"),
        (((2, 3, 5, 5), (4, 3, 0, 3), None), {}, "weight has no elements"),
    ],
)
def test_conv_refuses(shapes: Any, changes: dict[str, Any], words: str) -> None:
    message = refuse("conv", *shapes, **{**PLAIN, **changes})
    assert message.startswith("conv: ")
    assert words in message


def test_conv_names_all_faults_of_one_call() -> None:
    message = refuse("conv", (2, 3, 2, 5), (4, 2, 3, 3), (5,), **PLAIN)
    for words in ("channels of x", "kernel is larger", "bias does not fit"):
        assert words in message


def test_conv_takes_floats_of_one_type() -> None:
    assert "x of type float" in refuse("conv", (2, 3, 5, 5), (4, 3, 3, 3), None, dtype=DType.I64, **PLAIN)


TRANSPOSED = {"stride": (1,), "padding": (0,), "output_padding": (0,), "dilation": (1,), "groups": 1}


@pytest.mark.parametrize(
    ("shapes", "changes", "words"),
    [
        (((2, 3, 5), (4, 2, 3), None), {}, "4 channels; x has 3"),
        (((2, 3, 5), (3, 2, 3), None), {"groups": 2}, "groups 2 does not divide the 3 input channels"),
        (((2, 3, 5), (3, 2, 3), None), {"output_padding": (1,)}, "output_padding 1 is too large along spatial axis 0"),
        (((2, 3, 1), (3, 2, 2), None), {"padding": (1,)}, "nothing is left along spatial axis 0"),
        (((2, 3, 5), (3, 2, 3), None), {"padding": (-1,)}, "padding (-1,) has an entry below 0"),
    ],
)
def test_conv_transpose_refuses(shapes: Any, changes: dict[str, Any], words: str) -> None:
    assert words in refuse("conv_transpose", *shapes, **{**TRANSPOSED, **changes})


def test_backward_rows_refuse_what_is_no_output() -> None:
    assert "g (batch, 4, 3, 3)" in refuse("conv_input_gradient", (2, 4, 2, 3), (4, 3, 3, 3), size=(5, 5), **PLAIN)
    assert "g (batch, 4, 3, 3)" in refuse("conv_weight_gradient", (2, 3, 5, 5), (2, 4, 2, 3), kernel=(3, 3), **PLAIN)
    assert "one batch" in refuse("conv_weight_gradient", (1, 3, 5, 5), (2, 4, 3, 3), kernel=(3, 3), **PLAIN)


def test_columns_that_do_not_fit_are_refused() -> None:
    plain = {"kernel": (2, 2), "stride": (1, 1), "dilation": (1, 1), "padding": (0, 0)}
    assert "kernel is larger" in refuse("unfold4d", (1, 2, 1, 4), **plain)
    assert "a multiple of 4, 9" in refuse("fold4d", (1, 8, 8), output_size=(4, 4), **plain)
    assert "a multiple of 4, 9" in refuse("fold4d", (1, 6, 9), output_size=(4, 4), **plain)
    assert "x has 2 axes" in refuse("fold4d", (8, 9), output_size=(4, 4), **plain)
