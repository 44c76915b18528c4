"""Imports the modules below `tensor` in a drawn order, and prints what that changed and how programs are planned.

python -m tests.import_order SEED
"""

from __future__ import annotations

import hashlib
import importlib
import json
import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

FLOORS = ("core", "symbolic", "ops", "graph", "fusion", "backend")
OURS = tuple(f"burn_torch.{floor}" for floor in FLOORS)
TABLES = {"REGISTRY"}
"""Globals that modules add to by design: each row enters itself in the table of rows."""
PACKAGE = Path(__file__).parent.parent / "burn_torch"


def modules() -> list[str]:
    """All modules of these floors but workers, which are run and not imported."""
    names = []
    for floor in FLOORS:
        for path in (PACKAGE / floor).rglob("*.py"):
            parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
            names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return sorted(names)


def globals_of(names: list[str]) -> dict[str, Any]:
    """Every global of these modules: which object it is, and how much a container holds."""
    held: dict[str, Any] = {}
    for module in names:
        for name, value in vars(sys.modules[module]).items():
            if (
                not name.startswith("__") and name != "REGISTRY" and not isinstance(value, ModuleType)
            ):  # rows list themselves
                size = len(value) if isinstance(value, dict | list | set) else None
                held[f"{module}.{name}"] = (id(value), size)
    return held


def plans() -> str:
    """A digest of how LibTorch plans some programs, on the host and on a GPU, and of their kernels."""
    from burn_torch.backend import LibTorch
    from burn_torch.core.spec import TensorSpec
    from burn_torch.fusion import explain, plan_of
    from tests.fusion.programs import PROGRAMS, traced

    def at(spec: Any, place: str) -> Any:
        return TensorSpec.of(spec.shape, spec.dtype, place) if isinstance(spec, TensorSpec) else spec

    digest = hashlib.sha256()
    for place in ("cpu", "cuda:0"):
        for function, specs, _ in list(PROGRAMS.values())[:6]:
            plan = plan_of(traced(function, [at(spec, place) for spec in specs]), LibTorch().capabilities.choices)
            explained = explain(plan, LibTorch().capabilities.choices)
            digest.update(f"{plan.graph.text()}{plan.notes}{[k.source for k in explained.kernels]}".encode())
    return digest.hexdigest()


def main(seed: int) -> dict[str, Any]:
    """Plans after the first few imports and after all, and the globals that a later import changed."""
    draw = random.Random(seed)
    names = modules()
    draw.shuffle(names)
    changed: list[str] = []
    first, before = "", dict[str, Any]()
    for number, name in enumerate(names):
        importlib.import_module(name)
        after = globals_of([each for each in sys.modules if each.startswith(OURS)])
        changed += [f"{key}, by {name}" for key, held in before.items() if held != after[key]]
        before = after
        if number == 3:
            first = plans()
            before = globals_of([each for each in sys.modules if each.startswith(OURS)])
    return {"changed": changed, "first": first, "last": plans()}


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
