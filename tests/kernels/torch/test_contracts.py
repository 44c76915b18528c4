"""What each fused operation keeps to, tried anew: the table in the documentation is made of these outcomes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from burn_kernels.torch._problems import DRAWN

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def contracts() -> Any:
    generate = str(ROOT / "docs" / "generate")
    sys.path.insert(0, generate)
    try:
        spec = importlib.util.spec_from_file_location("contracts", ROOT / "docs" / "generate" / "contracts.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(generate)
    return module


PROMISED = {
    "element types": "float32, float16, bfloat16",
    "any strides": "yes",
    "zero size": "yes",
    "same bits twice": "yes",
}
LOSSES = ("cross_entropy", "linear_cross_entropy")
OPTIMIZERS = ("adamw", "sgd")
IN_ITS_TYPE = ("linear_cross_entropy", "attention", "attention_packed")
IN_FLOAT32 = ("softmax", "log_softmax", "layer_norm", "rms_norm", "cross_entropy")


def promised(name: str) -> dict[str, str]:
    found = dict(PROMISED)
    found["reductions"] = "none, mean, sum" if name in LOSSES else "–"
    if name in OPTIMIZERS:
        return found | {
            "inputs written": f"never; `{name}_` does",
            "second derivative": "no gradient",
            "torch.compile": "a step is one call",
            "autocast": "–",
        }
    found |= {"inputs written": "never", "second derivative": "yes", "torch.compile": "one call"}
    cast = "its type" if name in IN_ITS_TYPE else "float32" if name in IN_FLOAT32 else "as given"
    return found | {"autocast": cast}


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_every_operation_keeps_to_its_contract(name: str, contracts: Any) -> None:
    assert contracts.outcomes(name) == promised(name)


def test_the_table_has_every_operation(contracts: Any) -> None:
    assert contracts.names() == sorted(DRAWN)  # which operations are missing there: test_check.py


def test_the_page_is_fresh(contracts: Any) -> None:
    assert contracts.main(check=True) == []


def test_an_operation_that_breaks_its_contract_is_seen(contracts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burn_kernels.softmax.reference", lambda x: torch.softmax(x, -1) + 0.1 * torch.rand_like(x))
    found = contracts.outcomes("softmax")
    assert (found["same bits twice"], found["any strides"]) == ("no", "no")
    monkeypatch.setattr("burn_kernels.softmax.reference", lambda x: x.detach().copy_(torch.softmax(x, -1)).clone())
    assert contracts.outcomes("softmax")["inputs written"] == "yes"
