"""The API reference: every public name has one entry, and docstrings keep what they say when they become markup."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import burn_kernels
import burn_torch
from burn_torch.cli import registry

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def pages() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs" / "reference"))
        yield importlib.import_module("pages")
    for name in ("pages", "docstrings"):
        sys.modules.pop(name)


@pytest.fixture(scope="module")
def entries(pages: Any) -> Counter[str]:
    """How often each path stands in the pages."""
    text = "\n".join(page.text for page in pages.pages())
    headed = re.findall(r"^\.\. (?:auto\w+|py:function):: ([\w.]+)", text, re.MULTILINE)
    also = [path for line in re.findall(r"^   Also: (.+)\.$", text, re.MULTILINE) for path in line.split(", ")]
    return Counter([*headed, *(path.strip("`") for path in also)])


def exported_paths() -> set[str]:
    paths = set()
    for root in (burn_torch, burn_kernels):
        names = [info.name for info in pkgutil.walk_packages(root.__path__, f"{root.__name__}.") if info.ispkg]
        for package in (root.__name__, *(name for name in names if "._" not in name)):
            module = importlib.import_module(package)
            for name in getattr(module, "__all__", ()):
                if not isinstance(getattr(module, name), ModuleType):
                    paths.add(f"{package}.{name}")
    return paths


def test_each_name_that_a_package_exports_has_one_entry(entries: Counter[str]) -> None:
    paths = exported_paths()
    assert len(paths) > 1000
    assert sorted(path for path in paths if entries[path] != 1) == []


def test_each_method_of_tensor_has_one_entry(entries: Counter[str]) -> None:
    names = [name for name in dir(burn_torch.Tensor) if not name.startswith("_")]
    assert len(names) > 250
    assert [name for name in names if entries[f"burn_torch.Tensor.{name}"] != 1] == []


def test_each_row_of_the_table_has_one_entry(entries: Counter[str]) -> None:
    ours = [name for name, op in burn_torch.ops.REGISTRY.items() if op.rule.__module__.startswith("burn_torch.")]
    names = [name for name in ours if "::" not in name]  # rows of a namespace are called by the library alone
    assert len(names) > 200
    assert [name for name in names if entries[f"burn_torch.ops.{name}"] != 1] == []


def test_each_kernel_function_has_one_entry(entries: Counter[str]) -> None:
    for path in ("burn_kernels.softmax.forward", "burn_kernels.attention.backward", "burn_kernels.torch.patch"):
        assert entries[path] == 1


def test_each_command_is_there(pages: Any) -> None:
    (text,) = (page.text for page in pages.pages() if page.stem == "commands")
    headings = re.findall(r"^burn-torch (\w+)\n-+$", text, re.MULTILINE)
    assert headings == list(registry.commands())


def test_the_index_names_each_page(pages: Any) -> None:
    index = (ROOT / "docs" / "reference" / "index.md").read_text(encoding="utf-8")
    (tree,) = re.findall(r"```\{toctree\}\n(.*?)```", index, re.DOTALL)
    assert sorted(tree.split()) == sorted(page.stem for page in pages.pages())


def test_docstrings_keep_formulas_columns_and_sections(pages: Any) -> None:
    docstring = """Sums `xs`s, a*b*c, of x_ and |y|.

    y = x * w_

First line:
    code below it

num_epochs    how often
              the data is read
at, by        two names

* one
* two, which
  goes on

Shapes: x (*s) -> (*s).
Raises: ShapeError if
    the sizes differ."""
    assert "\n".join(pages.as_text(docstring)).split("\n\n") == [
        r"Sums ``xs``\ s, a\*b\*c, of x\_ and \|y\|.",
        "::",
        "   y = x * w_",
        "First line:",
        "::",
        "   code below it",
        "``num_epochs``\n    how often the data is read",
        "``at, by``\n    two names",
        "* one",
        "* two, which goes on",
        r"**Shapes:** x (\*s) -> (\*s).",
        "**Raises:** ShapeError if the sizes differ.\n",
    ]
