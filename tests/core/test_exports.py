"""The public names of a package: what it imports, but modules and names that begin with an underscore."""

from __future__ import annotations

import math

from burn_torch.core.exports import list_exports


def test_modules_the_future_and_private_names_are_not_public():
    scope = {"annotations": annotations, "math": math, "_sqrt": math.sqrt, "__name__": "package"}
    list_exports(scope)
    assert scope["__all__"] == []


def test_constants_come_first_then_classes_then_functions():
    scope = dict.fromkeys(["walk", "Alpha", "LIMIT", "X", "beta", "Zeta"], 0)
    list_exports(scope)
    assert scope["__all__"] == ["LIMIT", "Alpha", "X", "Zeta", "beta", "walk"]


def test_names_that_are_imported_when_first_used_are_listed() -> None:
    import burn_torch.backend
    import burn_torch.graph

    assert {"Fusion", "FusionWarning", "LibTorch"} <= {*dir(burn_torch.backend)}
    assert {"Graph", "dead_code"} <= {*dir(burn_torch.graph)}
