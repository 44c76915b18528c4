"""The table of rows: files of families are imported by need, and who asks sees every row all the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from burn_torch.core.errors import ArgumentError
from burn_torch.ops import REGISTRY, TensorSpec, op
from burn_torch.ops.registry import FAMILIES, ROWS

ROOT = Path(__file__).parents[2]

CODE = """
import importlib, json, sys, threading
from importlib.machinery import SourceFileLoader
from burn_torch import ops
from burn_torch.ops import registry
for name in registry.ROWS["burn_torch.ops.trigonometry"]:  # as if its rows were new
    registry._HOMES.pop(name)
from burn_torch.ops import REGISTRY, TensorSpec, op

answers = {"kernel": ["burn_torch.fusion" in sys.modules, REGISTRY["fusion::kernel"].name]}
answers["gradient"] = ops.cross_entropy.gradient_rule is not None

try:
    @op()
    def cumsum(x: TensorSpec) -> TensorSpec:
        return x
except Exception as err:
    answers["clash"] = ["burn_torch.ops.scans" in sys.modules, str(err)]

run, begun, may_end = SourceFileLoader.exec_module, threading.Event(), threading.Event()

def run_slowly(self, module):
    if module.__name__ != "burn_torch.ops.scans":
        return run(self, module)
    head, mark, rest = self.get_source(module.__name__).partition("@cumsum.gradient")
    exec(compile(head, self.path, "exec"), vars(module))
    begun.set()
    may_end.wait(5)
    exec(compile(f"from __future__ import annotations\\n{mark}{rest}", self.path, "exec"), vars(module))

SourceFileLoader.exec_module = run_slowly
seen = []
first = threading.Thread(target=lambda: REGISTRY["cumsum"])
second = threading.Thread(target=lambda: seen.append(REGISTRY["cumsum"].gradient_rule is not None))
first.start()
begun.wait(5)
second.start()
second.join(0.2)
answers["while it is imported"] = list(seen)
may_end.set()
first.join()
second.join()
answers["when it is imported"] = seen
SourceFileLoader.exec_module = run

answers["new"] = repr(ops.tan)
answers["order"] = list(REGISTRY)
answers["batch rule"] = REGISTRY["sum"].batch_rule is not None
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers() -> Any:
    """Returns the answers of a fresh process."""
    done = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_rows_come_in_the_order_of_the_families_whatever_was_asked_first(answers: Any) -> None:
    ours = [name for name in answers["order"] if "::" not in name]
    assert ours == [name for home, names in ROWS.items() if ".ops." in home for name in names]


def test_a_row_has_its_gradient_and_the_rule_of_its_group(answers: Any) -> None:
    assert answers["gradient"]
    assert answers["batch rule"]


def test_a_generated_kernel_of_another_process_is_found_where_nothing_is_fused(answers: Any) -> None:
    assert answers["kernel"] == [False, "fusion::kernel"]


def test_a_row_that_the_list_of_homes_lacks_is_found(answers: Any) -> None:
    assert answers["new"] == "<op tan(x)>"


def test_no_thread_meets_a_row_before_its_file_is_whole(answers: Any) -> None:
    assert answers["while it is imported"] == []
    assert answers["when it is imported"] == [True]


def test_a_row_may_not_take_the_name_of_one_whose_file_is_not_imported(answers: Any) -> None:
    was_imported, message = answers["clash"]
    assert not was_imported
    assert message.startswith("op: two rows are named cumsum")


def test_two_rows_of_one_name_are_refused() -> None:
    with pytest.raises(
        ArgumentError, match=r"(?s)two rows are named exp\n.*given: .*exp.*expected: .*functions.*mend: "
    ):

        @op()
        def exp(x: TensorSpec) -> TensorSpec:
            return x


def test_a_name_that_no_row_has_is_missing() -> None:
    assert "no_such_row" not in REGISTRY
    assert REGISTRY.get("no_such_row") is None
    assert "mine::exp" not in REGISTRY
    with pytest.raises(KeyError, match="no_such_row"):
        REGISTRY["no_such_row"]


def test_each_family_has_rows() -> None:
    assert [family for family in FAMILIES if not ROWS[f"burn_torch.ops.{family}"]] == []
