"""How nodes of layers are drawn: products, windows, images, quantised numbers, losses, signals, recurrent ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.onnx.operator_draws import FLOATS, G, maybe
from tests.onnx.operator_graphs import ONNX_TYPES, draws


# -- products ---------------------------------------------------------------------------------------------------------
@draws("MatMul", "Gemm", "Einsum", "Det", "MatMulInteger", "QLinearMatMul")
def products(g: G, op: str) -> None:
    n, k, m = g.sizes(3)
    k = k or 1 if op in ("QLinearMatMul", "MatMulInteger") else k  # onnxruntime leaves a product of nothing unwritten
    dtype = g.one_of(np.float32, np.float32, np.float64, *((np.int32, np.int64) if g.opset >= 9 else ()))
    if op == "Gemm":
        ta, tb = g.one_of(None, 0, 1), g.one_of(None, 0, 1)
        dtype = g.one_of(*FLOATS)
        inputs: list[Any] = [g.tensor(dtype, (k, n) if ta else (n, k)), g.tensor(dtype, (m, k) if tb else (k, m))]
        if g.opset < 11 or g.chance(0.6):
            inputs.append(g.tensor(dtype, g.one_of((m,), (n, m), (1, m), (n, 1), (), (1,))))
        g.node(op, inputs, transA=ta, transB=tb, alpha=maybe(g, 0.5, 0.5), beta=maybe(g, 0.5, 2.0))
    elif op == "Einsum":
        equation, shapes = g.one_of(
            ("ij,jk->ik", [(n, k), (k, m)]), ("bij,bjk->bik", [(2, n, k), (2, k, m)]), ("ij->ji", [(n, k)]),
            ("ij->", [(n, k)]), ("ii->i", [(n, n)]), ("...ij,...jk->...ik", [(2, n, k), (k, m)]),
            ("i,j->ij", [(n,), (m,)]),
            ("ij,jk", [(n, k), (k, m)]), ("ii", [(n, n)]), ("bhid, bhjd -> bhij", [(1, 2, n, k), (1, 2, m, k)]),
            ("ij,ij->i", [(n, k), (n, k)]), ("i,i,i->i", [(n,)] * 3), ("...i->...", [(2, n, k)]), ("ba", [(n, k)]),
        )  # fmt: skip
        dtype = g.one_of(np.float32, np.float64)
        g.node(op, [g.tensor(dtype, shape) for shape in shapes], equation=equation)
    elif op == "Det":
        g.node(op, [g.tensor(np.float32, (*g.sizes(g.number(0, 2)), n, n), reuse=0)])
    elif op == "MatMul":
        lead = g.sizes(g.number(0, 2), 1, 3)
        a, b = (*lead, n, k), (*g.broadcast(lead), k, m)
        if g.chance(0.15):
            a = (k,)
        if g.chance(0.15):
            b = (k,)
        g.node(op, [g.tensor(dtype, a), g.tensor(dtype, b)])
    else:
        if op == "MatMulInteger":
            kinds = (g.one_of(np.int8, np.uint8), g.one_of(np.int8, np.uint8))
        else:
            kinds = (np.int8, np.int8) if g.chance(0.4) else (np.uint8, np.uint8)
        lead = g.sizes(g.number(0, 1), 1, 2)
        a_, b_ = g.tensor(kinds[0], (*lead, n, k), low=-100, high=100), g.tensor(kinds[1], (k, m), low=-100, high=100)
        if op == "MatMulInteger":
            zeros = [maybe(g, 0.6, g.known(np.array(g.number(0, 5)), kind)) for kind in kinds]
            g.node(op, [a_, b_, *zeros])
            return
        scale = lambda: g.known(np.array(g.one_of(0.5, 0.25, 2.0)), np.float32)  # noqa: E731
        zero = lambda kind: g.known(np.array(g.number(0, 5)), kind)  # noqa: E731
        a_parts, b_parts = [a_, scale(), zero(kinds[0])], [b_, scale(), zero(kinds[1])]
        g.node(op, [*a_parts, *b_parts, g.known(np.array(64.0), np.float32), zero(kinds[0])])


# -- windows ----------------------------------------------------------------------------------------------------------
def window(g: G, spatial: int, sizes: Any, *, dilated: bool = True) -> dict[str, Any]:
    kernel = [g.number(1, min(3, n)) for n in sizes]
    strides = maybe(g, 0.6, [g.number(1, 3) for _ in range(spatial)])
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": strides}
    if dilated and g.chance(0.4):
        attributes["dilations"] = [g.number(1, 2) for _ in range(spatial)]
    choice = g.rng.random()
    if choice < 0.4:
        attributes["pads"] = [g.number(0, max(k - 1, 0)) for k in kernel * 2]
    elif choice < 0.6:
        attributes["auto_pad"] = g.one_of("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")
        if "SAME" in attributes["auto_pad"]:  # onnxruntime forgets dilations, and pads by less than nothing
            attributes.pop("dilations", None)
            attributes["strides"] = [g.number(1, k) for k in kernel]
    return attributes


@draws("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv")
def convolutions(g: G, op: str) -> None:
    spatial = g.number(1, 3) if op in ("Conv", "ConvTranspose") else 2
    group = g.one_of(1, 1, 2, 3)
    inner, outer = g.number(1, 2), g.number(1, 2)
    sizes = g.sizes(spatial, 3, 6)
    attributes = window(g, spatial, sizes)
    kernel = attributes["kernel_shape"]
    if g.chance(0.3) and op != "DeformConv":
        del attributes["kernel_shape"]
    attributes["group"] = group if group > 1 else maybe(g, 0.3, 1)
    shape = (g.number(1, 2), group * inner, *sizes)
    if op == "ConvTranspose":
        w = (group * inner, outer, *kernel)
        strides = attributes.get("strides") or [1] * spatial
        if g.chance(0.3) and "SAME" not in attributes.get("auto_pad", ""):
            attributes["output_padding"] = [g.number(0, max(s - 1, 0)) for s in strides]
        if g.chance(0.15):
            attributes.pop("pads", None)
            attributes["output_shape"] = [n * s for n, s in zip(sizes, strides, strict=True)]
    else:
        w = (group * outer, inner, *kernel)
    if op in ("Conv", "ConvTranspose"):
        bias = maybe(g, 0.5, g.tensor(np.float32, (group * outer,), constant=0.8))
        g.node(op, [g.tensor(np.float32, shape), g.tensor(np.float32, w, constant=0.8), bias], **attributes)
        return
    if op == "DeformConv":
        attributes.pop("auto_pad", None)
        n, h, v = shape[0], *sizes
        defaults = {"pads": [0] * 4, "strides": [1, 1], "dilations": [1, 1]}
        pads, strides, dil = (attributes.get(name) or default for name, default in defaults.items())
        covered = [dil[i] * (kernel[i] - 1) + 1 for i in range(2)]
        out = [(s + pads[i] + pads[i + 2] - covered[i]) // strides[i] + 1 for i, s in enumerate((h, v))]
        groups = g.one_of(1, group)
        offset = g.tensor(np.float32, (n, groups * 2 * kernel[0] * kernel[1], *out), low=-1, high=1)
        mask = maybe(g, 0.5, g.tensor(np.float32, (n, groups * kernel[0] * kernel[1], *out), low=0, high=1))
        bias = maybe(g, 0.5, g.tensor(np.float32, (group * outer,)))
        attributes["offset_group"] = groups
        g.node(op, [g.tensor(np.float32, shape), g.tensor(np.float32, w), offset, bias, mask], **attributes)
        return
    kind = np.uint8
    x = g.tensor(kind, shape, low=0, high=50)
    k = g.tensor(g.one_of(np.uint8, np.int8) if op == "QLinearConv" else kind, w, high=50, constant=0.8)
    if op == "ConvInteger":
        zeros = [maybe(g, 0.5, g.known(np.array(g.number(0, 5)), kind)) for _ in range(2)]
        g.node(op, [x, k, *zeros], **attributes)
        return
    scale = lambda v: g.known(np.array(v), np.float32)  # noqa: E731
    bias = maybe(g, 0.4, g.value(g.array(np.int32, (group * outer,), -50, 50), constant=0.9))
    wk = g.values[k].dtype
    ws, wz = scale(0.5), g.known(np.array(0 if wk == np.int8 else 3), wk)
    if g.chance(0.4):
        ws = g.known(g.rng.integers(1, 4, group * outer) / 4, np.float32)
        wz = g.known(np.zeros(group * outer) if wk == np.int8 else np.full(group * outer, 3), wk)
    zeros = [g.known(np.array(n), kind) for n in (3, 7)]
    g.node(op, [x, scale(0.5), zeros[0], k, ws, wz, scale(16.0), zeros[1], bias], **attributes)


@draws("MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def pools(g: G, op: str) -> None:
    spatial = g.number(1, 3)
    sizes = g.sizes(spatial, 2, 7)
    dtype = np.float32 if op == "LpPool" else g.one_of(np.float32, np.float32, np.float64)
    x = g.tensor(dtype, (g.number(1, 2), g.number(1, 3), *sizes))
    if op.startswith("Global"):
        g.node(op, [x], p=maybe(g, 0.5, g.one_of(1, 3)) if op == "GlobalLpPool" else None)
        return
    dilated = g.opset >= {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[op]
    attributes = window(g, spatial, sizes, dilated=dilated)
    if (op != "LpPool" and g.opset >= 10) or g.opset >= 18:
        attributes["ceil_mode"] = g.one_of(None, 0, 1)
    if op == "AveragePool":
        attributes["count_include_pad"] = g.one_of(None, 0, 1)
    if op == "LpPool":
        attributes["p"] = g.one_of(None, 1, 2, 3)
    outputs = 2 if op == "MaxPool" and g.chance(0.3) else 1
    if op == "MaxPool":
        attributes["storage_order"] = g.one_of(None, 0, 1) if outputs == 2 else None
        if outputs == 2:  # which of equal ones is open
            x = g.value(g.rng.permutation(int(np.prod(g.shape(x)))).reshape(g.shape(x)).astype(np.float32))
    g.node(op, [x], outputs, **attributes)


@draws("MaxUnpool")
def unpool(g: G, op: str) -> None:
    sizes = [2 * g.number(1, 3) for _ in range(g.number(1, 2))]
    x = g.value(g.rng.permutation(2 * int(np.prod(sizes))).reshape((1, 2, *sizes)).astype(np.float32))
    both = {"kernel_shape": [2] * len(sizes), "strides": [2] * len(sizes)}
    y, at = g.node("MaxPool", [x], 2, **both)
    g.node(op, [y, at, maybe(g, 0.3, g.known([1, 2, *sizes]))], **both)


@draws("Resize", "Upsample")
def resize(g: G, op: str) -> None:
    rank = g.number(1, 4) if g.chance(0.2) else 4
    lead = (1, g.number(1, 2), 1, 1)[: max(rank - 2, 0)]
    sizes = g.sizes(min(rank, 2), 2, 6)
    x = g.tensor(np.float32, (*lead, *sizes), reuse=0.2)
    scales = [1.0] * len(lead) + [float(g.one_of(0.5, 1.0, 1.5, 2.0, 0.6, 3.0)) for _ in sizes]
    if op == "Upsample":
        scales = [max(1.0, s) for s in scales]
        mode = g.one_of(None, "nearest", "linear")
        if g.opset < 9:
            g.node(op, [x], mode=mode, scales=scales)
        else:
            g.node(op, [x, g.value(np.array(scales, np.float32), constant=1.0)], mode=mode)
        return
    mode = g.one_of(None, "nearest", "linear", "cubic") if g.opset >= 11 else g.one_of(None, "nearest", "linear")
    if g.opset < 11:
        g.node(op, [x, g.known(scales, np.float32)], mode=mode)
        return
    # onnxruntime crops ("tf_crop_and_resize") other regions than the standard's own evaluator
    ways = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
    ways += ["half_pixel_symmetric"] if g.opset >= 19 else []
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": maybe(g, 0.8, g.one_of(*ways))}
    if mode in (None, "nearest"):
        attributes["nearest_mode"] = g.one_of(None, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    if mode == "cubic":
        attributes |= {"cubic_coeff_a": maybe(g, 0.4, -0.5), "exclude_outside": g.one_of(None, 0, 1)}
        if attributes["exclude_outside"]:  # onnxruntime's own with regions, and with a size of 1
            attributes["coordinate_transformation_mode"] = "half_pixel"
    if g.opset >= 18 and mode in ("linear", "cubic") and g.chance(0.3):
        attributes["antialias"] = 1
    axes = None
    if g.opset >= 18 and g.chance(0.3) and len(lead) == 2:
        axes = [2, 3] if g.chance(0.5) else [3, 2]
        attributes["axes"] = axes
        scales = [scales[a] for a in axes]
    fixed = attributes["coordinate_transformation_mode"] == "align_corners"  # onnxruntime rounds a fractional size
    if g.chance(0.4) or fixed:
        before = [g.shape(x)[a] for a in axes] if axes else g.shape(x)
        target = [max(1, int(n * s)) for n, s in zip(before, scales, strict=True)]
        if g.opset >= 18 and g.chance(0.4):
            attributes["keep_aspect_ratio_policy"] = g.one_of("stretch", "not_larger", "not_smaller")
        g.node(op, [x, None, None, g.known(target)], **attributes)
    else:
        g.node(op, [x, None if g.opset >= 13 else g.known([], np.float32), g.known(scales, np.float32)], **attributes)


@draws("GridSample", "RoiAlign", "Col2Im", "NonMaxSuppression")
def vision(g: G, op: str) -> None:
    n, c, h, w = g.number(1, 2), g.number(1, 2), g.number(2, 5), g.number(2, 5)
    x = g.tensor(np.float32, (n, c, h, w), reuse=0.2)
    if op == "GridSample":
        cubic, linear = ("cubic", "linear") if g.opset >= 20 else ("bicubic", "bilinear")
        grid = g.value((g.rng.uniform(-1.3, 1.3, (n, g.number(1, 4), g.number(1, 4), 2))).astype(np.float32))
        if g.opset >= 20 and g.chance(0.2):
            x = g.tensor(np.float32, (n, c, 3, h, w))
            grid = g.value(g.rng.uniform(-1.3, 1.3, (n, 2, 2, 3, 3)).astype(np.float32))
            cubic = linear
        mode = g.one_of(None, linear, "nearest", cubic)
        padding = g.one_of(None, "zeros", "border", "reflection")
        g.node(op, [x, grid], mode=mode, padding_mode=padding, align_corners=g.one_of(None, 0, 1))
    elif op == "RoiAlign":
        count = g.number(0 if g.chance(0.1) else 1, 3)
        corner = g.rng.uniform(0, 2, (count, 2))
        rois = np.concatenate([corner, corner + g.rng.uniform(0.5, 3, (count, 2))], 1).astype(np.float32)
        attributes: dict[str, Any] = {"mode": g.one_of(None, "avg", "max")}
        attributes["output_height"] = maybe(g, 0.7, g.number(1, 3))
        attributes |= {"output_width": maybe(g, 0.7, g.number(1, 3)), "sampling_ratio": maybe(g, 0.6, g.number(0, 3))}
        attributes["spatial_scale"] = maybe(g, 0.5, 0.5)
        if g.opset >= 16:
            attributes["coordinate_transformation_mode"] = g.one_of(None, "half_pixel", "output_half_pixel")
        g.node(op, [x, g.value(rois), g.value(g.rng.integers(0, n, count).astype(np.int64))], **attributes)
    elif op == "Col2Im":
        image, block = [h + 1, w + 1], [g.number(1, 2), g.number(1, 2)]
        strides, dil, pads = [g.number(1, 2), g.number(1, 2)], [g.number(1, 2), 1], [g.number(0, 1) for _ in range(4)]
        counts = [(image[i] + pads[i] + pads[i + 2] - dil[i] * (block[i] - 1) - 1) // strides[i] + 1 for i in range(2)]
        x = g.tensor(np.float32, (n, c * block[0] * block[1], counts[0] * counts[1]))
        g.node(op, [x, g.known(image), g.known(block)], strides=strides, dilations=dil, pads=pads)
    else:
        boxes = g.rng.uniform(0, 4, (n, 5, 4)).astype(np.float32)
        scores = g.rng.permutation(n * c * 5).reshape(n, c, 5).astype(np.float32) / 10
        limits = [maybe(g, 0.8, g.known([g.number(0, 4)]))]
        limits += [maybe(g, p, g.known([threshold], np.float32)) for p, threshold in ((0.7, 0.3), (0.5, 0.4))]
        g.node(op, [g.value(boxes), g.value(scores), *limits], center_point_box=g.one_of(None, 0, 1))


# -- quantised --------------------------------------------------------------------------------------------------------
@draws("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
def quantised(g: G, op: str) -> None:
    if op == "DynamicQuantizeLinear":
        g.node(op, [g.tensor(np.float32, rank=(1, 3), reuse=0)], 3)
        return
    shape = g.sizes(g.number(1, 4))
    axis = g.axis(len(shape))
    each = g.opset >= 13 and g.chance(0.5)
    axis_ = axis if each else maybe(g, 0.3, axis) if g.opset >= 13 else None
    size = (shape[axis],) if each else ()
    kind = g.one_of(np.int8, np.uint8)
    block = None
    if g.opset >= 21 and g.chance(0.2):
        block = g.number(1, 2)
        axis_ = axis
        size = (*shape[: axis % len(shape)], -(-shape[axis] // block), *shape[axis % len(shape) + 1 :])
    scale = g.value((g.rng.integers(1, 5, size) / 4).astype(np.float32), constant=0.8)
    zero = maybe(g, 0.7, g.value(g.array(kind, size, 0, 9), constant=0.8))
    if op == "QuantizeLinear":
        g.node(op, [g.tensor(np.float32, shape, low=-60, high=60), scale, zero], axis=axis_, block_size=block)
    else:
        x = g.tensor(kind if zero or g.chance(0.5) else np.int32, shape, low=-100, high=100)
        g.node(op, [x, scale, zero], axis=axis_, block_size=block)


# -- losses, signals, attention ----------------------------------------------------------------------
@draws("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def losses(g: G, op: str) -> None:
    n, c = g.number(1, 3), g.number(2, 4)
    more = tuple(g.number(1, 3) for _ in range(g.number(0, 2)))
    x = g.tensor(np.float32, (n, c, *more))
    target = g.rng.integers(0, c, (n, *more)).astype(np.int64)
    ignore = g.one_of(None, 0, -1)
    if ignore == -1:
        target[g.rng.random(target.shape) < 0.3] = -1
    weight = maybe(g, 0.5, g.tensor(np.float32, (c,), low=0.5, high=2))
    outputs = 2 if op == "SoftmaxCrossEntropyLoss" and g.chance(0.4) else 1
    reduction = g.one_of(None, "mean", "sum", "none")
    g.node(op, [x, g.value(target), weight], outputs, ignore_index=ignore, reduction=reduction)


@draws("DFT", "STFT", "MelWeightMatrix")
def signals(g: G, op: str) -> None:
    if op == "MelWeightMatrix":
        sizes = [g.known(np.array(n)) for n in (g.number(2, 4), 16, 8000)]
        g.node(op, [*sizes, *[g.known(np.array(edge), np.float32) for edge in (0.0, 4000.0)]])
        return
    if op == "STFT":
        length, frame = g.number(8, 12), g.number(2, 5)
        x = g.tensor(np.float32, (g.number(1, 2), length, 1))
        win = maybe(g, 0.5, g.tensor(np.float32, (frame,)))
        step = g.known(np.array(g.number(1, 3)))
        wide = g.known(np.array(frame)) if win is None or g.chance(0.5) else None
        g.node(op, [x, step, win, wide], onesided=g.one_of(None, 0, 1))
        return
    rank = g.number(2, 4)
    real = g.chance(0.6)
    inverse = 1 if g.chance(0.3) else None
    x = g.tensor(g.one_of(np.float32, np.float64), (*g.sizes(rank - 1, 2, 5), 1 if real else 2))
    onesided = 1 if real and not inverse and g.chance(0.4) else None
    axis = g.number(0, rank - 2)
    length = maybe(g, 0.4, g.known(np.array(g.number(2, 6))))
    if g.opset < 20:
        g.node(op, [x, length], axis=axis if axis != 1 else maybe(g, 0.5, 1), inverse=inverse, onesided=onesided)
    else:
        axis_ = g.known(np.array(axis - (rank if g.chance(0.4) else 0)))
        g.node(op, [x, length, axis_ if axis != rank - 2 else maybe(g, 0.5, axis_)], inverse=inverse, onesided=onesided)


@draws("HannWindow", "HammingWindow", "BlackmanWindow")
def windows(g: G, op: str) -> None:
    dtype = g.one_of(None, np.float32, np.float64)
    kind = None if dtype is None else ONNX_TYPES[np.dtype(dtype)]
    size = g.known(np.array(g.number(2, 9)), g.one_of(np.int64, np.int32))
    g.node(op, [size], periodic=g.one_of(None, 0, 1), output_datatype=kind)


@draws("Attention", "RotaryEmbedding")
def attention(g: G, op: str) -> None:
    b, heads, q, k, d = g.number(1, 2), g.one_of(1, 2, 4), g.number(1, 4), g.number(1, 4), g.one_of(2, 4)
    if op == "RotaryEmbedding":
        x = g.tensor(np.float32, (b, heads, q, d) if g.chance(0.5) else (b, q, heads * d))
        placed = g.chance(0.5)
        rows = (6,) if placed else (b, q)
        cache = [g.tensor(np.float32, (*rows, d // 2), low=-1, high=1) for _ in range(2)]
        places = [g.value(g.rng.integers(0, 6, (b, q)))] if placed else []
        more = {"interleaved": g.one_of(None, 0, 1), "num_heads": heads if g.rank(x) == 3 else None}
        g.node(op, [x, *cache, *places], **more)
        return
    kv = int(g.one_of(*[n for n in (1, 2, 4) if heads % n == 0]))
    v = g.one_of(d, 3)
    flat = g.chance(0.4)
    shapes = [(b, heads, q, d), (b, kv, k, d), (b, kv, k, v)]
    if flat:
        shapes = [(s[0], s[2], s[1] * s[3]) for s in shapes]
    inputs: list[Any] = [g.tensor(np.float32, s, reuse=0.1, low=-1, high=1) for s in shapes]
    attributes: dict[str, Any] = {"q_num_heads": heads, "kv_num_heads": kv} if flat else {}
    past = g.number(1, 3) if g.chance(0.25) else 0
    mask = None
    if g.chance(0.5):
        mask_shape = g.one_of((q, k + past), (b, 1, q, k + past), (1, heads, q, k + past), (b, heads, q, k + past))
        truths = g.array(np.bool_, mask_shape)
        truths[..., 0] = True
        mask = g.value(truths) if g.chance(0.5) else g.tensor(np.float32, mask_shape)
    inputs.append(mask)
    outputs = 1
    if past:
        inputs += [g.tensor(np.float32, (b, kv, past, n), low=-1, high=1) for n in (d, v)]
        outputs = 3
    if g.chance(0.2):
        outputs = 4
        attributes["qk_matmul_output_mode"] = g.one_of(0, 3)  # onnxruntime masks by its largest number
    only = tuple(i for i in range(outputs) if past or i in (0, 3))
    causal = None if past else g.one_of(None, 0, 1)  # onnxruntime counts from the first key, the standard from the past
    attributes |= {"is_causal": causal, "scale": maybe(g, 0.4, 0.3), "softcap": maybe(g, 0.3, 2.0)}
    g.node(op, inputs, outputs, only=only, **attributes)


# -- recurrent --------------------------------------------------------------------------------------------------------
@draws("LSTM", "GRU", "RNN")
def recurrent(g: G, op: str) -> None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    steps, batch, size, hidden = g.number(1, 5), g.number(1, 3), g.number(1, 3), g.number(1, 3)
    direction = g.one_of(None, "forward", "reverse", "bidirectional")
    ways = 2 if direction == "bidirectional" else 1
    layout = 1 if g.opset >= 14 and op == "RNN" and g.chance(0.2) else None
    tensor = lambda *shape: g.tensor(np.float32, shape, low=-1, high=1, constant=0.8, reuse=0.1)  # noqa: E731
    x = g.tensor(np.float32, (batch, steps, size) if layout else (steps, batch, size))
    inputs: list[Any] = [x, tensor(ways, gates * hidden, size), tensor(ways, gates * hidden, hidden)]
    inputs.append(maybe(g, 0.6, tensor(ways, 2 * gates * hidden)))
    lens = [g.number(0, steps) for _ in range(batch)]
    inputs.append(maybe(g, 0.5, g.value(np.array(lens, np.int32))))
    state = (batch, ways, hidden) if layout else (ways, batch, hidden)
    inputs.append(maybe(g, 0.5, tensor(*state)))
    if op == "LSTM":
        inputs.append(maybe(g, 0.5, tensor(*state)))
        inputs.append(maybe(g, 0.3, tensor(ways, 3 * hidden)))
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction, "layout": layout}
    attributes["clip"] = maybe(g, 0.3, 0.5)
    if g.chance(0.5):
        scaled = ("HardSigmoid", "Elu", "LeakyRelu", "Affine", "ScaledTanh", "ThresholdedRelu")
        kinds = ("Relu", "Tanh", "Sigmoid", "Softsign", *scaled)
        names = [g.one_of(*kinds) for _ in range(ways * {"LSTM": 3, "GRU": 2, "RNN": 1}[op])]
        attributes["activations"] = names
        alphas = [0.3 for n in names if n in scaled]
        betas = [0.6 for n in names if n in ("HardSigmoid", "Affine", "ScaledTanh")]
        own = {"Affine", "ScaledTanh", "ThresholdedRelu"}.intersection(names)  # onnxruntime's defaults are 0 for these
        if (alphas or betas) and (own or g.chance(0.7)):
            attributes |= {"activation_alpha": alphas or None, "activation_beta": betas or None}
    if op == "LSTM":
        attributes["input_forget"] = g.one_of(None, None, 0, 1)
    if op == "GRU":
        attributes["linear_before_reset"] = g.one_of(None, 0, 1)
    outputs = 3 if op == "LSTM" else 2
    only = [i for i in range(outputs) if g.chance(0.7)] or [0]
    g.node(op, inputs, outputs, only=only, **attributes)
