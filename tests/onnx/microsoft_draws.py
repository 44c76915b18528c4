"""How nodes of com.microsoft are drawn: what onnxruntime's optimisers and quantisers write."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.onnx.layer_draws import window
from tests.onnx.operator_draws import G, maybe
from tests.onnx.operator_graphs import MICROSOFT, draws


def ms(*ops: str) -> Any:
    return draws(*(MICROSOFT + op for op in ops))


def small(g: G, *shape: int, constant: float = 0.5) -> str:
    return g.tensor(np.float32, shape, low=-1, high=1, constant=constant, reuse=0.1)


# -- element by element -------------------------------------------------------------------------------------------
@ms("Gelu", "FastGelu", "BiasGelu", "QuickGelu")
def gelus(g: G, op: str) -> None:
    x = g.tensor(np.float32, rank=(1, 4), low=-1, reuse=0.1)  # far below 0 onnxruntime's erf is coarse
    bias = g.tensor(np.float32, g.shape(x)[-1:], low=-1, reuse=0.1)
    if op.endswith("BiasGelu"):
        g.node(op, [x, bias])
    elif op.endswith("FastGelu"):
        g.node(op, [x, maybe(g, 0.5, bias)])
    else:
        g.node(op, [x], alpha=maybe(g, 0.5, float(g.one_of(0.5, 1.0, 2.0))) if "Quick" in op else None)


@ms("ExpandDims", "Inverse", "Trilu", "Unique", "Range", "Pad", "GatherND", "GridSample", "CDist")
def various(g: G, op: str) -> None:
    word = op.removeprefix(MICROSOFT)
    if word == "ExpandDims":
        x = g.tensor(np.float32, rank=(0, 3))
        g.node(op, [x, g.known(np.array(g.axis(g.rank(x) + 1)), np.int32)])
    elif word == "Inverse":
        n = g.number(1, 3)
        x = g.array(np.float32, (*g.sizes(g.number(0, 2)), n, n), -1, 1) + 4 * np.eye(n, dtype=np.float32)
        g.node(op, [g.value(x)])
    elif word == "Trilu":
        x = g.tensor(g.one_of(np.float32, np.int64), rank=(2, 4))
        g.node(op, [x, maybe(g, 0.6, g.known(np.array(g.number(-4, 4))))], upper=g.one_of(None, 0, 1))
    elif word == "Unique":
        only = [0, *[i for i in (1, 2) if g.chance(0.5)]]
        g.node(op, [g.value(g.array(np.float32, g.sizes(1), -1, 1))], 3, only=only)
    elif word == "Range":
        numbers = [g.number(-3, 3), g.number(-3, 6), g.one_of(1, 2, -1)]
        dtype = g.one_of(np.int64, np.float32)
        g.node(op, [g.known(np.array(n), dtype) for n in numbers[: g.number(2, 3)]])
    elif word == "Pad":
        x = g.tensor(np.float32, rank=(1, 3))
        pads = [g.number(0, 2 if n > 2 else 0) for n in g.shape(x) * 2]
        mode = g.one_of(None, "constant", "edge", "reflect")
        value = g.value(np.array([1.5], np.float32)) if mode in (None, "constant") and g.chance(0.5) else None
        g.node(op, [x, g.known(g.one_of(pads, [pads])), value], mode=mode)
    elif word == "GatherND":
        x = g.tensor(np.float32, rank=(1, 3))
        last = g.number(1, g.rank(x))
        places = [g.rng.integers(0, max(n, 1), (2,)) for n in g.shape(x)[:last]]
        g.node(op, [x, g.value(np.stack(places, -1))])
    elif word == "GridSample":
        x = g.tensor(np.float32, (1, 2, g.number(2, 4), g.number(2, 4)))
        grid = g.value(g.rng.uniform(-1.3, 1.3, (1, 2, 3, 2)).astype(np.float32))
        mode, padding = g.one_of(None, "bilinear", "nearest", "bicubic"), g.one_of(None, "zeros", "border")
        g.node(op, [x, grid], mode=mode, padding_mode=padding, align_corners=g.one_of(None, 0, 1))
    else:
        n, m, k = g.number(1, 4), g.number(1, 4), g.number(1, 3)
        g.node(op, [g.tensor(np.float32, (n, k)), g.tensor(np.float32, (m, k))], metric="sqeuclidean")


# -- products and convolutions ------------------------------------------------------------------------------------
ACTIVATIONS: dict[str, tuple[float, ...]] = {
    "Relu": (), "Sigmoid": (), "Tanh": (), "LeakyRelu": (0.2,), "HardSigmoid": (0.3, 0.4), "Clip": (-0.5, 1.5),
}  # fmt: skip


@ms("FusedMatMul", "TransposeMatMul", "FusedGemm")
def products(g: G, op: str) -> None:
    n, k, m = g.sizes(3, 1)
    n, k, m = n or 1, k or 1, m or 1
    ta, tb, alpha = g.one_of(None, 0, 1), g.one_of(None, 0, 1), maybe(g, 0.5, 0.5)
    if op.endswith("FusedGemm"):
        inputs = [g.tensor(np.float32, (k, n) if ta else (n, k)), g.tensor(np.float32, (m, k) if tb else (k, m))]
        inputs.append(maybe(g, 0.6, g.tensor(np.float32, g.one_of((m,), (n, m), (n, 1), (1,)))))
        kind = g.one_of("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "HardSigmoid", "Selu", "Softplus", "Softsign")
        own = {
            "activation_alpha": 0.3 if kind in ("LeakyRelu", "Elu", "HardSigmoid", "Selu") else None,
            "activation_beta": 0.4 if kind == "HardSigmoid" else None,
            "activation_gamma": 1.2 if kind == "Selu" else None,
        }
        g.node(op, inputs, activation=kind, transA=ta, transB=tb, alpha=alpha, beta=maybe(g, 0.5, 2.0), **own)
        return
    lead = g.sizes(g.number(0, 2), 1, 3)
    shapes = [list((*lead, k, n) if ta else (*lead, n, k)), list((*lead, m, k) if tb else (*lead, k, m))]
    more: dict[str, Any] = {}
    if lead and "Fused" in op and g.chance(0.4):
        for i, name in enumerate(("transBatchA", "transBatchB")):
            if g.chance(0.6):
                shapes[i] = [shapes[i][-2], *shapes[i][:-2], shapes[i][-1]]
                more[name] = 1
    g.node(op, [g.tensor(np.float32, s) for s in shapes], transA=ta, transB=tb, alpha=alpha, **more)


@ms("FusedConv")
def fused_conv(g: G, op: str) -> None:
    group, inner, outer = g.one_of(1, 1, 2), g.number(1, 2), g.number(1, 2)
    sizes = g.sizes(2, 3, 6)
    attributes = window(g, 2, sizes)
    x = g.tensor(np.float32, (g.number(1, 2), group * inner, *sizes))
    w = g.tensor(np.float32, (group * outer, inner, *attributes["kernel_shape"]), constant=0.8)
    attributes["group"] = group
    (y,) = g.node("Conv", [x, w], **attributes)
    z = maybe(g, 0.4, g.tensor(np.float32, g.shape(y)))
    kind = g.one_of(*ACTIVATIONS)
    bias = maybe(g, 0.5, g.tensor(np.float32, (group * outer,), constant=0.8))
    g.node(op, [x, w, bias, z], activation=kind, activation_params=list(ACTIVATIONS[kind]), **attributes)


# -- norms --------------------------------------------------------------------------------------------------------
@ms("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def skip_norms(g: G, op: str) -> None:
    b, s, d = g.number(1, 2), g.number(1, 3), g.number(2, 5)
    skip = small(g, *g.one_of((b, s, d), (1, s, d), (s, d)))
    weights = [small(g, d) for _ in range(3)]
    weights = weights[1:] if "Simplified" in op else [weights[0], maybe(g, 0.6, weights[1]), weights[2]]
    weights[-1] = maybe(g, 0.5, weights[-1])
    only = (0, 3) if g.chance(0.5) else (0,)
    g.node(op, [small(g, b, s, d), skip, *weights], 4, only=only, epsilon=maybe(g, 0.7, 1e-2))


@draws("SimplifiedLayerNormalization")
def simplified_norm(g: G, op: str) -> None:
    x = g.tensor(np.float32, rank=(1, 4), reuse=0.2)
    axis = g.axis(g.rank(x))
    g.node(op, [x, g.tensor(np.float32, g.shape(x)[axis % g.rank(x) :])], axis=axis, epsilon=maybe(g, 0.7, 1e-2))


@ms("EmbedLayerNormalization")
def embedding(g: G, op: str) -> None:
    b, s, d = g.number(1, 2), g.number(1, 4), g.number(2, 5)
    ids = lambda n: g.value(g.rng.integers(0, n, (b, s)).astype(np.int32))  # noqa: E731
    tables = [small(g, n, d) for n in (6, 7, 2)]
    segments = g.chance(0.6)
    places = ids(7) if g.chance(0.3) else None
    mask = maybe(g, 0.5, g.value(g.rng.integers(0, 2, (b, s)).astype(np.int32)))
    inputs = [ids(6), ids(2) if segments else None, *tables[:2], tables[2] if segments else None]
    outputs = g.one_of(1, 2, 3)
    g.node(op, [*inputs, small(g, d), small(g, d), mask, places], outputs, epsilon=1e-2)


# -- attention ----------------------------------------------------------------------------------------------------
def key_mask(g: G, b: int, rows: int, past: int) -> str | None:
    """A mask of the forms that there are, which shows each query a key."""
    columns = past + rows
    kind = g.number(0, 3)
    if kind == 0:
        return None
    if kind == 1:
        return g.value(g.rng.integers(1, columns + 1, (b,)).astype(np.int32))
    truths = g.rng.integers(0, 2, (b, columns) if kind == 2 else (b, rows, columns)).astype(np.int32)
    truths[..., 0] = 1
    return g.value(truths)


@ms("Attention", "MultiHeadAttention")
def attention(g: G, op: str) -> None:
    b, heads, rows, d = g.number(1, 2), g.one_of(1, 2), g.number(1, 4), g.one_of(2, 4)
    width = heads * d
    past = g.number(1, 3) if g.chance(0.3) else 0
    more: dict[str, Any] = {"num_heads": heads, "scale": maybe(g, 0.4, 0.3), "unidirectional": g.one_of(None, 0, 1)}
    outputs = 1
    if op.endswith(".Attention"):
        depth = g.number(2, 5)
        sizes = [width, width, heads * g.one_of(2, 3) if not past else width]
        more["qkv_hidden_sizes"] = sizes if sizes[2] != width or g.chance(0.3) else None
        inputs: list[Any] = [small(g, b, rows, depth), small(g, depth, sum(sizes)), small(g, sum(sizes))]
        inputs.append(key_mask(g, b, rows, past))
        inputs.append(small(g, 2, b, heads, past, d) if past else None)
        inputs.append(maybe(g, 0.3, small(g, g.one_of(1, b), g.one_of(1, heads), rows, past + rows)))
        outputs = 2 if past else 1
        g.node(op, inputs, outputs, **more)
        return
    columns = rows if past or g.chance(0.5) else g.number(1, 4)
    v = d if past else g.one_of(d, 3)
    form = g.number(0, 3) if not past else 0
    if form == 1:
        qkv: list[Any] = [small(g, b, rows, heads, 3, d), None, None]
        columns, v = rows, d
    elif form == 2:
        qkv, v = [small(g, b, rows, width), small(g, b, columns, heads, 2, d), None], d
    elif form == 3:
        qkv, v = [small(g, b, rows, width), small(g, b, heads, columns, d), small(g, b, heads, columns, d)], d
    else:
        qkv = [small(g, b, rows, width), small(g, b, columns, width), small(g, b, columns, heads * v)]
    bias = maybe(g, 0.4, small(g, 2 * width + heads * v)) if form in (0, 1) else None
    if columns != rows or form == 3:
        more["unidirectional"] = None
    mask = None
    if g.chance(0.5):
        truths = g.rng.integers(0, 2, (b, past + columns)).astype(np.int32)
        truths[..., 0] = 1
        mask = g.value(truths)
    scores = maybe(g, 0.3, small(g, g.one_of(1, b), g.one_of(1, heads), rows, past + columns))
    caches = [small(g, b, heads, past, d) for _ in range(2)] if past else []
    g.node(op, [*qkv, bias, mask, scores, *caches], 3 if past else 1, **more)


@ms("RotaryEmbedding")
def rotary(g: G, op: str) -> None:
    b, heads, rows, d = g.number(1, 2), g.one_of(1, 2), g.number(1, 4), g.one_of(4, 8)
    part = g.chance(0.3)
    width = d // 2 if part else d
    x = small(g, b, rows, heads * d) if part or g.chance(0.5) else small(g, b, heads, rows, d)
    caches = [small(g, 9, width // 2) for _ in range(2)]
    places = g.value(g.rng.integers(0, 9, (b, rows))) if g.chance(0.5) else g.value(np.array([g.number(0, 5)]))
    more = {"rotary_embedding_dim": width if part else None, "num_heads": heads if part or g.rank(x) == 3 else None}
    g.node(op, [x, places, *caches], interleaved=g.one_of(None, 0, 1), **more)


@ms("GroupQueryAttention")
def grouped(g: G, op: str) -> None:
    b, own, each, d = g.number(1, 2), g.one_of(1, 2), g.one_of(1, 2), g.one_of(8, 16)
    heads = own * each
    held = g.number(1, 4) if g.chance(0.5) else 0
    rows = 1 if held else g.number(1, 4)
    total = held + rows
    lens = np.full((b,), total - 1, np.int32)
    if held and b > 1 and g.chance(0.5):
        lens[0] = g.number(rows - 1, total - 1)
    packed = g.chance(0.3)
    if packed:
        qkv: list[Any] = [small(g, b, rows, (heads + 2 * own) * d), None, None]
    else:
        qkv = [small(g, b, rows, heads * d), small(g, b, rows, own * d), small(g, b, rows, own * d)]
    caches = [g.value(g.array(np.float32, (b, own, held, d), -1, 1)) for _ in range(2)]
    turned = g.chance(0.5)
    angles = [small(g, 16, d // 2) for _ in range(2)] if turned else [None, None]
    more: dict[str, Any] = {"num_heads": heads, "kv_num_heads": own, "do_rotary": 1 if turned else None}
    more |= {"rotary_interleaved": g.one_of(None, 0, 1) if turned else None, "scale": maybe(g, 0.3, 0.3)}
    more |= {"softcap": maybe(g, 0.2, 2.0), "local_window_size": maybe(g, 0.3, g.number(1, 4))}
    sink = small(g, heads) if g.chance(0.2) else None
    more["smooth_softmax"] = 1 if sink is None and g.chance(0.2) else None
    inputs = [*qkv, *caches, g.value(lens), g.known(np.array(total), np.int32), *angles, None, None, sink]
    g.node(op, inputs, 3, **more)


# -- quantised ----------------------------------------------------------------------------------------------------
def scale(g: G, *choices: float) -> str:
    return g.known(np.array(g.one_of(*(choices or (0.25, 0.5, 1.0)))), np.float32)


def quantised(g: G, kind: Any, *shape: int, some: tuple[float, ...] = ()) -> list[str]:
    """Codes, a scale and a zero point."""
    low = -100 if kind is np.int8 else 0
    codes = g.tensor(kind, shape, low=low, high=100, reuse=0.1)
    return [codes, scale(g, *some), g.known(np.array(g.number(0, 5)), kind)]


def target(g: G, kind: Any, *choices: float) -> list[str]:
    return [scale(g, *choices), g.known(np.array(g.number(0, 9)), kind)]


@ms("QuantizeLinear", "DequantizeLinear")
def linear(g: G, op: str) -> None:
    kind = g.one_of(np.int8, np.uint8)
    shape = g.sizes(g.number(1, 3))
    axis = g.axis(len(shape))
    size = (shape[axis],) if g.chance(0.5) else ()
    own = g.known(g.rng.integers(1, 5, size) / 4, np.float32)
    x = g.tensor(np.float32, shape, low=-60, high=60) if ".Quantize" in op else g.tensor(kind, shape, high=100)
    g.node(op, [x, own, g.known(g.array(kind, size, 0, 9), kind)], axis=axis if size else None)


@ms("QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax", "QLinearConcat", "QLinearWhere")
def pointwise(g: G, op: str) -> None:
    kind = g.one_of(np.int8, np.uint8)
    shape = g.sizes(g.number(1, 3), 1, 4)
    shape = tuple(n or 1 for n in shape)
    word = op.removeprefix(MICROSOFT)
    if word in ("QLinearAdd", "QLinearMul"):
        y = quantised(g, kind, *(g.broadcast(shape) or (1,)))
        wide = (1.0, 2.0) if word == "QLinearAdd" else (16.0, 32.0)
        g.node(op, [*quantised(g, kind, *shape), *y, *target(g, kind, *wide)])
    elif word == "QLinearSigmoid":
        g.node(op, [*quantised(g, kind, *shape, some=(0.01, 0.03)), *target(g, kind, 1 / 128)])
    elif word == "QLinearLeakyRelu":
        g.node(op, [*quantised(g, kind, *shape), *target(g, kind, 0.5)], alpha=maybe(g, 0.7, 0.25))
    elif word == "QLinearSoftmax":
        axis = g.axis(len(shape))
        more = {"axis": axis, "opset": g.one_of(12, 13)}
        g.node(op, [*quantised(g, kind, *shape, some=(0.01, 0.03)), *target(g, kind, 1 / 32)], **more)
    elif word == "QLinearConcat":
        axis = g.axis(len(shape))
        parts = [x for _ in range(g.number(1, 3)) for x in quantised(g, kind, *shape)]
        g.node(op, [*target(g, kind, 0.5), *parts], axis=axis)
    else:
        x, y = (quantised(g, kind, *shape) for _ in range(2))
        g.node(op, [g.value(g.array(np.bool_, shape)), *x, *y, *target(g, kind, 0.5)])


@ms("QLinearAveragePool", "QLinearGlobalAveragePool", "NhwcMaxPool", "QLinearConv")
def windows(g: G, op: str) -> None:
    kind = g.one_of(np.int8, np.uint8)
    sizes = g.sizes(2, 3, 6)
    b, c = g.number(1, 2), g.number(1, 3)
    last = 1 if g.chance(0.5) or "Nhwc" in op else None
    shape = (b, *sizes, c) if last else (b, c, *sizes)
    word = op.removeprefix(MICROSOFT)
    if word == "QLinearGlobalAveragePool":
        g.node(op, [*quantised(g, kind, *shape), *target(g, kind, 0.5)], channels_last=last)
        return
    attributes = window(g, 2, sizes, dilated=word != "QLinearAveragePool")
    attributes.pop("auto_pad", None)
    if word == "NhwcMaxPool":
        g.node(op, [g.tensor(kind, shape)], **attributes)
    elif word == "QLinearAveragePool":
        attributes["count_include_pad"] = g.one_of(None, 0, 1)
        g.node(op, [*quantised(g, kind, *shape), *target(g, kind, 0.5)], channels_last=last, **attributes)
    else:
        kernel = attributes["kernel_shape"]
        w = [g.tensor(np.int8, (2, c, *kernel), low=-20, high=20), scale(g), g.known(np.array(0), np.int8)]
        x = quantised(g, np.uint8, *shape)
        g.node(op, [*x, *w, *target(g, np.uint8, 16.0)], channels_last=last, **attributes)


@ms("QGemm", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "MatMulInteger16")
def quantised_products(g: G, op: str) -> None:
    n, k, m = g.number(1, 4), g.number(1, 4), g.number(1, 4)
    word = op.removeprefix(MICROSOFT)
    kind = g.one_of(np.int8, np.uint8)
    each = g.chance(0.4)
    b_scale = g.known(g.rng.integers(1, 4, (m,)) / 4, np.float32) if each else scale(g)
    zeros = g.known(np.full((m,), 2) if each else np.array(g.number(0, 4)), kind)
    bias = maybe(g, 0.5, g.tensor(np.float32, (m,)))
    if word == "MatMulInteger16":
        g.node(op, [g.tensor(np.int16, (n, k), low=-999, high=999), g.tensor(np.int16, (k, m), low=-999, high=999)])
    elif word == "DynamicQuantizeMatMul":
        b = g.tensor(kind, (k, m), low=0, high=90)
        g.node(op, [g.tensor(np.float32, (n, k), reuse=0), b, b_scale, maybe(g, 0.7, zeros), bias])
    elif word == "MatMulIntegerToFloat":
        a_codes, a_scale, a_zero = quantised(g, np.uint8, *g.sizes(g.number(0, 1), 1, 2), n, k)
        b = g.tensor(kind, (k, m), low=0, high=90)
        g.node(op, [a_codes, b, a_scale, b_scale, maybe(g, 0.7, a_zero), maybe(g, 0.7, zeros), bias])
    else:
        ta, tb = g.one_of(None, 0, 1), g.one_of(None, 0, 1)
        a = quantised(g, np.uint8, *((k, n) if ta else (n, k)))
        b = g.tensor(kind, (m, k) if tb else (k, m), low=0, high=90)
        c = maybe(g, 0.6, g.tensor(np.int32, g.one_of((m,), (n, m)), low=-50, high=50))
        out = target(g, np.uint8, 64.0) if g.chance(0.5) else []
        g.node(op, [*a, b, b_scale, zeros, c, *out], transA=ta, transB=tb, alpha=maybe(g, 0.4, 0.5))


@ms("MatMulNBits", "MatMulBnb4", "GatherBlockQuantized")
def packed(g: G, op: str) -> None:
    block = g.one_of(16, 32)
    n, k = g.number(1, 4), g.number(1, 3) * 16 + (0 if g.chance(0.6) or "Nbits" not in op else 3)
    blocks = -(-k // block)
    word = op.removeprefix(MICROSOFT)
    codes = lambda *shape: g.value(g.rng.integers(0, 256, shape).astype(np.uint8), constant=0.8)  # noqa: E731
    if word == "MatMulBnb4":
        count = n * k
        sizes = g.value((g.rng.integers(1, 5, (-(-count // block),)) / 4).astype(np.float32))
        more = {"K": k, "N": n, "block_size": block, "quant_type": g.number(0, 1)}
        g.node(op, [small(g, 2, k), codes((count + 1) // 2), sizes], **more)
        return
    if word == "GatherBlockQuantized":
        rows, per = g.number(2, 4), 2
        data, width = codes(rows, k // per), blocks
        scales = g.value((g.rng.integers(1, 5, (rows, width)) / 4).astype(np.float32))
        zeros = maybe(g, 0.5, codes(rows, -(-width // per)))
        at = g.value(g.rng.integers(0, rows, g.sizes(g.number(1, 2), 1, 3)))
        g.node(op, [data, at, scales, zeros], bits=4, block_size=block, quantize_axis=1)
        return
    bits = g.one_of(4, 4, 8)
    scales = g.value((g.rng.integers(1, 5, (n, blocks)) / 4).astype(np.float32), constant=0.8)
    zeros = maybe(g, 0.5, codes(n, -(-blocks * bits // 8)))
    bias = maybe(g, 0.4, small(g, n))
    more = {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": 1}
    # with an order onnxruntime forgets the zero points
    order = None if zeros else maybe(g, 0.4, g.value(g.rng.integers(0, blocks, (k,)).astype(np.int32)))
    g.node(op, [small(g, 2, k), codes(n, blocks, block * bits // 8), scales, zeros, order, bias], **more)


@ms("QAttention", "QEmbedLayerNormalization", "DynamicQuantizeLSTM")
def quantised_layers(g: G, op: str) -> None:
    b, s, heads, d = g.number(1, 2), g.number(1, 4), g.one_of(1, 2), g.one_of(2, 4)
    word = op.removeprefix(MICROSOFT)
    if word == "QAttention":
        depth, width = g.number(2, 5), heads * d
        x, x_scale, x_zero = quantised(g, np.uint8, b, s, depth, some=(0.01, 0.02))
        w, w_scale, w_zero = quantised(g, np.int8, depth, 3 * width, some=(0.01, 0.02))
        past = g.number(1, 2) if g.chance(0.3) else 0
        inputs = [x, w, small(g, 3 * width), x_scale, w_scale, key_mask(g, b, s, past), x_zero, w_zero]
        inputs += [small(g, 2, b, heads, past, d)] if past else []
        g.node(op, inputs, 2 if past else 1, num_heads=heads, unidirectional=g.one_of(None, 0, 1))
    elif word == "QEmbedLayerNormalization":
        ids = lambda n: g.value(g.rng.integers(0, n, (b, s)).astype(np.int32))  # noqa: E731
        parts = [quantised(g, np.uint8, *shape, some=(0.01, 0.02)) for shape in ((6, 4), (7, 4), (2, 4), (4,), (4,))]
        mask = maybe(g, 0.5, g.value(g.rng.integers(0, 2, (b, s)).astype(np.int32)))
        tables, scales, zeros = ([part[i] for part in parts] for i in range(3))
        g.node(op, [ids(6), ids(2), *tables, mask, *scales, *zeros], 2, epsilon=1e-2)
    else:
        size, ways = g.number(1, 3), 1
        x = g.tensor(np.float32, (s, b, size), low=-1, high=1, reuse=0)
        w, r = (g.value(g.rng.integers(-90, 90, (ways, n, 4 * d)).astype(np.int8), constant=1.0) for n in (size, d))
        scales = [g.value(np.array([0.01], np.float32), constant=1.0) for _ in range(2)]
        points = [g.value(np.array([0], np.int8), constant=1.0) for _ in range(2)]
        inputs = [x, w, r, maybe(g, 0.5, small(g, ways, 8 * d, constant=1.0)), None, None, None, None]
        g.node(op, [*inputs, scales[0], points[0], scales[1], points[1]], 3, hidden_size=d)
