"""The ONNX file: a ModelProto of what was written, large weights in a file beside it, each whole or not at all."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from burn_torch.core.data import TensorData
from burn_torch.core.files import replacing_file
from burn_torch.onnx.exporting.sizes import Formula, Shape, Size, Symbol, formula
from burn_torch.onnx.exporting.unification import Kind
from burn_torch.onnx.exporting.writer import Body, Node, onnx_dtype
from burn_torch.record.file_format import writing
from burn_torch.version import __version__

__all__ = ["EXTERNAL_BYTES", "Document", "written"]

EXTERNAL_BYTES: Final = 2_000_000_000
"""More bytes of weights do not fit into one protobuf file, which holds 2 GiB at most."""
_INSIDE_BYTES: Final = 1024
"""Smaller tensors stay in the model: shapes among them are read before data is."""
_ALIGNMENT: Final = 4096
_UNWRITTEN: Final = "the exported model cannot be written"


class Document(NamedTuple):
    """All that a file holds.  `weights` gives each tensor when it is asked for."""

    name: str
    opset: int
    nodes: Sequence[Node]
    weights: Mapping[str, Callable[[], TensorData]]
    sizes: Mapping[str, int]
    inputs: Mapping[str, Kind]
    outputs: Mapping[str, Kind]
    symbols: Sequence[Symbol]
    metadata: Mapping[str, str]

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights."""
        return sum(self.sizes.values())


@contextmanager
def written(document: Document, path: Path, external_bytes: int) -> Iterator[tuple[Path, Path | None]]:
    """Writes the file under a temporary name, and the file of its weights where they are so large.

    Gives both paths; when the block ends without an error, the model takes its name, and after an error neither is
    there.  The file of weights is named by what it holds, so that an older model keeps its own until the new one is
    there.
    Raises: ArtifactError where they cannot be written.
    """
    external = document.weight_bytes > min(external_bytes, EXTERNAL_BYTES)
    known = _data_files(path)
    data: Path | None = None
    try:
        with writing(path, _UNWRITTEN):
            places: dict[str, tuple[str, int, int]] = {}
            if external:
                data, places = _write_data(document, path)
            content = _model(document, places).SerializeToString()
        with writing(path, _UNWRITTEN), replacing_file(path) as file:
            file.write(content)
            file.flush()
            yield Path(file.name), data
    except BaseException:
        if data is not None and data not in known:
            data.unlink(missing_ok=True)
        raise
    for old in known:
        if old != data:
            with suppress(OSError):  # it is in use elsewhere; nobody reads it any more
                old.unlink()


def _data_files(path: Path) -> list[Path]:
    pattern = re.compile(re.escape(path.name) + r"\.[0-9a-f]{16}\.data")
    with suppress(OSError):
        return [other for other in path.parent.iterdir() if pattern.fullmatch(other.name)]
    return []


def _write_data(document: Document, path: Path) -> tuple[Path, dict[str, tuple[str, int, int]]]:
    """Writes large tensors one after the other; where each lies."""
    large = {name: make for name, make in document.weights.items() if document.sizes[name] >= _INSIDE_BYTES}
    digest = hashlib.blake2b(repr([(name, document.sizes[name]) for name in large]).encode(), digest_size=8)
    for make in large.values():
        digest.update(make().to_bytes())
    final = path.with_name(f"{path.name}.{digest.hexdigest()}.data")
    places: dict[str, tuple[str, int, int]] = {}
    with replacing_file(final) as file:
        for name, make in large.items():
            file.write(b"\0" * (-file.tell() % _ALIGNMENT))
            raw = make().to_bytes()
            places[name] = (final.name, file.tell(), len(raw))
            file.write(raw)
    return final, places


# -- protobuf ----------------------------------------------------------------------------------------------
def _model(document: Document, places: Mapping[str, tuple[str, int, int]]) -> Any:
    from onnx import helper

    opsets = [helper.make_opsetid("", document.opset)]
    graph = helper.make_graph(
        [_node(node, document.symbols) for node in document.nodes],
        document.name,
        [_info(name, kind, document.symbols) for name, kind in document.inputs.items()],
        [_info(name, kind, document.symbols) for name, kind in document.outputs.items()],
        [_tensor(name, make, places.get(name)) for name, make in document.weights.items()],
    )
    model = helper.make_model(
        graph,
        opset_imports=opsets,
        ir_version=helper.find_min_ir_version_for(opsets),
        producer_name="burn_torch",
        producer_version=__version__,
    )
    helper.set_model_props(model, dict(document.metadata))
    return model


def _node(node: Node, symbols: Sequence[Symbol]) -> Any:
    from onnx import helper

    def graph(body: Body) -> Any:
        inputs, outputs = (
            [_info(x, Kind(x.shape, x.dtype), symbols) for x in each] for each in (body.inputs, body.outputs)
        )
        return helper.make_graph([_node(inner, symbols) for inner in body.nodes], body.name, inputs, outputs)

    attributes = {key: graph(x) if isinstance(x, Body) else x for key, x in node.attributes.items()}
    return helper.make_node(node.op, node.inputs, node.outputs, node.name, **attributes)


def _tensor(name: str, make: Callable[[], TensorData], place: tuple[str, int, int] | None) -> Any:
    from onnx import TensorProto

    data = make()
    proto = TensorProto(name=name, dims=data.shape, data_type=onnx_dtype(data.dtype))
    if place is None:
        proto.raw_data = data.to_bytes()
        return proto
    proto.data_location = TensorProto.EXTERNAL
    for key, value in zip(("location", "offset", "length"), place, strict=True):
        proto.external_data.add(key=key, value=str(value))
    return proto


def _info(name: str, kind: Kind, symbols: Sequence[Symbol]) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(name, onnx_dtype(kind.dtype), _named(kind.shape, symbols))


def _named(shape: Shape, symbols: Sequence[Symbol]) -> list[int | str | None]:
    """Sizes as ONNX tells them: numbers, names of dynamic axes, formulas of these, nothing where none is known."""
    sizes: list[int | str | None] = []
    for size in shape:
        known = formula(size, symbols) if isinstance(size, Size) else None
        sizes.append(_text(known, symbols) if known is not None else None if isinstance(size, Size) else size)
    return sizes


def _text(size: Formula, symbols: Sequence[Symbol]) -> str:
    terms = []
    for factor, chosen in size.terms:
        names = " * ".join(symbols[i].name for i in chosen)
        terms.append(names if factor == 1 else f"{factor} * {names}")
    text = " + ".join(terms)
    return text if not size.constant else f"{text} {'+' if size.constant > 0 else '-'} {abs(size.constant)}"
