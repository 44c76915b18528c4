"""The contract of each fused operation, tried anew: the table in the documentation is made of these outcomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import burn_kernels.torch as bk
from burn_kernels import softmax
from burn_kernels.spec import Draw
from burn_kernels.torch._problems import DRAWN


@pytest.fixture(scope="module")
def contracts(generator: Callable[[str], Any]) -> Any:
    return generator("contracts")


PROMISED = {
    "element types": "float32, float16, bfloat16",
    "any strides": "yes",
    "zero size": "yes",
    "same bits twice": "yes",
    "error": "kept",
}
PRODUCTS = ("attention", "attention_packed", "linear", "linear_cross_entropy", "convolution")
LOSSES = ("cross_entropy", "linear_cross_entropy")
WRITERS = {"adam": "adamw_", "adamw": "adamw_", "lion": "lion_", "sgd": "sgd_"}
PLACES = ("argmax", "argmin")


def aten(name: str) -> bool:
    """Asks whether autocast on a GPU hands float32 to torch's own operator of this name."""
    overload = {"sum": ".dim_IntList", "softmax": ".int", "log_softmax": ".int", "mean": ".dim", "var": ".correction"}
    twin = {"cross_entropy": "nll_loss", "residual_layer_norm": "layer_norm", "residual_rms_norm": "rms_norm"}
    known = f"aten::{twin.get(name, name)}{overload.get(name, '')}"
    try:
        return torch._C._dispatch_has_kernel_for_dispatch_key(known, "AutocastCUDA")
    except RuntimeError:  # torch has no operator of this name
        return False


def promised(name: str) -> dict[str, str]:
    contract = dict(PROMISED)
    contract["reductions"] = "none, mean, sum" if name in LOSSES else "–"
    if name in WRITERS:
        return contract | {
            "inputs written": f"never; `{WRITERS[name]}` does",
            "second derivative": "no gradient",
            "torch.compile": "a step is one call",
            "autocast": "–",
        }
    contract |= {"inputs written": "never", "torch.compile": "one call"}
    contract["second derivative"] = "no gradient" if name in PLACES else "yes"
    cast = "its type" if name in PRODUCTS else "float32" if aten(name) else "as given"
    return contract | {"autocast": cast}


def contracts_call(name: str) -> Any:
    return DRAWN[name](Draw(1))


@pytest.fixture(scope="module")
def outcomes(contracts: Any) -> dict[str, dict[str, str]]:
    """The outcomes of all trials."""
    return {name: contracts.outcomes(name) for name in sorted(DRAWN)}


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_every_operation_keeps_to_its_contract(name: str, outcomes: dict[str, dict[str, str]]) -> None:
    assert outcomes[name] == promised(name)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", sorted(DRAWN))
def test_errors_of_kernels_on_a_gpu(name: str, dtype: torch.dtype) -> None:
    for seed in range(5):
        report = bk.check(ops=[name], shapes=10, dtype=dtype, device="cuda", seed=seed, offsets=False)
        assert report.ok, str(report)
        assert not report.reference_used, str(report)


def test_the_table_has_every_operation(contracts: Any) -> None:
    assert contracts.names() == sorted(DRAWN)  # which operations are missing there: test_check.py


def test_the_page_is_fresh(contracts: Any, outcomes: dict[str, dict[str, str]]) -> None:
    assert contracts.main(check=True, known=outcomes) == []


def test_an_operation_that_breaks_its_contract_is_seen(contracts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax.forward, "reference", lambda x: torch.softmax(x, -1) + 0.1 * torch.rand_like(x))
    odd = contracts.outcomes("softmax")
    assert (odd["same bits twice"], odd["any strides"]) == ("no", "no")
    monkeypatch.setattr(softmax.forward, "reference", lambda x: x.detach().copy_(torch.softmax(x, -1)).clone())
    assert contracts.outcomes("softmax")["inputs written"] == "yes"


def test_a_backward_that_writes_to_its_upstream_gradient_is_seen(
    contracts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def doubled(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return y * (dy.mul_(1.5) - (y * dy).sum(-1, keepdim=True))

    monkeypatch.setattr(softmax.backward, "reference", doubled)
    calls = [contracts_call("softmax")]
    assert contracts.inputs_written("softmax", calls) == "yes"


def test_a_type_that_does_not_come_out_is_not_listed(contracts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax.forward, "reference", lambda x: torch.softmax(x.double(), -1))
    assert contracts.element_types("softmax", [contracts_call("softmax")]) == ""
