"""Defines what an ONNX file holds, without importing it: `inspect` and `convert`.  The package onnx is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from burn_torch.core.data import TensorData
from burn_torch.core.errors import OnnxError, RecordError
from burn_torch.core.imports import load_extra
from burn_torch.module import ModuleRecord
from burn_torch.module.record import RecordEntry
from burn_torch.onnx.operators.axes import ONNX_DTYPES
from burn_torch.onnx.reader import MAX_FILE_BYTES
from burn_torch.onnx.tensors import Claims, tensor_data
from burn_torch.record.faults import Unsound
from burn_torch.record.file_format import open_source
from burn_torch.record.layout import checked_shape
from burn_torch.record.listing import Listed, Listing

__all__ = ["listing_of_onnx", "looks_like_onnx", "record_of_onnx"]

MAX_DEPTH: Final = 40
"""How deep graphs may hold graphs."""


def looks_like_onnx(path: Path) -> bool:
    """Returns whether a file is taken for ONNX: by its name, since protobuf has no mark of its own."""
    return path.suffix == ".onnx"


def listing_of_onnx(path: Path) -> Listing:
    """Operators, inputs, outputs and weights; external data is named, and not read.  Raises: OnnxError, RecordError."""
    model = _parse(path)
    graph = model.graph
    tensors = tuple(_list_tensor(proto, path) for proto in graph.initializer)
    opsets = ", ".join(f"{opset.domain or 'ai.onnx'} {opset.version}" for opset in model.opset_import)
    weights = {tensor.name for tensor in tensors}
    counts: dict[str, int] = {}
    for node in _nodes(graph, 0, path):
        name = _text(path, f"{node.domain}." if node.domain else "", node.op_type)
        counts[name] = counts.get(name, 0) + 1
    metadata = {
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "opsets": opsets,
        "inputs": ", ".join(_value(info) for info in graph.input if info.name not in weights),
        "outputs": ", ".join(_value(info) for info in graph.output),
        "operators": ", ".join(f"{name} x {count}" for name, count in sorted(counts.items())),
        **{f"metadata.{entry.key}": entry.value for entry in model.metadata_props},
    }
    return Listing(str(path), "ONNX", f"IR {model.ir_version}", path.stat().st_size, tensors, metadata)


def record_of_onnx(path: Path) -> ModuleRecord:
    """The weights by their names, read when they are asked for.  Raises: OnnxError, RecordError."""
    model = _parse(path)
    entries: dict[str, RecordEntry] = {}
    claims = Claims()
    faults = []
    for proto in model.graph.initializer:
        dtype = ONNX_DTYPES.get(proto.data_type)
        if dtype is None or not proto.name or proto.name in entries:
            faults.append(f"{proto.name or 'a weight without a name'} of ONNX type {proto.data_type}")
            continue
        entries[proto.name] = RecordEntry(dtype, _shape(proto, path), None, _reader(proto, path.parent, claims))
    if faults:
        raise RecordError(
            "the weights of this model cannot be converted",
            given=f"{path}: {', '.join(faults[:20])}",
            expected=f"one weight a name, of {', '.join(sorted({str(dtype) for dtype in ONNX_DTYPES.values()}))}",
            mend="leave them in the ONNX file, or export the model with other types",
        )
    return ModuleRecord(entries, {"module": model.graph.name} if model.graph.name else {})


def _parse(path: Path) -> Any:
    source = open_source(path, "ONNX")  # refuses what is no regular file before it is opened
    if len(source) > MAX_FILE_BYTES:
        raise _damage_error(path, f"{len(source)} bytes, where protobuf holds {MAX_FILE_BYTES}")
    data = bytes(source.bytes)
    onnx = load_extra("onnx", "onnx", "reading ONNX files", error=OnnxError)
    from google.protobuf.message import DecodeError

    try:
        model = onnx.ModelProto.FromString(data)
    except (DecodeError, ValueError, RuntimeError) as err:
        raise _damage_error(path, f"{len(data)} bytes: {err}") from err
    if not model.HasField("graph") or not model.opset_import:
        raise _damage_error(path, f"no {'opset' if model.HasField('graph') else 'graph'}")
    return model


def _damage_error(path: Path, what: str) -> OnnxError:
    return OnnxError(
        "this is not an ONNX model, or it is damaged",
        given=f"{path}: {what}",
        expected="a protobuf of onnx.ModelProto",
        mend="check the path, or export the model again",
    )


def _nodes(graph: Any, depth: int, path: Path) -> Iterator[Any]:
    if depth > MAX_DEPTH:
        raise _damage_error(path, f"graphs within graphs, more than {MAX_DEPTH} deep")
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                yield from _nodes(inner, depth + 1, path)


def _text(path: Path, *parts: Any) -> str:
    """Names, which protobuf gives as bytes where they are no UTF-8.  Raises: OnnxError."""
    for part in parts:
        if not isinstance(part, str):
            raise _damage_error(path, f"a name that is not UTF-8: {part!r}")
    return "".join(parts)


def _reader(proto: object, folder: Path, claims: Claims) -> Callable[[], TensorData]:
    """Reads a weight; one that is read again claims nothing more."""
    unclaimed = [claims]
    return lambda: tensor_data(proto, folder, unclaimed.pop() if unclaimed else None)


def _shape(proto: Any, path: Path) -> tuple[int, ...]:
    try:
        return checked_shape(proto.name, [int(size) for size in proto.dims])
    except Unsound as err:
        raise _damage_error(path, str(err)) from err


def _list_tensor(proto: Any, path: Path) -> Listed:
    shape = _shape(proto, path)
    dtype = ONNX_DTYPES.get(proto.data_type)
    count = 1
    for size in shape:
        count *= size
    where = next((entry.value for entry in proto.external_data if entry.key == "location"), "?")
    about = f"in {where}" if proto.data_location == 1 else ""
    name = f"ONNX type {proto.data_type}" if dtype is None else dtype.name
    return Listed(proto.name, name, shape, None if dtype is None else count * dtype.itemsize, None, about)


def _value(info: Any) -> str:
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        return f"{info.name}: {kind}"
    about = info.type.tensor_type
    dtype = ONNX_DTYPES.get(about.elem_type)
    sizes = [str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in about.shape.dim]
    return f"{info.name} ({', '.join(sizes)}) {'?' if dtype is None else dtype.name}"
