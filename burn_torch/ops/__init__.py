"""The table: one row an operation, one file a family.

`from burn_torch import ops`, then `ops.exp(x)`.  A row holds everything about its operation; backends, the tape, the
tests, the methods of Tensor and the docs read it here.
"""

from __future__ import annotations

import importlib
from typing import Any

from burn_torch.core.spec import TensorSpec
from burn_torch.ops.op import REGISTRY, Call, Op, op
from burn_torch.ops.signature import Number, Operand
from burn_torch.ops.value import Executor, Value

__all__ = ["REGISTRY", "Call", "Executor", "Number", "Op", "Operand", "TensorSpec", "Value", "op"]

FAMILIES = (
    "arithmetic",
    "functions",
    "trigonometry",
    "comparison",
    "logic",
    "selection",
    "shapes",
    "slicing",
    "indexing",
    "scattering",
    "reductions",
    "extremes",
    "scans",
    "order",
    "creation",
    "products",
    "placement",
    "activations",
    "randomness",
    "updates",
    "convolution",
    "folding",
    "max_pooling",
    "mean_pooling",
    "resampling",
    "grid_sampling",
    "smooth_activations",
    "softmaxes",
    "normalisation",
    "batch_normalisation",
    "attending",
    "lookup",
    "losses",
    "linear_gelu",
    "linear_losses",
    "collectives",
)

for _family in FAMILIES:
    importlib.import_module(f"burn_torch.ops.{_family}")
importlib.import_module("burn_torch.ops.batching")  # rules for whole groups of rows, so after the rows
for _forms in ("device_numbers", "device_updates"):  # of rows that stand in the families
    importlib.import_module(f"burn_torch.ops.{_forms}")
globals().update(REGISTRY)  # a row is a plain attribute: 0.2 us less a call than through __getattr__


def __getattr__(name: str) -> Any:
    try:
        return REGISTRY[name]
    except KeyError:
        raise AttributeError(f"the table has no row {name!r}") from None


def __dir__() -> list[str]:
    return sorted([*globals(), *REGISTRY])
