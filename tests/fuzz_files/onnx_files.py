"""ONNX, its external data, and models whose graphs share names."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.fuzz_files.mutations import bytes_changed, protobuf_changed
from tests.fuzz_files.reader import Reader, either, require_equal

__all__ = ["READERS"]


@cache
def _onnx() -> tuple[bytes, ...]:
    from tests.onnx import small_models

    built = (
        getattr(small_models, name)()[0] for name in ("mlp", "cnn", "lstm", "branches", "loop", "scan", "function")
    )
    return tuple(model.SerializeToString() for model in built)


@cache
def _external_onnx() -> tuple[bytes, ...]:
    from tests.record.hostile.onnx_corpus import external

    return (external("w.data"), external("w.data", offset="16", length="16"))


def read_onnx(path: Path) -> None:
    """Loads a model."""
    from burn_torch import onnx

    onnx.load(path, memory_limit_bytes=64 << 20)


# -- names within If, Loop and Scan ------------------------------------------------------------------------
SCOPED_MODELS: Final = range(30)
"""Seeds of the models whose names are shared anew in each file."""


@cache
def _read_models() -> Mapping[int, tuple[Any, Mapping[str, Any], Sequence[Any]]]:
    """Models whose values all have names of their own, inputs, and the values that a runtime of others gives.

    The runtime is used in a process of its own: it leaves a thread, and this process is forked.
    """
    source, pipe = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(source)
        with os.fdopen(pipe, "wb") as file:
            pickle.dump(dict(_references()), file)
        os._exit(0)
    os.close(pipe)
    with os.fdopen(source, "rb") as file:
        references = pickle.load(file)
    os.waitpid(child, 0)
    assert len(references) > 20
    return {seed: (*_draw_model(seed), values) for seed, values in references.items()}


def _draw_model(seed: int) -> tuple[Any, Mapping[str, Any]]:
    from tests.onnx.control_graphs import ControlModel

    drawn = ControlModel(seed)
    drawn.proto.producer_name = f"control {seed}"
    return drawn.proto, drawn.inputs(3)


def _references() -> Iterator[tuple[int, list[Any]]]:
    for seed in SCOPED_MODELS:
        model, inputs = _draw_model(seed)
        with contextlib.suppress(Exception):  # of a model that the runtime cannot run
            yield seed, [np.asarray(value) for value in _run(model.SerializeToString(), dict(inputs))]


def _run(model: bytes, inputs: dict[str, Any]) -> Sequence[Any]:
    try:
        import onnxruntime as runtime
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        return list(ReferenceEvaluator(model).run(None, inputs))
    options = runtime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads, options.inter_op_num_threads = 4, 1, 1
    return list(runtime.InferenceSession(model, options).run(None, inputs))


def names_shared(data: bytes, rnd: random.Random, others: Sequence[bytes]) -> bytes:
    """The same model with few names, each used wherever the standard's scopes allow; one in five is changed further."""
    from onnx import ModelProto

    from tests.onnx.control_graphs import share_names

    model = ModelProto.FromString(data)
    if not model.producer_name.startswith("control "):
        return protobuf_changed(data, rnd, others)
    shared = share_names(_read_models()[int(model.producer_name.split()[1])][0], rnd.randrange(1 << 30))
    if rnd.random() < 0.8:
        return bytes(shared.SerializeToString())
    shared.producer_name = "changed"  # so it has no reference
    return protobuf_changed(shared.SerializeToString(), rnd, others)


def read_scoped(path: Path) -> None:
    """Loads a model, and compares its values with those that it has under other names."""
    from onnx import ModelProto

    from burn_torch import Device, Tensor, onnx

    model = onnx.load(path, memory_limit_bytes=64 << 20)
    producer = ModelProto.FromString(path.read_bytes()).producer_name
    if not producer.startswith("control "):
        return
    _, inputs, references = _read_models()[int(producer.split()[1])]
    outputs = model.forward(*(Tensor.from_data(value, Device.cpu()) for value in inputs.values()))
    values = outputs if isinstance(outputs, tuple) else (outputs,)
    for i, (ours, theirs) in enumerate(zip(values, references, strict=True)):
        require_equal(f"output {i}", ours.into_data().values, theirs)


READERS: Final[dict[str, Reader]] = {
    "onnx": Reader("m.onnx", _onnx, read_onnx, either(protobuf_changed, protobuf_changed, bytes_changed)),
    "onnx, external": Reader(
        "m.onnx",
        _external_onnx,
        read_onnx,
        either(protobuf_changed, bytes_changed),
        beside=lambda: {"w.data": bytes(64)},
    ),
    "onnx, scopes": Reader(
        "m.onnx",
        lambda: [model.SerializeToString() for model, *_ in _read_models().values()],
        read_scoped,
        names_shared,
    ),
}
