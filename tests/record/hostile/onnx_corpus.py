"""Damaged and hostile ONNX files.  Needs the package onnx."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.record.hostile.corpus import HUGE, Case, content

F = TensorProto.FLOAT


def model(
    nodes: Any, weights: Any = (), outputs: tuple[str, ...] = ("y",), functions: Any = (), opset: int = 18
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", F, [2, 2])],
        [helper.make_tensor_value_info(name, F, None) for name in outputs],
        list(weights),
    )
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid("own", 1)] if functions else [])
    proto = helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=9)
    return bytes(proto.SerializeToString())


def node(op: str, inputs: Any, outputs: Any, **attributes: Any) -> Any:
    return helper.make_node(op, list(inputs), list(outputs), **attributes)


def weight(dims: list[int], raw: bytes, kind: int = F, name: str = "w") -> Any:
    tensor = TensorProto(name=name, data_type=kind, raw_data=raw)
    tensor.dims.extend(dims)
    return tensor


def external(location: str, *, offset: str = "0", length: str = "16") -> bytes:
    tensor = TensorProto(name="w", data_type=F, data_location=TensorProto.EXTERNAL)
    tensor.dims.extend([2, 2])
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=value)
    return model([node("Add", "xw", "y")], [tensor])


def sound() -> bytes:
    return model(
        [node("MatMul", "xw", "h"), node("Relu", "h", "y")], [numpy_helper.from_array(np.eye(2, dtype=np.float32), "w")]
    )


def hostile_onnx(rnd: random.Random) -> Iterator[Case]:
    data = sound()
    for cut in range(len(data)):
        yield Case(f"onnx cut at {cut}", "onnx", "m.onnx", content(data[:cut]))
    for at in rnd.sample(range(8 * len(data)), 200):
        bad = bytearray(data)
        bad[at // 8] ^= 1 << at % 8
        yield Case(f"onnx bit {at}", "onnx", "m.onnx", content(bytes(bad)), refused=False)
    for i in range(60):
        bad = bytearray(data)
        at = rnd.randrange(len(bad) - 8)
        bad[at : at + 8] = rnd.randbytes(8)
        yield Case(f"onnx bytes {i}", "onnx", "m.onnx", content(bytes(bad)), refused=False)
    add = [node("Add", "xw", "y")]
    for size in HUGE:
        if size < 2**63:
            yield Case(f"onnx dims {size}", "onnx", "m.onnx", content(model(add, [weight([size], b"")])))
            yield Case(f"onnx dims {size} twice", "onnx", "m.onnx", content(model(add, [weight([size, size], b"")])))
            yield Case(f"onnx dims -{size}", "onnx", "m.onnx", content(model(add, [weight([-size], b"")])))
            shape = numpy_helper.from_array(np.array([size], np.int64), "s")
            filled = [node("ConstantOfShape", "s", "w"), node("ReduceMax", "w", "m"), node("Add", "xm", "y")]
            yield Case(f"onnx fill {size}", "onnx", "m.onnx", content(model(filled, [shape])))
            grown = [node("Expand", "ws", "b"), node("ReduceMax", "b", "m"), node("Add", "xm", "y")]
            one = weight([1], bytes(4))
            yield Case(f"onnx expand {size}", "onnx", "m.onnx", content(model(grown, [one, shape])))
            tiled = [node("Tile", "ws", "b"), node("ReduceMax", "b", "m"), node("Add", "xm", "y")]
            yield Case(f"onnx tile {size}", "onnx", "m.onnx", content(model(tiled, [one, shape])))
        for name, value in (("offset", f"{size}"), ("length", f"{size}")):
            yield Case(f"onnx external {name} {size}", "onnx", "m.onnx", beside(external("w.bin", **{name: value})))
    for i, location in enumerate(
        [
            "../secret.bin",
            "/etc/passwd",
            "/dev/zero",
            "/proc/self/mem",
            "..",
            ".",
            "",
            "sub/../../secret.bin",
            "~/w.bin",
            "$HOME/w.bin",
            "w.bin\0",
            "none.bin",
            "http://host/w.bin",
            "file:///etc/passwd",
            "..\\secret.bin",
            "a\\b",
            "link.bin",
            "hard.bin",
            "pipe.bin",
            "folder",
            "sub/link/secret.bin",
        ]
    ):
        yield Case(f"onnx external {i}", "onnx", "m.onnx", beside(external(location)))
    for i, (offset, length) in enumerate(
        [
            ("-1", "16"),
            ("x", "16"),
            ("0", "-16"),
            ("0", "y"),
            ("1e3", "16"),
            ("8", "16"),
            ("0", "15"),
            ("0", "17"),
            ("", ""),
            ("9" * 5000, "16"),
        ]
    ):
        yield Case(f"onnx external part {i}", "onnx", "m.onnx", beside(external("w.bin", offset=offset, length=length)))
    for name, data in shapes_of_graphs().items():
        yield Case(f"onnx {name}", "onnx", "m.onnx", content(data), refused=name != "deep")
    for name, make in {
        "is a folder": lambda path: path.mkdir(),
        "is a pipe": lambda path: os.mkfifo(path),
        "is a device": lambda path: path.symlink_to("/dev/zero"),
        "is not there": lambda path: None,
    }.items():
        yield Case(f"onnx {name}", "onnx", "m.onnx", make)


def beside(data: bytes) -> Callable[[Path], Path]:
    """A model with weights beside it, and ways out of its folder."""

    def make(path: Path) -> Path:
        folder = path.parent / "inner"
        (folder / "sub").mkdir(parents=True)
        (folder / "folder").mkdir()
        (path.parent / "secret.bin").write_bytes(bytes(16))
        (folder / "w.bin").write_bytes(bytes(16))
        (folder / "link.bin").symlink_to("../secret.bin")
        (folder / "sub" / "link").symlink_to("../..")
        os.link(path.parent / "secret.bin", folder / "hard.bin")
        os.mkfifo(folder / "pipe.bin")
        (folder / "m.onnx").write_bytes(data)
        return folder / "m.onnx"

    return make


def shapes_of_graphs() -> dict[str, bytes]:
    """Graphs that cannot run, or would not end."""

    def branch(inner: Any) -> Any:
        return helper.make_graph(inner, "b", [], [helper.make_tensor_value_info("o", F, None)])

    nested: Any = [node("Identity", "x", "o")]
    for _ in range(22):  # protobuf reads 100 levels, of which each takes four
        nested = [
            node("If", ["c"], ["o"], then_branch=branch(nested), else_branch=branch([node("Identity", "x", "o")]))
        ]
    calls = [
        helper.make_function(
            "own",
            f"f{i}",
            ["a"],
            ["b"],
            [
                helper.make_node(f"f{i + 1}", ["a"], ["t"], domain="own"),
                helper.make_node(f"f{i + 1}", ["t"], ["b"], domain="own"),
            ],
            [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)],
        )
        for i in range(40)
    ]
    last = helper.make_function("own", "f40", ["a"], ["b"], [node("Relu", "a", "b")], [helper.make_opsetid("", 18)])
    itself = helper.make_function(
        "own", "f0", ["a"], ["b"], [helper.make_node("f0", ["a"], ["b"], domain="own")], [helper.make_opsetid("own", 1)]
    )
    start = [helper.make_node("f0", ["x"], ["y"], domain="own")]
    return {
        "cycle": model([node("Add", "xb", "a"), node("Add", "xa", "b"), node("Relu", "b", "y")]),
        "own output": model([node("Add", ["x", "y"], "y")]),
        "no producer": model([node("Relu", "q", "y")]),
        "two producers": model([node("Relu", "x", "y"), node("Neg", "x", "y")]),
        "no output": model([node("Relu", "x", "h")]),
        "unknown op": model([node("RunThis", "x", "y")]),
        "foreign op": model([helper.make_node("f", ["x"], ["y"], domain="evil")]),
        "python op": model([helper.make_node("PyOp", ["x"], ["y"], domain="ai.onnx.contrib", code="import os")]),
        "deep": model([*nested, node("Relu", "o", "y")], [weight([], b"\1", TensorProto.BOOL, "c")]),
        "doubling functions": model(start, functions=[*calls, last]),
        "a function of itself": model(start, functions=[itself]),
        "opset 0": model([node("Relu", "x", "y")], opset=0),
        "opset 99999": model([node("Relu", "x", "y")], opset=99_999),
        "short weight": model([node("Add", "xw", "y")], [weight([2, 2], bytes(12))]),
        "long weight": model([node("Add", "xw", "y")], [weight([2, 2], bytes(20))]),
        "no type": model([node("Add", "xw", "y")], [weight([2, 2], bytes(16), 0)]),
        "type 99": model([node("Add", "xw", "y")], [weight([2, 2], bytes(16), 99)]),
        "same weight twice": model([node("Add", "xw", "y")], [weight([2, 2], bytes(16)), weight([2, 2], bytes(16))]),
        "garbage": b"\xff" * 1000,
        "zeros": bytes(1000),
        "text": b"hello",
        "empty": b"",
        "deep protobuf": b"\x3a" * 5000,
        "pickle": b"\x80\x02cos\nsystem\n(X\x09\x00\x00\x00touch ranR.",
    }
