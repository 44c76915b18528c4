"""Burn, the deep-learning framework, on PyTorch tensors.

Public names are resolved on first use, so that a command line or an error message needs no torch.
"""

from __future__ import annotations

import gc
import importlib
import threading
from types import ModuleType
from typing import Any, Final

from burn_torch.version import __version__

_EXPORTS: Final = {
    "backend": ("Autodiff", "Fusion", "FusionWarning", "LibTorch", "NdArray"),
    "config": ("Config",),
    "core.data": ("TensorData",),
    "core.distribution": ("Distribution",),
    "core.dtype": ("DType",),
    "core.errors": (
        "ArgumentError",
        "ArtifactError",
        "AutodiffError",
        "BoundsError",
        "BurnTorchError",
        "ConfigError",
        "DTypeError",
        "DataError",
        "DeviceError",
        "DistributedError",
        "GraphError",
        "MovedError",
        "NonFiniteError",
        "OnnxError",
        "OutOfMemoryError",
        "RecordError",
        "ShapeError",
        "TraceError",
    ),
    "module": ("Module", "ModuleMapper", "ModuleRecord", "ModuleVisitor", "Param", "ParamId", "RunningState"),
    "core.ambient": ("seed",),
    "module.scope": ("StepScope",),
    "ops.op": ("op",),
    "tensor": (
        "BroadcastWarning",
        "ComplexTensor",
        "CsrTensor",
        "Device",
        "Gradients",
        "JaggedTensor",
        "Tensor",
        "linalg",
    ),
    "transform": (
        "MemoryLimitWarning",
        "PerSampleLoopWarning",
        "RetraceWarning",
        "assert_fused",
        "associative_scan",
        "checkpoint",
        "compile",
        "cond",
        "custom_jvp",
        "custom_vjp",
        "explain",
        "grad",
        "hessian",
        "hvp",
        "jacfwd",
        "jacrev",
        "jvp",
        "linearize",
        "per_sample_grad",
        "scan",
        "value_and_grad",
        "vjp",
        "vmap",
        "while_loop",
    ),
}
"""Public names by the module that has them; `__init__.pyi` says the same to type checkers (make generate)."""

_PACKAGES: Final = (
    "backend",
    "cli",
    "config",
    "core",
    "data",
    "distributed",
    "fusion",
    "graph",
    "module",
    "monitor",
    "nn",
    "onnx",
    "ops",
    "optim",
    "record",
    "symbolic",
    "tensor",
    "train",
    "transform",
    "vision",
)

_HOME: Final = {name: home for home, names in _EXPORTS.items() for name in names}

__all__ = ["__version__", *_HOME, *_PACKAGES]  # noqa: PLE0604  # strings all: the names above


_WITHOUT_TORCH: Final = ("cli", "config", "core", "data", "monitor", "symbolic")


class _Pause:
    """Pauses the collector of garbage while any thread imports; the last one to leave starts it again if it ran."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._was_enabled = False

    def __enter__(self) -> None:
        with self._lock:
            if self._count == 0:
                self._was_enabled = gc.isenabled()
            self._count += 1
            gc.disable()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0 and self._was_enabled:
                gc.enable()


_paused: Final = _Pause()


def _import(name: str) -> ModuleType:
    """Imports a module of this package, with the collector of garbage paused.

    A collection meanwhile would walk all objects of torch, which takes longer than the import (0.11 s of 0.19 s on two
    cores, torch 2.13, 2026-11-23).  torch itself is imported before the pause, or what follows would walk them too.
    """
    if name.partition(".")[0] not in _WITHOUT_TORCH:
        importlib.import_module("torch")
    with _paused:
        return importlib.import_module(f"burn_torch.{name}")


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(_import(_HOME[name]), name)
        globals()[name] = value
        return value
    if name in _PACKAGES:
        return _import(name)
    from burn_torch.core.spellings import missing_from_package
    from burn_torch.core.spellings.packages import BURN_TORCH
    from burn_torch.core.spellings.tensors import FUNCTIONS

    raise missing_from_package("burn_torch", name, {**FUNCTIONS, **BURN_TORCH}, "")


def __dir__() -> list[str]:
    return sorted(__all__)
