"""For each operator how a node of it is drawn: inputs, attributes in the form that the opset has, what is left out."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.onnx.operator_graphs import ONNX_TYPES, OperatorGraph, draws

FLOATS = (np.float32, np.float32, np.float32, np.float64)
NUMBERS = (np.float32, np.float32, np.float64, np.int32, np.int64)
WHOLE = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
ANY = (*NUMBERS, np.bool_, np.int8, np.uint8)
G = OperatorGraph


def maybe(g: G, probability: float, value: Any) -> Any:
    """The value, or None this much less often."""
    return value if g.chance(probability) else None


# -- elementwise ------------------------------------------------------------------------------------------------------
@draws(
    "Abs", "Neg", "Sign", "Ceil", "Floor", "Round", "Relu", "Sigmoid", "Tanh", "Exp", "Erf", "Sin", "Cos", "Tan",
    "Sinh", "Cosh", "Asinh", "Atan", "Softplus", "Softsign", "Mish", "HardSwish", "Identity", "Reciprocal", "IsNaN",
)  # fmt: skip
def unary(g: G, op: str) -> None:
    dtype = g.one_of(*FLOATS) if op not in ("Abs", "Neg", "Sign", "Identity", "Relu") else g.one_of(*NUMBERS, np.int8)
    g.node(op, [g.tensor(dtype)])


@draws("Acos", "Asin", "Atanh", "Acosh", "Log", "Sqrt")
def bounded(g: G, op: str) -> None:
    low, high = {"Acosh": (1, 5), "Log": (0, 5), "Sqrt": (0, 5)}.get(op, (-1, 1))
    g.node(op, [g.tensor(g.one_of(*FLOATS), low=low, high=high)])


@draws("Elu", "Celu", "LeakyRelu", "ThresholdedRelu", "Selu", "HardSigmoid", "Shrink", "Gelu", "IsInf", "Swish")
def parametrised(g: G, op: str) -> None:
    attributes: dict[str, Any] = {}
    if op in ("Elu", "Celu", "LeakyRelu", "ThresholdedRelu", "Selu", "HardSigmoid", "Swish") and g.chance(0.7):
        attributes["alpha"] = float(g.one_of(0.1, 0.5, 1.5, 2.0))
    if op == "Selu" and g.chance(0.5):
        attributes["gamma"] = 1.5
    if op == "HardSigmoid" and g.chance(0.5):
        attributes["beta"] = 0.25
    if op == "Shrink":
        attributes |= {"lambd": float(g.one_of(0.5, 1.0)), "bias": float(g.one_of(0.0, 0.5))}
    if op == "Gelu":
        attributes["approximate"] = g.one_of(None, "tanh", "none")
    if op == "IsInf":
        attributes |= {"detect_negative": g.one_of(None, 0, 1), "detect_positive": g.one_of(None, 0, 1)}
        x = g.array(np.float32, g.sizes(2))
        x[x > 2] = np.inf
        x[x < -2] = -np.inf
        g.node(op, [g.value(x)], **attributes)
        return
    g.node(op, [g.tensor(np.float32)], **attributes)


@draws(
    "Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Mean", "Sum", "Mod", "PRelu", "BitShift", "Equal", "Greater",
    "Less", "GreaterOrEqual", "LessOrEqual", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor",
)  # fmt: skip
def binary(g: G, op: str) -> None:
    attributes: dict[str, Any] = {}
    dtype: Any = g.one_of(*NUMBERS)
    if op in ("And", "Or", "Xor"):
        dtype = np.bool_
    elif op.startswith("Bit"):
        dtype = g.one_of(*WHOLE)
    elif op in ("Mean", "Sum", "PRelu"):
        dtype = g.one_of(*FLOATS)
    elif op == "Equal":
        dtype = g.one_of(*NUMBERS, np.bool_)
    elif op in ("Max", "Min"):
        dtype = g.one_of(*NUMBERS, np.int8, np.uint8, np.uint64)
    x = g.tensor(dtype, low=0 if op == "Pow" else -3)
    if op == "Mod":
        attributes["fmod"] = 1 if np.dtype(dtype).kind == "f" else g.one_of(None, 0, 1)
    if op == "BitShift":
        attributes["direction"] = g.one_of("LEFT", "RIGHT")
    shape = g.broadcast(g.shape(x))
    if g.chance(0.15) and op != "PRelu":  # the other way round
        shape = (g.number(1, 3), *g.shape(x))
    other = dtype
    low = 0 if op in ("Pow", "BitShift") else -3
    if op == "Pow" and g.opset >= 12 and g.chance(0.4):
        other = g.one_of(*NUMBERS)
    y = g.tensor(other, shape, low=low)
    if op in ("Div", "Mod") and (g.values[y] == 0).any():
        y = g.value(np.where(g.values[y] == 0, 2, g.values[y]).astype(dtype))
    inputs = [x, y]
    if op in ("Max", "Min", "Mean", "Sum"):
        inputs = inputs[: g.number(1, 2)] + [g.tensor(dtype, g.broadcast(g.shape(x))) for _ in range(g.number(0, 2))]
    if g.chance(0.1) and op not in ("Div", "Mod", "PRelu"):
        inputs = [x] * len(inputs)
    g.node(op, inputs, **attributes)


@draws("Not", "BitwiseNot")
def inverse(g: G, op: str) -> None:
    g.node(op, [g.tensor(np.bool_ if op == "Not" else g.one_of(*WHOLE))])


@draws("Clip")
def clip(g: G, op: str) -> None:
    low, high = g.one_of(-1.5, 0.0, 1.0), g.one_of(-2.0, 0.5, 1.0, 2.0)
    if g.opset < 11:
        g.node(op, [g.tensor()], min=maybe(g, 0.7, float(low)), max=maybe(g, 0.7, float(high)))
        return
    dtype = g.one_of(*FLOATS) if g.opset < 12 else g.one_of(*NUMBERS)
    x = g.tensor(dtype)
    bounds = [maybe(g, 0.7, g.value(np.array(b, dtype), constant=0.6)) for b in (low, high)]
    g.node(op, [x, *bounds])


@draws("Where")
def where(g: G, op: str) -> None:
    x = g.tensor(g.one_of(*ANY))
    y = g.tensor(g.values[x].dtype, g.broadcast(g.shape(x)))
    g.node(op, [g.tensor(np.bool_, g.broadcast(g.shape(x))), *((x, y) if g.chance(0.5) else (y, x))])


@draws("Cast", "CastLike")
def cast(g: G, op: str) -> None:
    x = g.tensor(g.one_of(*ANY), low=0 if g.chance(0.5) else -3)
    to = np.dtype(g.one_of(*ANY, np.float16))
    if to.kind == "u" and g.values[x].dtype.kind == "f" and (g.values[x] < 0).any():
        to = np.dtype(np.int32)  # what a negative number becomes is open
    if op == "Cast":
        g.node(op, [x], to=ONNX_TYPES[to])
    else:
        g.node(op, [x, g.value(np.zeros(g.sizes(1), to))])


# -- shapes -----------------------------------------------------------------------------------------------------------
@draws("Shape", "Size")
def shape_of(g: G, op: str) -> None:
    x = g.tensor(g.one_of(*ANY))
    more = {}
    if op == "Shape" and g.opset >= 15:
        more = {"start": maybe(g, 0.5, g.number(-5, 5)), "end": maybe(g, 0.5, g.number(-5, 5))}
    g.node(op, [x], **more)


@draws("Reshape")
def reshape(g: G, op: str) -> None:
    x = g.tensor(g.one_of(*ANY))
    shape, size = list(g.shape(x)), int(np.prod(g.shape(x)))
    target: list[int] = []
    rest = size
    for _ in range(g.number(0, 3)):
        divisors = [d for d in range(1, rest + 1) if rest % d == 0] or [0]
        target.append(int(divisors[g.rng.integers(len(divisors))]))
        rest = rest // max(target[-1], 1)
    target.append(rest)
    zero = g.opset >= 14 and g.chance(0.2)
    if not zero and size:
        for i in range(min(len(target), len(shape))):
            if target[i] == shape[i] and g.chance(0.5):
                target[i] = 0
    if g.chance(0.5) and not (zero and 0 in target):
        target[g.rng.integers(len(target))] = -1
    g.node(op, [x, g.known(target)], allowzero=1 if zero else None)


@draws("Squeeze", "Unsqueeze")
def squeezes(g: G, op: str) -> None:
    x = g.tensor(g.one_of(*ANY))
    rank = g.rank(x)
    if op == "Unsqueeze":
        count = g.number(1, 2)
        total = rank + count
        axes = [int(a) - (total if g.opset >= 11 and g.chance(0.3) else 0) for a in g.rng.permutation(total)[:count]]
    else:
        ones = [a for a, n in enumerate(g.shape(x)) if n == 1]
        axes = [a - (rank if g.opset >= 11 and g.chance(0.3) else 0) for a in ones if g.chance(0.7)]
        if g.chance(0.3) or not axes:  # onnxruntime takes no axes for all of size 1
            g.node(op, [x])
            return
    if g.opset < 13:
        g.node(op, [x], axes=axes)
    else:
        g.node(op, [x, g.known(axes)])


@draws("Transpose")
def transpose(g: G, op: str) -> None:
    x = g.tensor(g.one_of(*ANY))
    g.node(op, [x], perm=maybe(g, 0.8, [int(i) for i in g.rng.permutation(g.rank(x))]) if g.rank(x) else None)


@draws("Flatten")
def flatten(g: G, op: str) -> None:
    x = g.tensor(g.one_of(*FLOATS) if g.opset < 9 else g.one_of(*ANY))
    low = -g.rank(x) if g.opset >= 11 else 0
    g.node(op, [x], axis=maybe(g, 0.8, g.number(low, g.rank(x))))


@draws("Concat")
def concat(g: G, op: str) -> None:
    x = g.tensor(g.one_of(*ANY), rank=(1, 4))
    axis = g.axis(g.rank(x)) if g.opset >= 11 else g.number(0, g.rank(x) - 1)
    parts = [x]
    for _ in range(g.number(0, 3)):
        shape = list(g.shape(x))
        shape[axis] = g.number(0 if g.chance(0.2) else 1, 3)
        parts.append(g.tensor(g.values[x].dtype, shape))
    g.rng.shuffle(parts)
    g.node(op, parts, axis=axis)


@draws("Split")
def split(g: G, op: str) -> None:
    x = g.tensor(g.one_of(*ANY), rank=(1, 4))
    axis = g.axis(g.rank(x)) if g.opset >= 11 else g.number(0, g.rank(x) - 1)
    size = g.shape(x)[axis]
    count = g.number(1, 3)
    sizes: list[int] | None = None
    if g.chance(0.6):
        cuts = sorted(g.number(0, size) for _ in range(count - 1))
        sizes = [b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)]
    elif g.opset < 18 and size % count:
        count = 1
    only = [i for i in range(count) if g.chance(0.8)]
    axis_ = maybe(g, 0.8, axis) if axis == 0 else axis
    if g.opset < 13:
        g.node(op, [x], count, only=only, axis=axis_, split=sizes)
    elif sizes is not None:
        g.node(op, [x, g.known(sizes)], count, only=only, axis=axis_)
    else:
        g.node(op, [x], count, only=only, axis=axis_, num_outputs=count if g.opset >= 18 else None)


@draws("Slice")
def slice_(g: G, op: str) -> None:
    x = g.tensor(g.one_of(*ANY), rank=(1, 4))
    count = g.number(1, g.rank(x))
    axes = [int(a) for a in g.rng.permutation(g.rank(x))[:count]]
    starts = [g.one_of(g.number(-6, 6), 0, -(2**31), 2**62) for _ in axes]
    ends = [g.one_of(g.number(-6, 6), 2**62, 2**31 - 1, -(2**62)) for _ in axes]
    if g.opset < 10:
        g.node(op, [x], starts=starts, ends=ends, axes=axes)
        return
    axes = [a - (g.rank(x) if g.chance(0.3) else 0) for a in axes]
    dtype = g.one_of(np.int64, np.int64, np.int32)
    if dtype is np.int32:
        starts, ends = [[int(np.clip(n, -(2**31), 2**31 - 1)) for n in ns] for ns in (starts, ends)]
    steps = [g.one_of(1, 2, -1, -2, 3, -(2**20)) for _ in axes]
    over = (2**31 - 1, 2**63 - 1)  # onnxruntime takes these for the first element where it goes backwards
    ends = [end - 1 if step < 0 and end in over else end for end, step in zip(ends, steps, strict=True)]
    inputs: list[str | None] = [x, g.known(starts, dtype), g.known(ends, dtype)]
    by_order = axes == list(range(count)) and g.chance(0.7)
    inputs += [None if by_order else g.known(axes, dtype), maybe(g, 0.7, g.known(steps, dtype))]
    g.node(op, inputs)


@draws("Pad")
def pad(g: G, op: str) -> None:
    x = g.tensor(g.one_of(*FLOATS) if g.opset < 13 else g.one_of(*NUMBERS), rank=(1, 4))
    rank = g.rank(x)
    modes = ["constant", "reflect", "edge"] + (["wrap"] if g.opset >= 19 else [])
    mode = g.one_of(*modes)
    axes = sorted({a % rank for a in g.axes(rank, 1)}) if g.opset >= 18 and g.chance(0.4) else list(range(rank))
    low = -1 if g.chance(0.3) else 0
    most = [2 if mode == "constant" else max(min(2, g.shape(x)[a] - 1), 0) for a in axes]
    pads = [g.number(low if g.shape(x)[a] > 2 else 0, n) for _ in range(2) for a, n in zip(axes, most, strict=True)]
    mode_ = maybe(g, 0.7, mode) if mode == "constant" else mode
    if g.opset < 11:
        g.node(op, [x], pads=pads, mode=mode_, value=maybe(g, 0.5, 1.5))
        return
    value = maybe(g, 0.5, g.value(np.array(2, g.values[x].dtype), constant=0.7))
    padded_axes = None
    if len(axes) < rank or (g.opset >= 18 and g.chance(0.2)):
        padded_axes = g.known([a - (rank if g.chance(0.3) else 0) for a in axes])
    g.node(op, [x, g.known(pads), value, padded_axes], mode=mode_)


@draws("Expand", "Tile")
def grown(g: G, op: str) -> None:
    x = g.tensor(g.one_of(*ANY))
    if op == "Tile":
        g.node(op, [x, g.known([g.number(0 if g.chance(0.1) else 1, 3) for _ in g.shape(x)])])
        return
    shape = [g.one_of(1, size) if size != 1 else g.one_of(1, 3) for size in g.shape(x)]
    shape = [g.number(1, 2)] * g.number(0, 1) + shape[g.number(0, len(shape)) if g.chance(0.2) else 0 :]
    g.node(op, [x, g.known(shape)])


@draws("ConstantOfShape", "Range", "EyeLike", "OneHot", "Trilu", "NonZero", "Compress", "Unique", "CenterCropPad")
def various(g: G, op: str) -> None:
    if op == "ConstantOfShape":
        value = g.array(g.one_of(*ANY), (1,))
        from onnx import numpy_helper

        g.node(op, [g.known(g.sizes(g.number(0, 3)))], value=maybe(g, 0.7, numpy_helper.from_array(value)))
    elif op == "Range":
        dtype = g.one_of(np.int64, np.int32, np.float32, np.float64)
        step = g.one_of(1, 2, -1, -3) if np.dtype(dtype).kind == "i" else g.one_of(0.5, -0.25, 1.0)
        g.node(op, [g.known(np.array(n), dtype) for n in (g.number(-3, 3), g.number(-3, 6), step)])
    elif op == "EyeLike":
        dtype = g.one_of(None, np.float32, np.int64, np.float64)
        x = g.tensor(g.one_of(np.float32, np.int64), rank=(2, 2))
        g.node(op, [x], k=maybe(g, 0.6, g.number(-3, 3)), dtype=None if dtype is None else ONNX_TYPES[np.dtype(dtype)])
    elif op == "OneHot":
        depth = g.number(1, 4)
        kind = g.one_of(np.int64, np.int32, np.float32)
        low = -depth - 1 if g.opset >= 11 else 0
        x = g.value(g.rng.integers(low, depth + 1, g.sizes(g.number(0, 3))).astype(kind))
        values = g.value(g.array(g.one_of(np.float32, np.int64), (2,)))
        count = g.known(g.one_of(np.array(depth), np.array([depth])))
        g.node(op, [x, count, values], axis=maybe(g, 0.7, g.axis(g.rank(x) + 1)))
    elif op == "Trilu":
        x = g.tensor(g.one_of(np.float32, np.int64, np.float64, np.bool_), rank=(2, 4))
        g.node(op, [x, maybe(g, 0.6, g.known(np.array(g.number(-4, 4))))], upper=g.one_of(None, 0, 1))
    elif op == "NonZero":
        g.node(op, [g.tensor(g.one_of(np.float32, np.int64, np.bool_))])
    elif op == "Compress":
        x = g.tensor(g.one_of(*ANY), rank=(1, 4))
        axis = maybe(g, 0.7, g.axis(g.rank(x)) if g.opset >= 11 else g.number(0, g.rank(x) - 1))
        size = int(np.prod(g.shape(x))) if axis is None else g.shape(x)[axis]
        g.node(op, [x, g.tensor(np.bool_, (g.number(0, size),), constant=0.6)], axis=axis)
    elif op == "Unique":
        x = g.value(g.array(g.one_of(np.float32, np.int64), g.sizes(g.number(1, 3)), -1, 1))
        only = [0, *[i for i in (1, 2, 3) if g.chance(0.5)]]
        g.node(op, [x], 4, only=only, axis=maybe(g, 0.6, g.axis(g.rank(x))), sorted=g.one_of(None, 1, 0))
    else:
        x = g.tensor(g.one_of(np.float32, np.int64), rank=(1, 3))
        axes = maybe(g, 0.6, g.axes(g.rank(x), 1))
        g.node(op, [x, g.known(g.sizes(g.rank(x) if axes is None else len(axes), 1, 6))], axes=axes)


@draws("DepthToSpace", "SpaceToDepth")
def depths(g: G, op: str) -> None:
    b, n, c, h, w = (g.number(1, 2) for _ in range(5))
    shape = (n, c * b * b, h, w) if op == "DepthToSpace" else (n, c, h * b, w * b)
    mode = g.one_of(None, "DCR", "CRD") if op == "DepthToSpace" and g.opset >= 11 else None
    g.node(op, [g.tensor(np.float32, shape)], blocksize=b, mode=mode)


# -- indexing ---------------------------------------------------------------------------------------------------------
def indices(g: G, shape: Any, size: int, dtype: Any = None, *, negative: bool = True) -> str:
    array = g.rng.integers(-size if negative else 0, max(size, 1), shape) if size else np.zeros((0, *shape[1:]))
    return g.value(array.astype(dtype or g.one_of(np.int64, np.int32)))


@draws("Gather", "GatherElements", "ScatterElements", "GatherND", "ScatterND", "Scatter")
def gathers(g: G, op: str) -> None:
    x = g.tensor(g.one_of(*ANY), rank=(1, 4))
    shape, rank = g.shape(x), g.rank(x)
    negative = g.opset >= 11
    axis = g.axis(rank) if negative else g.number(0, rank - 1)
    axis_ = maybe(g, 0.7, axis) if axis == 0 else axis
    if op == "Gather":
        g.node(op, [x, indices(g, g.sizes(g.number(0, 3)), shape[axis], negative=negative)], axis=axis_)
        return
    if op in ("GatherElements", "ScatterElements", "Scatter"):
        inner = tuple(
            g.number(1, n) if n and (i != axis % rank or op != "ScatterElements") else n for i, n in enumerate(shape)
        )
        reduction = None
        if op == "GatherElements":
            at = indices(g, inner, shape[axis])
            g.node(op, [x, at], axis=axis_)
            return
        if op == "ScatterElements" and g.opset >= 16 and g.chance(0.6):
            kinds = ["add", "mul", "none", *(("max", "min") if g.opset >= 18 else ())]
            reduction = g.one_of(*kinds)
        if reduction in (None, "none"):  # no place twice: the order is open
            order = np.argsort(g.rng.random(shape), axis=axis % rank)
            order = order[tuple(slice(n) for n in inner)]
            at = g.value((order - (shape[axis] if negative and g.chance(0.3) else 0)).astype(np.int64))
        else:
            at = indices(g, inner, shape[axis])
        g.node(op, [x, at, g.tensor(g.values[x].dtype, inner)], axis=axis_, reduction=reduction)
        return
    batch = g.number(0, rank - 1) if op == "GatherND" and g.opset >= 12 and g.chance(0.4) else 0
    last = g.number(1, rank - batch)
    lead = g.sizes(g.number(0, 2), 1, 3)
    columns = [
        g.rng.integers(-n if negative else 0, max(n, 1), (*shape[:batch], *lead)) for n in shape[batch : batch + last]
    ]
    at_array = np.stack(columns, -1).astype(np.int64)
    if op == "GatherND":
        g.node(op, [x, g.value(at_array)], batch_dims=batch or None)
        return
    reduction = g.one_of("add", "mul", *(("max", "min") if g.opset >= 18 else ())) if g.opset >= 16 else None
    if reduction is None:
        at_array = at_array.reshape(-1, last)[:1]
    updates = g.tensor(g.values[x].dtype, (*at_array.shape[:-1], *shape[last:]))
    g.node(op, [x, g.value(at_array), updates], reduction=reduction)


@draws("TopK", "ArgMax", "ArgMin", "CumSum", "Hardmax", "ReverseSequence")
def along(g: G, op: str) -> None:
    x = g.tensor(g.one_of(np.float32, np.float64, np.int64, np.int32), rank=(1, 4), reuse=0)
    rank = g.rank(x)
    axis = g.axis(rank) if g.opset >= 11 else g.number(0, rank - 1)
    if op == "TopK":
        values = g.rng.permutation(int(np.prod(g.shape(x)))).reshape(g.shape(x)).astype(g.values[x].dtype)
        x = g.value(values)
        k = g.number(0 if g.chance(0.1) else 1, g.shape(x)[axis]) if g.shape(x)[axis] else 0
        if g.opset < 10:
            g.node(op, [x], 2, axis=axis, k=k)
        elif g.opset < 11:
            g.node(op, [x, g.known([k])], 2, axis=axis)
        else:
            g.node(op, [x, g.known([k])], 2, axis=axis, largest=g.one_of(None, 0, 1), sorted=g.one_of(None, 1))
    elif op in ("ArgMax", "ArgMin"):
        last = g.one_of(None, 0, 1) if g.opset >= 12 else None
        g.node(op, [x], axis=maybe(g, 0.8, axis), keepdims=g.one_of(None, 0, 1), select_last_index=last)
    elif op == "CumSum":
        at = g.known(g.one_of(np.array(axis), np.array([axis])), g.one_of(np.int64, np.int32))
        g.node(op, [x, at], exclusive=g.one_of(None, 0, 1), reverse=g.one_of(None, 0, 1))
    elif op == "Hardmax":
        g.node(
            op, [g.tensor(np.float32, rank=(1, 4), reuse=0)], axis=maybe(g, 0.8, axis if g.opset >= 11 else abs(axis))
        )
    else:
        x = g.tensor(np.float32, rank=(2, 4))
        batch = g.number(0, 1)
        lens = [g.number(1, max(g.shape(x)[1 - batch], 1)) for _ in range(g.shape(x)[batch])]
        both = {"batch_axis": batch, "time_axis": 1 - batch} if batch == 0 or g.chance(0.7) else {}
        g.node(op, [x, g.known(lens)], **both)


# -- reductions and norms ---------------------------------------------------------------------------------------------
@draws("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
       "ReduceLogSumExp", "ReduceSumSquare")  # fmt: skip
def reduce(g: G, op: str) -> None:
    low = 0.5 if op == "ReduceLogSum" else -3
    dtype = g.one_of(np.float32, np.float32, np.float64, np.int32, np.int64)
    if op in ("ReduceLogSum", "ReduceLogSumExp", "ReduceL2", "ReduceMean"):
        dtype = g.one_of(*FLOATS)
    x = g.tensor(dtype, low=low)
    axes = maybe(g, 0.7, g.axes(g.rank(x), 0 if g.chance(0.2) else 1))
    if g.opset < 11 and axes is not None:
        axes = [a % g.rank(x) for a in axes]
    keep = g.one_of(None, 0, 1)
    if op == "ReduceMean" and not np.prod(g.shape(x)):  # no number for the standard, 0 for onnxruntime
        x = g.tensor(dtype, [max(size, 1) for size in g.shape(x)])
    if g.opset < (13 if op == "ReduceSum" else 18):
        g.node(op, [x], axes=axes or None, keepdims=keep)
        return
    reduced_axes = None if axes is None else g.known(axes)
    g.node(op, [x, reduced_axes], keepdims=keep, noop_with_empty_axes=g.one_of(None, 0, 1))


@draws("Softmax", "LogSoftmax", "LpNormalization", "MeanVarianceNormalization")
def norms(g: G, op: str) -> None:
    x = g.tensor(g.one_of(*FLOATS), rank=(1, 4))
    if op == "MeanVarianceNormalization":
        x = g.tensor(np.float32, (*g.sizes(2), *g.sizes(2, 2, 4)), reuse=0)  # the variance of one element is 0
        g.node(op, [x], axes=maybe(g, 0.5, [0, 2, 3]))
        return
    axis = g.axis(g.rank(x)) if g.opset >= 11 else g.number(0, g.rank(x) - 1)
    p = g.one_of(None, 1, 2) if op == "LpNormalization" else None
    g.node(op, [x], axis=maybe(g, 0.8, axis), p=p)


@draws(
    "BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization", "RMSNormalization", "LRN"
)
def normalisation(g: G, op: str) -> None:
    epsilon = maybe(g, 0.5, 1e-2)
    if op in ("LayerNormalization", "RMSNormalization"):
        x = g.tensor(np.float32, rank=(1, 4), reuse=0.2)
        axis = g.axis(g.rank(x))
        rest = g.shape(x)[axis % g.rank(x) :]
        if axis == -1:
            axis = maybe(g, 0.7, axis)
        scale = g.tensor(np.float32, rest, constant=0.8)
        if op == "RMSNormalization":
            g.node(op, [x, scale], axis=axis, epsilon=epsilon)
            return
        bias = maybe(g, 0.6, g.tensor(np.float32, rest, constant=0.8))
        outputs = g.one_of(1, 1, 3) if g.opset < 24 else 1
        only = (0, *[i for i in (1, 2) if g.chance(0.6)]) if outputs == 3 else ()
        g.node(op, [x, scale, bias], outputs, only=only, axis=axis, epsilon=epsilon)
        return
    channels = g.number(1, 4)
    x = g.tensor(np.float32, (g.number(1, 2), channels, *g.sizes(g.number(1, 3), 2, 4)), reuse=0)
    if op == "LRN":
        attributes = {"alpha": maybe(g, 0.5, 0.1), "beta": maybe(g, 0.5, 0.6), "bias": maybe(g, 0.5, 2.0)}
        g.node(op, [x], size=g.number(1, 5), **attributes)
        return
    groups = None
    width = channels
    if op == "GroupNormalization":
        groups = int(g.one_of(*[n for n in range(1, channels + 1) if channels % n == 0]))
        width = channels if g.opset >= 21 else groups
    weights = [g.tensor(np.float32, (width,), constant=0.8) for _ in range(2)]
    if op != "BatchNormalization":
        g.node(op, [x, *weights], epsilon=epsilon, num_groups=groups)
        return
    weights += [
        g.tensor(np.float32, (channels,), constant=0.8),
        g.tensor(np.float32, (channels,), low=0.5, constant=0.8),
    ]
    if g.chance(0.2) and g.rank(x) > 2:
        x = g.tensor(np.float32, (3, channels))
    train = g.opset >= 14 and g.chance(0.25)
    only = (0, 1, 2) if train else ()
    momentum = maybe(g, 0.5, 0.75)
    g.node(
        op,
        [x, *weights],
        3 if train else 1,
        only=only,
        epsilon=epsilon,
        momentum=momentum,
        training_mode=1 if train else None,
    )
