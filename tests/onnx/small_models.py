"""Small real models, built with onnx.helper: an MLP, a CNN, a transformer block, an LSTM, loops and branches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F = TensorProto.FLOAT
I64 = TensorProto.INT64


def info(name: str, shape: list[Any] | None, kind: int = F) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: list[Any],
    inputs: list[Any],
    outputs: list[Any],
    weights: dict[str, Any] | None = None,
    *,
    opset: int = 18,
    functions: list[Any] | None = None,
    name: str = "small",
) -> Any:
    tensors = [numpy_helper.from_array(np.asarray(value), key) for key, value in (weights or {}).items()]
    graph = helper.make_graph(nodes, name, inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid("mine", 1)] if functions else [])
    proto = helper.make_model(graph, opset_imports=opsets, functions=functions or [], ir_version=8)
    onnx.checker.check_model(proto)
    return proto


def _rng() -> np.random.Generator:
    return np.random.default_rng(7)


def _draw(rng: np.random.Generator, *shape: int) -> Any:
    return (rng.standard_normal(shape) / np.sqrt(max(shape[-1], 1))).astype(np.float32)


def mlp() -> tuple[Any, list[Any]]:
    rng = _rng()
    weights = {"w1": _draw(rng, 16, 8), "b1": _draw(rng, 16), "w2": _draw(rng, 16, 4), "b2": _draw(rng, 4)}
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], "fc1", transB=1),
        helper.make_node("Relu", ["h"], ["a"], "relu"),
        helper.make_node("MatMul", ["a", "w2"], ["m"], "fc2"),
        helper.make_node("Add", ["m", "b2"], ["s"], "bias"),
        helper.make_node("Softmax", ["s"], ["y"], "softmax", axis=-1),
    ]
    proto = model(nodes, [info("x", ["n", 8])], [info("y", ["n", 4])], weights)
    return proto, [_draw(rng, 3, 8)]


def cnn() -> tuple[Any, list[Any]]:
    rng = _rng()
    weights = {
        "conv.weight": _draw(rng, 6, 3, 3, 3),
        "conv.bias": _draw(rng, 6),
        "scale": _draw(rng, 6) + 1,
        "shift": _draw(rng, 6),
        "mean": _draw(rng, 6),
        "var": np.abs(_draw(rng, 6)) + 0.5,
        "fc": _draw(rng, 24, 5),
        "shape": np.array([0, -1], np.int64),
    }
    nodes = [
        helper.make_node(
            "Conv", ["x", "conv.weight", "conv.bias"], ["c"], "conv", auto_pad="SAME_LOWER", strides=[2, 2]
        ),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["n"], "norm"),
        helper.make_node("LeakyRelu", ["n"], ["a"], "act", alpha=0.1),
        helper.make_node("MaxPool", ["a"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        helper.make_node("Reshape", ["p", "shape"], ["f"], "flat"),
        helper.make_node("MatMul", ["f", "fc"], ["y"], "head"),
    ]
    proto = model(nodes, [info("x", ["n", 3, 7, 7])], [info("y", ["n", 5])], weights)
    return proto, [_draw(rng, 2, 3, 7, 7)]


def transformer() -> tuple[Any, list[Any]]:
    """One block as PyTorch exports it: shapes worked out with Shape, Gather, Concat."""
    rng = _rng()
    d, heads = 8, 2
    weights = {f"w{name}": _draw(rng, d, d) for name in "qkvo"}
    weights |= {"w1": _draw(rng, d, 16), "w2": _draw(rng, 16, d), "g": _draw(rng, d) + 1, "b": _draw(rng, d)}
    weights |= {"zero": np.array(0, np.int64), "one": np.array(1, np.int64), "axis": np.array([0], np.int64)}
    weights |= {"hd": np.array([heads, d // heads], np.int64), "d": np.array([d], np.int64)}
    weights |= {"scale": np.array((d / heads) ** -0.5, np.float32)}
    nodes = [
        helper.make_node("Shape", ["x"], ["sh"], "shape"),
        helper.make_node("Gather", ["sh", "zero"], ["n"], "batch"),
        helper.make_node("Gather", ["sh", "one"], ["t"], "steps"),
        helper.make_node("Unsqueeze", ["n", "axis"], ["nu"], "un"),
        helper.make_node("Unsqueeze", ["t", "axis"], ["tu"], "ut"),
        helper.make_node("Concat", ["nu", "tu", "hd"], ["split"], "split_shape", axis=0),
        helper.make_node("Concat", ["nu", "tu", "d"], ["merge"], "merge_shape", axis=0),
    ]
    for name in "qkv":
        nodes += [
            helper.make_node("MatMul", ["x", f"w{name}"], [f"{name}0"], f"/attn/{name}/MatMul"),
            helper.make_node("Reshape", [f"{name}0", "split"], [f"{name}1"], f"/attn/{name}/Reshape"),
            helper.make_node(
                "Transpose",
                [f"{name}1"],
                [f"{name}2"],
                f"/attn/{name}/T",
                perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3],
            ),
        ]
    nodes += [
        helper.make_node("MatMul", ["q2", "k2"], ["s0"], "scores"),
        helper.make_node("Mul", ["s0", "scale"], ["s1"], "scaled"),
        helper.make_node("Softmax", ["s1"], ["p"], "softmax", axis=-1),
        helper.make_node("MatMul", ["p", "v2"], ["o0"], "read"),
        helper.make_node("Transpose", ["o0"], ["o1"], "back", perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["o1", "merge"], ["o2"], "merged"),
        helper.make_node("MatMul", ["o2", "wo"], ["o3"], "out"),
        helper.make_node("Add", ["x", "o3"], ["r"], "residual"),
        helper.make_node("LayerNormalization", ["r", "g", "b"], ["ln"], "norm", axis=-1),
        helper.make_node("MatMul", ["ln", "w1"], ["f0"], "up"),
        helper.make_node("Erf", ["f0"], ["f1"], "erf"),
        helper.make_node("Mul", ["f0", "f1"], ["f2"], "gate"),
        helper.make_node("MatMul", ["f2", "w2"], ["f3"], "down"),
        helper.make_node("Add", ["ln", "f3"], ["y"], "residual2"),
    ]
    proto = model(nodes, [info("x", ["n", "t", d])], [info("y", ["n", "t", d])], weights)
    return proto, [_draw(rng, 2, 5, d)]


def lstm() -> tuple[Any, list[Any]]:
    rng = _rng()
    hidden, d = 4, 3
    weights = {
        "W": _draw(rng, 2, 4 * hidden, d),
        "R": _draw(rng, 2, 4 * hidden, hidden),
        "B": _draw(rng, 2, 8 * hidden),
        "lens": np.array([5, 3], np.int32),
    }
    nodes = [
        helper.make_node(
            "LSTM", ["x", "W", "R", "B", "lens"], ["Y", "", "C"], "lstm", hidden_size=hidden, direction="bidirectional"
        ),
        helper.make_node("ReduceSum", ["Y"], ["s"], "sum", keepdims=0),
    ]
    outputs = [info("Y", [5, 2, 2, hidden]), info("C", [2, 2, hidden]), info("s", [])]
    return model(nodes, [info("x", [5, 2, d])], outputs, weights), [_draw(rng, 5, 2, d)]


def gru() -> tuple[Any, list[Any]]:
    rng = _rng()
    weights = {"W": _draw(rng, 1, 12, 3), "R": _draw(rng, 1, 12, 4), "B": _draw(rng, 1, 24)}
    nodes = [helper.make_node("GRU", ["x", "W", "R", "B"], ["Y", "H"], "gru", hidden_size=4, direction="reverse")]
    proto = model(nodes, [info("x", [5, 2, 3])], [info("Y", [5, 1, 2, 4]), info("H", [1, 2, 4])], weights)
    return proto, [_draw(rng, 5, 2, 3)]


def branches() -> tuple[Any, list[Any]]:
    """An If on the data, whose branches read outer values."""
    then = helper.make_graph([helper.make_node("Mul", ["x", "two"], ["t"], "double")], "then", [], [info("t", None)])
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["e"], "turn")], "else", [], [info("e", None)])
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], "sum", keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["c"], "positive"),
        helper.make_node("If", ["c"], ["y"], "choose", then_branch=then, else_branch=other),
    ]
    weights = {"zero": np.array(0, np.float32), "two": np.array(2, np.float32)}
    return model(nodes, [info("x", [3])], [info("y", [3])], weights), [np.array([1, 2, -1], np.float32)]


def loop() -> tuple[Any, list[Any]]:
    """x multiplied by w four times, the sums of all stages stacked."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["state", "w"], ["next"], "step"),
            helper.make_node("ReduceSum", ["next"], ["stage"], "stage_sum", keepdims=0),
            helper.make_node("Identity", ["cond_in"], ["cond_out"], "go_on"),
        ],
        "body",
        [info("i", [], I64), info("cond_in", [], TensorProto.BOOL), info("state", [2, 2])],
        [info("cond_out", [], TensorProto.BOOL), info("next", [2, 2]), info("stage", [])],
    )
    nodes = [helper.make_node("Loop", ["trips", "", "x"], ["last", "stages"], "loop", body=body)]
    weights = {"trips": np.array(4, np.int64), "w": np.array([[0.5, 1], [0, 1]], np.float32)}
    proto = model(nodes, [info("x", [2, 2])], [info("last", [2, 2]), info("stages", [4])], weights)
    return proto, [np.array([[1, 2], [3, 4]], np.float32)]


def scan() -> tuple[Any, list[Any]]:
    """Running sums, read from the end."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["sum", "item"], ["total"], "add"),
            helper.make_node("Identity", ["total"], ["seen"], "id"),
        ],
        "body",
        [info("sum", [2]), info("item", [2])],
        [info("total", [2]), info("seen", [2])],
    )
    nodes = [
        helper.make_node(
            "Scan", ["start", "x"], ["end", "all"], "scan", body=body, num_scan_inputs=1, scan_input_directions=[1]
        )
    ]
    proto = model(
        nodes, [info("x", [3, 2])], [info("end", [2]), info("all", [3, 2])], {"start": np.zeros(2, np.float32)}
    )
    return proto, [np.arange(6, dtype=np.float32).reshape(3, 2)]


def quantised() -> tuple[Any, list[Any]]:
    rng = _rng()
    weights = {
        "q": rng.integers(-100, 100, (6, 4)).astype(np.int8),
        "qs": np.array([0.02, 0.01, 0.03, 0.05], np.float32),
        "qz": np.array([1, -2, 0, 3], np.int8),
        "xs": np.array(0.05, np.float32),
        "xz": np.array(128, np.uint8),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"], "quantize"),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"], "dequantize"),
        helper.make_node("DequantizeLinear", ["q", "qs", "qz"], ["wd"], "weights", axis=1),
        helper.make_node("MatMul", ["xd", "wd"], ["y"], "product"),
    ]
    return model(nodes, [info("x", ["n", 6])], [info("y", ["n", 4])], weights), [_draw(rng, 2, 6)]


def function() -> tuple[Any, list[Any]]:
    """A function of the model with an attribute, called twice."""
    body = [
        helper.make_node("Mul", ["a", "b"], ["ab"]),
        helper.make_node("Elu", ["ab"], ["c"]),
    ]
    body[1].attribute.append(onnx.AttributeProto(name="alpha", type=1, ref_attr_name="strength"))
    scaled_elu = helper.make_function(
        "mine", "scaled_elu", ["a", "b"], ["c"], body, [helper.make_opsetid("", 18)], ["strength"]
    )
    nodes = [
        helper.make_node("scaled_elu", ["x", "w"], ["h"], "first", domain="mine", strength=0.5),
        helper.make_node("scaled_elu", ["h", "x"], ["y"], "second", domain="mine", strength=2.0),
    ]
    weights = {"w": np.array([1, -2, 3], np.float32)}
    return model(nodes, [info("x", [3])], [info("y", [3])], weights, functions=[scaled_elu]), [
        np.array([1, 1, -1], np.float32)
    ]


def positions() -> tuple[Any, list[Any]]:
    """Places that depend on the data: NonZero, Gather, TopK."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["at"], "nonzero"),
        helper.make_node("GatherND", ["x", "rows"], ["first"], "gathered"),
        helper.make_node("TopK", ["x", "k"], ["values", "indices"], "top", axis=-1),
    ]
    weights = {"rows": np.array([[0, 1], [1, 2]], np.int64), "k": np.array([2], np.int64)}
    outputs = [info("at", [2, "m"], I64), info("first", [2]), info("values", [2, 2]), info("indices", [2, 2], I64)]
    return model(nodes, [info("x", [2, 3])], outputs, weights), [np.array([[0, 2, 2], [1, 0, 3]], np.float32)]


MODELS: dict[str, Callable[[], tuple[Any, list[Any]]]] = {
    maker.__name__: maker
    for maker in (mlp, cnn, transformer, lstm, gru, branches, loop, scan, quantised, function, positions)
}
