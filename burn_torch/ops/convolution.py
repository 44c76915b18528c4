"""Convolution over one, two or three spatial axes, and its transposes.

A convolution y = conv(x, w) is linear in x and in w.  With `<., .>` the sum of products,

    <g, conv(x, w)> = <conv_input_gradient(g, w), x> = <conv_weight_gradient(x, g), w>

so the three rows are each other's gradients, to any order.  conv_transpose is conv_input_gradient with a bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from burn_torch.core.dtype import FLOAT
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.reductions import sum as sum_over
from burn_torch.ops.rules import same_dtype
from burn_torch.ops.samples import Array, sample, uniform
from burn_torch.ops.shapes import reshape
from burn_torch.ops.torch_code import TorchCode
from burn_torch.ops.torch_types import TO_TORCH
from burn_torch.ops.value import Primitive
from burn_torch.ops.windows import (
    Faults,
    Pairs,
    PerAxis,
    check_fit,
    check_settings,
    check_spatial,
    fit,
    reach,
    scatter_windows,
    stand_in,
    unfit,
    widened,
    window_counts,
    windows,
)

_convolution = torch.convolution
_convolution_backward = torch.ops.aten.convolution_backward.default


# -- conv ------------------------------------------------------------------------------------------------
def _split(padding: Pairs) -> tuple[Primitive, ...]:
    """Splits padding into what aten pads itself (equal on both sides) and the rest in torch's order, or None."""
    inner = [max(0, min(pair)) for pair in padding]
    rest = [(before - p, after - p) for (before, after), p in zip(padding, inner, strict=True)]
    return inner, ([n for pair in reversed(rest) for n in pair] if any(map(any, rest)) else None)


def _torch_conv(call: Call) -> Primitive:
    attrs = call.attrs
    inner, rest = _split(attrs["padding"])
    stride, dilation, groups = attrs["stride"], attrs["dilation"], attrs["groups"]
    none = (0,) * len(stride)
    if rest is None:
        return TorchCode(
            "convolution({0}, {1}, {2}, {stride}, {padding}, {dilation}, False, {none}, {groups})",
            convolution=_convolution, stride=stride, padding=tuple(inner), dilation=dilation, none=none, groups=groups,
        )  # fmt: skip
    return lambda x, weight, bias: _convolution(
        torch.constant_pad_nd(x, rest, 0), weight, bias, stride, inner, dilation, False, none, groups
    )


def _columns(
    x: Array, kernel: Shape, stride: Shape, padding: Pairs, dilation: Shape, groups: int
) -> tuple[Primitive, ...]:
    """The windows of x as (groups, batch * windows, channels / groups * kernel), and the counts of windows."""
    view = windows(fit(widened(x), padding), kernel, stride, dilation)
    spatial = len(kernel)
    batch, channels, counts = x.shape[0], x.shape[1], view.shape[2 : 2 + spatial]
    view = view.reshape(batch, groups, channels // groups, *counts, *kernel)
    positions, taps = range(3, 3 + spatial), range(3 + spatial, 3 + 2 * spatial)
    rows = view.transpose(1, 0, *positions, 2, *taps)
    return rows.reshape(groups, batch * math.prod(counts), channels // groups * math.prod(kernel)), counts


def _by_group(g: Array, groups: int) -> Array:
    """A gradient (batch, channels, *counts) as (groups, channels / groups, batch * windows)."""
    batch, channels = g.shape[:2]
    split = widened(g).reshape(batch, groups, channels // groups, math.prod(g.shape[2:]))
    return split.transpose(1, 2, 0, 3).reshape(groups, channels // groups, batch * math.prod(g.shape[2:]))


def _numpy_conv(x: Array, weight: Array, bias: Array | None, *, groups: int, **settings: Any) -> Array:
    columns, counts = _columns(x, weight.shape[2:], groups=groups, **settings)
    filters = widened(weight).reshape(groups, weight.shape[0] // groups, columns.shape[2])
    y = np.matmul(filters, columns.transpose(0, 2, 1))  # (groups, channels_out / groups, batch * windows)
    y = y.reshape(weight.shape[0], x.shape[0], *counts).swapaxes(0, 1)
    return y if bias is None else y + bias.reshape(-1, *(1,) * len(counts))


def _counts(x: Shape, weight: Shape, settings: Mapping[str, Any]) -> tuple[Primitive, ...]:
    return window_counts(x[2:], weight[2:], settings["stride"], settings["padding"], settings["dilation"])


def _settings(
    spatial: int, stride: int = 1, padding: object = (0, 0), dilation: int = 1, groups: int = 1, **more: int
) -> dict[str, Any]:
    each = {"stride": stride, "padding": padding, "dilation": dilation, **more}
    return {name: (value,) * spatial for name, value in each.items()} | {"groups": groups}


_CONV_CASES = [  # x, weight, settings
    ((2, 3, 7), (4, 3, 3), _settings(1, padding=(1, 1))),
    ((2, 4, 8), (6, 2, 3), _settings(1, stride=2, padding=(2, 1), dilation=2, groups=2)),
    ((2, 2, 5, 6), (3, 2, 3, 2), _settings(2)),
    ((1, 4, 7, 6), (4, 1, 3, 2), {"stride": (2, 3), "padding": ((1, 2), (0, 1)), "dilation": (2, 1), "groups": 4}),
    ((2, 2, 6, 5), (2, 2, 2, 3), {"stride": (1, 2), "padding": ((1, -1), (1, 1)), "dilation": (1, 1), "groups": 1}),
    ((0, 2, 5, 5), (3, 2, 3, 3), _settings(2, padding=(1, 1))),
    ((1, 2, 4, 3, 5), (4, 1, 2, 2, 3), _settings(3, stride=2, padding=(1, 1), groups=2)),
]


@op(
    torch=PerCall(_torch_conv),
    numpy=_numpy_conv,
    packed="dense",
    precision="low",
    samples=[
        sample(
            uniform(-1, 1, x), uniform(-1, 1, weight), uniform(-1, 1, weight[:1]) if i % 2 == 0 else None, **settings
        )
        for i, (x, weight, settings) in enumerate(_CONV_CASES)
    ],
)
def conv(
    x: TensorSpec,
    weight: TensorSpec,
    bias: TensorSpec | None,
    *,
    stride: PerAxis,
    padding: Pairs,
    dilation: PerAxis,
    groups: int,
) -> TensorSpec:
    """Convolution (cross-correlation: the kernel is not flipped) over the spatial axes.

        y[n, o, i] = bias[o] + sum over c, j of x[n, c, i * stride - before + j * dilation] * weight[o, c, j]

    c runs over the channels of o's group.  `padding` is (before, after) for each axis, with zeros; a negative amount
    cuts off.

    Shapes: x (batch, channels_in, *spatial), weight (channels_out, channels_in / groups, *kernel),
        bias (channels_out,) -> (batch, channels_out, *counts), 1 to 3 spatial axes; the batch may be empty.
    Dtypes: float, all the same.
    PyTorch: torch.nn.functional.conv1d, conv2d, conv3d, which pad both sides alike.
    """
    return check_convolution(x, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups)


@conv.gradient
def _(g, y, x, weight, bias, **settings):
    return (
        conv_input_gradient(g, weight, size=x.shape[2:], **settings),
        conv_weight_gradient(x, g, kernel=weight.shape[2:], **settings),
        None if bias is None else reshape(sum_over(g, dims=(0, *range(2, g.ndim))), shape=(g.shape[1],)),
    )


def check_convolution(
    x: TensorSpec, weight: TensorSpec, bias: TensorSpec | None, *, stride: PerAxis, padding: Pairs, dilation: PerAxis,
    groups: int,
) -> TensorSpec:  # fmt: skip
    """The result of a convolution.  Raises faults: all that does not fit together."""
    same_dtype(x.require(FLOAT), weight, bias)
    faults = Faults()
    spatial = check_spatial(faults, x)
    _check_weight(faults, weight, spatial)
    _check_settings(faults, spatial, stride, padding, dilation, groups)
    faults.stop()
    if x.shape[1] != weight.shape[1] * groups:
        faults.add(
            "the channels of x do not fit the weight",
            expected=f"{weight.shape[1]} channels a group in {groups} groups, so {weight.shape[1] * groups}; "
            f"x has {x.shape[1]}",
            mend="weight is (channels_out, channels_in / groups, *kernel)",
        )
    if weight.shape[0] % groups:
        faults.add(
            f"groups {groups} does not divide the {weight.shape[0]} output channels",
            expected="channels_in and channels_out that are multiples of groups",
            mend="change groups or the number of output channels",
        )
    _check_bias(faults, bias, weight.shape[0])
    check_fit(faults, x.shape[2:], weight.shape[2:], padding, dilation)
    faults.stop()
    counts = window_counts(x.shape[2:], weight.shape[2:], stride, padding, dilation)
    return x.with_shape((x.shape[0], weight.shape[0], *counts))


def _check_weight(faults: Primitive, weight: TensorSpec, spatial: int) -> None:
    if weight.ndim != spatial + 2:
        faults.add(
            f"weight has {weight.ndim} axes",
            expected=f"two axes of channels and {spatial} of the kernel, as x has {spatial} spatial axes",
            mend="reshape the weight, or use the convolution for its number of axes",
        )
    elif 0 in weight.shape:
        faults.add("weight has no elements", expected="sizes of at least 1", mend="build the weight with channels")


def _check_settings(
    faults: Primitive, spatial: int, stride: Shape, padding: Pairs, dilation: Shape, groups: int
) -> None:
    check_settings(faults, spatial, stride=stride, padding=padding, dilation=dilation)
    _check_groups(faults, groups)


def _check_groups(faults: Primitive, groups: int) -> None:
    if groups < 1:
        faults.add(f"groups is {groups}", expected="at least one group", mend="groups=1 connects all channels")


def _check_bias(faults: Primitive, bias: TensorSpec | None, channels: int) -> None:
    if bias is not None and bias.shape != (channels,):
        faults.add("the bias does not fit the weight", expected=f"bias ({channels},)", mend="give one number a channel")


# -- its transposes --------------------------------------------------------------------------------------
def _padded_size(size: Shape, rest: list[int] | None) -> tuple[Primitive, ...]:
    """The spatial sizes after what torch's pad adds."""
    added = [0] * len(size) if rest is None else [a + b for a, b in zip(rest[::2], rest[1::2], strict=True)]
    return tuple(s + n for s, n in zip(size, reversed(added), strict=True))


def _torch_input_gradient(call: Call) -> Primitive:
    g, weight = call.tensor(0), call.tensor(1)
    size, stride, padding, dilation, groups = call.attrs.values()
    inner, rest = _split(padding)
    padded, kernel = _padded_size(size, rest), weight.shape[2:]
    if groups == 1:
        # A transposed convolution runs the same kernel without the dispatch of convolution_backward: 4 against 9 us on
        # one 4x4 image.  With groups its kernel is the slower: 224 against 188 us, 32 channels of 28x28 (x86 CPU).
        beyond = tuple(
            s - ((count - 1) * step - 2 * p + reach(k, d))
            for s, count, step, p, k, d in zip(padded, g.shape[2:], stride, inner, kernel, dilation, strict=True)
        )

        whole: Callable[..., torch.Tensor] = TorchCode(
            "convolution({0}, {1}, None, {stride}, {padding}, {dilation}, True, {beyond}, 1)",
            convolution=_convolution, stride=stride, padding=tuple(inner), dilation=dilation, beyond=beyond,
        )  # fmt: skip
    else:
        shape, dtype, place = (g.shape[0], weight.shape[1] * groups, *padded), TO_TORCH[g.dtype], g.place
        none = (0,) * len(stride)

        def by_group(g: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            like = torch.empty(shape, dtype=dtype, device=place)  # torch reads its shape only
            return _convolution_backward(
                g, like, weight, None, stride, inner, dilation, False, none, groups, (True, False, False)
            )[0]

        whole = by_group

    if rest is None:
        return whole
    cut = [-n for n in rest]
    return lambda g, weight: torch.constant_pad_nd(whole(g, weight), cut, 0)


def _numpy_input_gradient(
    g: Array, weight: Array, *, size: Shape, stride: Shape, padding: Pairs, dilation: Shape, groups: int
) -> Array:
    batch, counts, kernel = g.shape[0], g.shape[2:], weight.shape[2:]
    filters = widened(weight).reshape(groups, weight.shape[0] // groups, weight.shape[1] * math.prod(kernel))
    columns = np.matmul(filters.transpose(0, 2, 1), _by_group(g, groups))
    columns = columns.reshape(groups * weight.shape[1], *kernel, batch, *counts)
    spatial = len(kernel)
    columns = columns.transpose(1 + spatial, 0, *range(2 + spatial, 2 + 2 * spatial), *range(1, 1 + spatial))
    padded = tuple(s + before + after for s, (before, after) in zip(size, padding, strict=True))
    return unfit(scatter_windows(columns, padded, stride, dilation), padding)


@op(
    torch=PerCall(_torch_input_gradient),
    numpy=_numpy_input_gradient,
    packed="any",  # NdArray cuts it out of a larger array
    precision="low",
    samples=[
        sample(
            uniform(-1, 1, (x[0], weight[0], *_counts(x, weight, settings))),
            uniform(-1, 1, weight),
            size=x[2:],
            **settings,
        )
        for x, weight, settings in _CONV_CASES
    ],
)
def conv_input_gradient(
    g: TensorSpec, weight: TensorSpec, *, size: Shape, stride: PerAxis, padding: Pairs, dilation: PerAxis, groups: int
) -> TensorSpec:
    """The gradient of `conv` with respect to x, whose spatial sizes are `size`; the settings are those of `conv`.

    Shapes: g (batch, channels_out, *counts), weight (channels_out, channels_in / groups, *kernel)
        -> (batch, channels_in, *size).
    Dtypes: float, all the same.
    PyTorch: torch.nn.grad.conv2d_input.
    """
    same_dtype(g.require(FLOAT), weight)
    faults = Faults()
    spatial = check_spatial(faults, g, "g")
    _check_weight(faults, weight, spatial)
    check_settings(faults, spatial, size=size)
    _check_settings(faults, spatial, stride, padding, dilation, groups)
    faults.stop()
    _check_output(faults, g, weight.shape[0], size, weight.shape[2:], stride, padding, dilation, groups)
    faults.stop()
    return g.with_shape((g.shape[0], weight.shape[1] * groups, *size))


@conv_input_gradient.gradient
def _(h, z, g, weight, *, size, **settings):
    return conv(h, weight, None, **settings), conv_weight_gradient(h, g, kernel=weight.shape[2:], **settings)


def _torch_weight_gradient(call: Call) -> Primitive:
    x, g = call.tensor(0), call.tensor(1)
    kernel, stride, padding, dilation, groups = call.attrs.values()
    inner, rest = _split(padding)
    shape = (g.shape[1], x.shape[1] // groups, *kernel)
    # torch reads its shape only.  On a CPU it must be contiguous, or torch copies it: 3.3 ms instead of 2.3 for 512 to
    # 1024 channels, 3x3.  Elsewhere that would hold memory.
    like = (
        torch.empty(shape, dtype=TO_TORCH[g.dtype], device="cpu")
        if g.place == "cpu"
        else stand_in(shape, g.dtype, g.place)
    )
    none = (0,) * len(stride)
    mask = (False, True, False)

    whole = TorchCode(
        "backward({1}, {0}, {like}, None, {stride}, {padding}, {dilation}, False, {none}, {groups}, {mask})[1]",
        backward=_convolution_backward, like=like, stride=stride, padding=tuple(inner), dilation=dilation,
        none=none, groups=groups, mask=mask,
    )  # fmt: skip
    return whole if rest is None else lambda x, g: whole(torch.constant_pad_nd(x, rest, 0), g)


def _numpy_weight_gradient(x: Array, g: Array, *, kernel: Shape, groups: int, **settings: Any) -> Array:
    columns, _ = _columns(x, kernel, groups=groups, **settings)
    return np.matmul(_by_group(g, groups), columns).reshape(g.shape[1], x.shape[1] // groups, *kernel)


@op(
    torch=PerCall(_torch_weight_gradient),
    numpy=_numpy_weight_gradient,
    precision="low",
    samples=[
        sample(
            uniform(-1, 1, x),
            uniform(-1, 1, (x[0], weight[0], *_counts(x, weight, settings))),
            kernel=weight[2:],
            **settings,
        )
        for x, weight, settings in _CONV_CASES
    ],
)
def conv_weight_gradient(
    x: TensorSpec, g: TensorSpec, *, kernel: Shape, stride: PerAxis, padding: Pairs, dilation: PerAxis, groups: int
) -> TensorSpec:
    """The gradient of `conv` with respect to the weight; the settings are those of `conv`.

    Shapes: x (batch, channels_in, *spatial), g (batch, channels_out, *counts)
        -> (channels_out, channels_in / groups, *kernel).
    Dtypes: float, all the same.
    PyTorch: torch.nn.grad.conv2d_weight.
    """
    same_dtype(x.require(FLOAT), g)
    faults = Faults()
    spatial = check_spatial(faults, x)
    check_spatial(faults, g, "g", (spatial,))
    check_settings(faults, spatial, kernel=kernel)
    _check_settings(faults, spatial, stride, padding, dilation, groups)
    faults.stop()
    if x.shape[0] != g.shape[0] or x.shape[1] % groups:
        faults.add(
            "x and g do not belong to one convolution",
            expected="one batch, and channels of x that are a multiple of groups",
            mend="pass the input of the convolution and the gradient of its output",
        )
    _check_output(faults, g, g.shape[1], x.shape[2:], kernel, stride, padding, dilation, groups)
    faults.stop()
    return g.with_shape((g.shape[1], x.shape[1] // groups, *kernel))


@conv_weight_gradient.gradient
def _(h, z, x, g, *, kernel, **settings):
    return conv_input_gradient(g, h, size=x.shape[2:], **settings), conv(x, h, None, **settings)


def _check_output(
    faults: Primitive, g: TensorSpec, channels: int, size: Shape, kernel: Shape, stride: Shape, padding: Pairs,
    dilation: Shape, groups: int
) -> None:  # fmt: skip
    """g has the shape that the convolution gives."""
    check_fit(faults, size, kernel, padding, dilation)
    counts = window_counts(size, kernel, stride, padding, dilation)
    if g.shape[1:] != (channels, *counts) or channels % groups:
        faults.add(
            "g is no output of this convolution",
            expected=f"g (batch, {channels}, {', '.join(map(str, counts))}), channels a multiple of groups",
            mend="pass the gradient of the convolution's output, with the settings of the convolution",
        )


# -- conv_transpose ----------------------------------------------------------------------------------------
def _torch_conv_transpose(call: Call) -> Candidate:
    stride, padding, beyond, dilation, groups = call.attrs.values()
    return lambda x, weight, bias: _convolution(x, weight, bias, stride, padding, dilation, True, beyond, groups)


@op(
    torch=PerCall(_torch_conv_transpose),
    precision="low",
    samples=[
        sample(
            uniform(-1, 1, (2, 3, 5)),
            uniform(-1, 1, (3, 2, 4)),
            uniform(-1, 1, (2,)),
            **_settings(1, stride=2, padding=1, output_padding=1),
        ),
        sample(
            uniform(-1, 1, (2, 4, 3, 4)),
            uniform(-1, 1, (4, 3, 2, 3)),
            uniform(-1, 1, (6,)),
            stride=(2, 3),
            padding=(0, 1),
            output_padding=(1, 2),
            dilation=(2, 1),
            groups=2,
        ),
        sample(  # the output padding reaches past a whole window
            uniform(-1, 1, (1, 2, 4)), uniform(-1, 1, (2, 2, 3)), None, **_settings(1, 1, 1, 3, output_padding=2)
        ),
        sample(
            uniform(-1, 1, (0, 2, 3, 3)), uniform(-1, 1, (2, 1, 2, 2)), None, **_settings(2, 1, 0, output_padding=0)
        ),
        sample(
            uniform(-1, 1, (1, 2, 2, 3, 2)),
            uniform(-1, 1, (2, 1, 2, 1, 3)),
            None,
            **_settings(3, 2, 0, output_padding=0),
        ),
    ],
)
def conv_transpose(
    x: TensorSpec,
    weight: TensorSpec,
    bias: TensorSpec | None,
    *,
    stride: PerAxis,
    padding: PerAxis,
    output_padding: PerAxis,
    dilation: PerAxis,
    groups: int,
) -> TensorSpec:
    """Transposed convolution: each element of x adds a scaled kernel to the output; then the bias is added.

    It is the gradient of `conv` with respect to its input, with x in the place of g.  `padding` cuts off both ends;
    `output_padding` keeps more at the far end, and chooses among the sizes that `conv` with a stride maps to one.

    Shapes: x (batch, channels_in, *spatial), weight (channels_in, channels_out / groups, *kernel),
        bias (channels_out,) -> (batch, channels_out, *size) with
        size = (spatial - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1.
    Dtypes: float, all the same.
    PyTorch: torch.nn.functional.conv_transpose1d, conv_transpose2d, conv_transpose3d.
    """
    same_dtype(x.require(FLOAT), weight, bias)
    faults = Faults()
    spatial = check_spatial(faults, x)
    _check_weight(faults, weight, spatial)
    check_settings(faults, spatial, stride=stride, dilation=dilation)
    check_settings(faults, spatial, least=0, padding=padding, output_padding=output_padding)
    _check_groups(faults, groups)
    faults.stop()
    if x.shape[1] != weight.shape[0]:
        faults.add(
            "the channels of x do not fit the weight",
            expected=f"{weight.shape[0]} channels; x has {x.shape[1]}",
            mend="weight is (channels_in, channels_out / groups, *kernel)",
        )
    if weight.shape[0] % groups:
        faults.add(
            f"groups {groups} does not divide the {weight.shape[0]} input channels",
            expected="channels_in and channels_out that are multiples of groups",
            mend="change groups or the number of input channels",
        )
    _check_bias(faults, bias, weight.shape[1] * groups)
    size = _transpose_size(x.shape[2:], weight.shape[2:], stride, padding, output_padding, dilation)
    for axis, (extra, step, d, s) in enumerate(zip(output_padding, stride, dilation, size, strict=True)):
        if extra >= max(step, d):
            faults.add(
                f"output_padding {extra} is too large along spatial axis {axis}",
                expected=f"less than stride {step} or dilation {d}",
                mend="pad the output afterwards",
            )
        if s < 1:
            faults.add(
                f"nothing is left along spatial axis {axis}",
                expected=f"a size of at least 1; padding {padding[axis]} leaves {s}",
                mend="lower the padding",
            )
    faults.stop()
    return x.with_shape((x.shape[0], weight.shape[1] * groups, *size))


@conv_transpose.decomposes
def _(x, weight, bias, *, stride, padding, output_padding, dilation, groups):
    size = _transpose_size(x.shape[2:], weight.shape[2:], stride, padding, output_padding, dilation)
    # Output padding of a whole stride and more would give `conv` further windows: it has that much less padding.
    pairs = tuple((p, p - (o - o % s)) for p, o, s in zip(padding, output_padding, stride, strict=True))
    y = conv_input_gradient(x, weight, size=size, stride=stride, padding=pairs, dilation=dilation, groups=groups)
    return y if bias is None else y + reshape(bias, shape=(y.shape[1], *(1,) * len(size)))


def _transpose_size(
    size: Shape, kernel: Shape, stride: Shape, padding: Shape, output_padding: Shape, dilation: Shape
) -> tuple[Primitive, ...]:
    return tuple(
        (s - 1) * step - 2 * p + reach(k, d) + o
        for s, k, step, p, o, d in zip(size, kernel, stride, padding, output_padding, dilation, strict=True)
    )
