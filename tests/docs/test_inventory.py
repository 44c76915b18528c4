"""Tensor beside Burn's names, and beside the table of rows."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import burn_torch.tensor
from burn_torch.ops import REGISTRY

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def inventory(generator: Callable[[str], Any]) -> Any:
    return generator("inventory")


def test_no_name_of_burn_is_missing(inventory: Any) -> None:
    assert inventory.missing() == []
    assert sum(map(len, inventory.families().values())) > 250


def test_the_page_shows_no_parameter_that_is_refused(inventory: Any) -> None:
    assert (inventory.call("sum"), inventory.call("clamp")) == ("`x.sum()`", "`x.clamp(min=None, max=None)`")
    assert inventory.purpose("detach").endswith("JAX: stop_gradient.")


def test_what_is_left_out_is_a_name_of_burn_and_absent(inventory: Any) -> None:
    names = {name for family in inventory.families().values() for name in family}
    assert set(inventory.LEFT_OUT) <= names
    assert [name for name in inventory.LEFT_OUT if inventory.find(name) is not None] == []


def test_a_missing_name_fails(inventory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "families", lambda: {"a family": ["exp", "no_such_method", "extract"]})
    assert inventory.missing() == ["no_such_method"]
    with pytest.raises(SystemExit, match="Tensor lacks no_such_method"):
        inventory.main(check=True)


def test_the_script_prints_each_name_and_succeeds() -> None:
    process = subprocess.run(
        [sys.executable, "-B", "docs/generate/inventory.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    lines = process.stdout.splitlines()
    assert "matmul · here" in lines
    assert "is_distributed · left out: comes with distributed training" in lines
    assert lines[-1] == "missing: 0"


# -- rows ------------------------------------------------------------------------------------------------
INTERNAL = ("_backward", "_gradient", "_update", "_derivative", "_scatter", "_at")
"""Ends of the names of rows that only gradients and optimizers use."""

OTHER_DOORS = {
    "random_bits": "the words under all distributions",
    "dropout": "burn_torch.nn draws its key by path",
    "fold_key": "core.philox.fold, of a key that is traced",
    "dropout_mask": "burn_torch.nn draws its key by path",
    "all_gather": "burn_torch.distributed",
    "all_reduce": "burn_torch.distributed",
    "broadcast": "burn_torch.distributed",
    "connected_components": "burn_torch.vision",
    "mean_start": "gradients of several processes, see burn_torch.train.strategies.reducing",
    "mean_wait": "gradients of several processes, see burn_torch.train.strategies.reducing",
    "linear_cross_entropy_with_gradients": "compiled steps write it, see burn_torch.fusion.rewrites.chunking",
    "linear_gelu": "compiled steps write it, see burn_torch.fusion.rewrites.endings",
    "matmul_gelu_backward": "compiled steps write it, see burn_torch.fusion.rewrites.endings",
    "reduce_scatter": "burn_torch.distributed",
    "reduce_to": "the gradient of broadcast",
    "batch_norm": "burn_torch.nn keeps its running statistics",
    "binary_cross_entropy": "burn_torch.nn.loss",
    "binary_cross_entropy_with_logits": "burn_torch.nn.loss",
    "cofactors": "the gradient of det",
    "over_gaps": "the gradients of eigh and svd",
    "clone": "outputs of compiled programs that would share memory",
    "cross_entropy": "burn_torch.nn.loss, with Burn's padding tokens",
    "mask_select": "Tensor.mask_select, through selected_by_mask, which carries gradients",
    "negative_log_likelihood": "burn_torch.nn.loss",
    "band_scan": "the gradient of log_band_scan",
    "log_band_scan": "under ctc_loss and burn_torch.nn.loss.RNNTLoss",
    "cummax_with_indices": "under cummax",
    "cummin_with_indices": "under cummin",
    "last_writer": "under scatter",
    "linear_index": "under gather_nd",
    "linear_scan": "the gradient of cumprod",
    "scatter_distinct": "under scatter",
    "sum_to_shape": "what undoes broadcasting in gradients",
}
"""Rows that no method or function of `burn_torch.tensor` reaches by name, and why."""


def reached() -> set[str]:
    """Names of rows that appear as `ops.<row>` in the source of burn_torch.tensor."""
    names: set[str] = set()
    for path in Path(inspect.getfile(burn_torch.tensor)).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ops":
                names.add(node.attr)
    return names


def test_every_row_is_reached_by_a_method_or_function() -> None:
    rows = {name for name, row in REGISTRY.items() if "::" not in name and row.__module__.startswith("burn_torch.ops.")}
    rows = {name for name in rows if not name.endswith(INTERNAL)}
    assert sorted(rows - reached() - set(OTHER_DOORS)) == []


def test_other_doors_lead_to_rows() -> None:
    assert sorted(set(OTHER_DOORS) - set(REGISTRY)) == []
    assert sorted(set(OTHER_DOORS) & reached()) == []


def test_no_method_names_a_row_that_is_not_there() -> None:
    assert sorted(reached() - set(REGISTRY)) == []


def test_all_public_names_are_documented() -> None:
    for name in burn_torch.tensor.__all__:
        member = getattr(burn_torch.tensor, name)
        modules = [member] if isinstance(member, ModuleType) else []
        assert name == "s" or inspect.getdoc(member), name
        for module in modules:
            assert sorted(module.__all__) == module.__all__
            for inner in module.__all__:
                function = getattr(module, inner)
                assert inspect.getdoc(function), f"{name}.{inner}"
                typed = (
                    inspect.isclass(function)
                    or inspect.signature(function).return_annotation is not inspect.Signature.empty
                )
                assert typed, f"{name}.{inner}"
