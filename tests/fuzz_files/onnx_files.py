"""ONNX, its external data, and models whose graphs share names."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from tests.fuzz_files.mutations import bytes_changed, protobuf_changed
from tests.fuzz_files.reader import Reader, either

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


READERS: Final[dict[str, Reader]] = {
    "onnx": Reader("m.onnx", _onnx, read_onnx, either(protobuf_changed, protobuf_changed, bytes_changed)),
    "onnx, external": Reader(
        "m.onnx",
        _external_onnx,
        read_onnx,
        either(protobuf_changed, bytes_changed),
        beside=lambda: {"w.data": bytes(64)},
    ),
}
