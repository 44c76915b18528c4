"""Public names: `__all__` lists them, each resolves and has a docstring, the generated stub agrees."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_origin

import pytest

import burn_torch
from burn_torch.ops.op import Op

ROOT = Path(__file__).resolve().parents[1]
WITHOUT_NAMES_OF_THEIR_OWN = {  # packages that only hold modules
    "burn_torch.cli",
    "burn_torch.cli.commands",
    "burn_torch.cli.recipes",
    "burn_torch.core",
    "burn_torch.data.source",
    "burn_torch.symbolic",
    *(f"burn_torch.backend.libtorch.{room}" for room in ("tensors", "generated", "attached", "programs", "recorded")),
    *(
        f"burn_torch.fusion.{room}"
        for room in ("body", "triton", "c", "rows", "rewrites", "planning", "shapes", "telling")
    ),
}

NEED_TEXTUAL = {f"burn_torch.monitor.dashboard.{name}" for name in ("app", "panel", "panels", "popup")}


def imported(name: str) -> ModuleType:
    """The module; its test is skipped where it needs an extra that is absent."""
    if name in NEED_TEXTUAL:
        pytest.importorskip("textual", reason="needs textual: pip install 'burn-torch[tui]'")
    return importlib.import_module(name)


def is_public(name: str) -> bool:
    return not any(part.startswith("_") for part in name.split("."))


def public_modules(*, packages: bool) -> list[str]:
    infos = pkgutil.walk_packages(burn_torch.__path__, "burn_torch.")
    return [info.name for info in infos if is_public(info.name) and (info.ispkg or not packages)]


PACKAGES = public_modules(packages=True)
MODULES = public_modules(packages=False)


def exported(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The classes and functions of ours that a module exports."""
    for name in getattr(module, "__all__", ()):
        value = getattr(module, name)
        ours = str(getattr(value, "__module__", "")).startswith("burn_torch")
        if callable(value) and ours and get_origin(value) is None:  # an alias has the docstring of a type
            yield name, value


def methods(cls: type[Any]) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class itself defines."""
    for name, value in vars(cls).items():
        if not name.startswith("_"):
            function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
            if isinstance(function, property) or inspect.isfunction(function):
                yield name, getattr(cls, name)


def in_order(names: list[str]) -> list[str]:
    """Constants, then classes, then the rest, as ruff sorts them."""
    return sorted(
        names, key=lambda name: (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2, name)
    )


def test_the_walk_finds_the_packages():
    assert {"burn_torch.nn", "burn_torch.train.metric", "burn_torch.backend.autodiff"} <= set(PACKAGES)
    assert {"burn_torch.nn.linear", "burn_torch.core.errors", "burn_torch.cli.main"} <= set(MODULES)


@pytest.mark.parametrize("name", [name for name in PACKAGES if name not in WITHOUT_NAMES_OF_THEIR_OWN])
def test_all_names_what_is_there(name):
    package = importlib.import_module(name)
    there = {
        key
        for key, value in vars(package).items()
        if is_public(key)
        and not inspect.ismodule(value)
        and not isinstance(value, Op)  # rows are attributes of burn_torch.ops by way of the registry
        and str(getattr(value, "__module__", "")).startswith("burn_torch")
    }
    assert there - set(package.__all__) == set()
    assert [key for key in package.__all__ if not hasattr(package, key)] == []
    assert list(package.__all__) == in_order(package.__all__)
    assert len(set(package.__all__)) == len(package.__all__)


@pytest.mark.parametrize("name", sorted(WITHOUT_NAMES_OF_THEIR_OWN))
def test_packages_that_only_hold_modules(name):
    package = importlib.import_module(name)
    assert [key for key, value in vars(package).items() if is_public(key) and not inspect.ismodule(value)] == []


@pytest.mark.parametrize("name", MODULES)
def test_modules_and_what_they_export_have_docstrings(name):
    module = imported(name)
    bare = [] if (module.__doc__ or "").strip() else [name]
    for key, value in exported(module):
        if not (value.__dict__.get("__doc__") if inspect.isclass(value) else inspect.getdoc(value)):
            bare.append(f"{name}.{key}")
        if inspect.isclass(value):
            bare += [f"{name}.{key}.{method}" for method, member in methods(value) if not inspect.getdoc(member)]
    assert bare == []


@pytest.mark.parametrize("name", [name for name in MODULES if name not in PACKAGES])
def test_all_of_a_module_resolves(name):
    module = imported(name)
    names = getattr(module, "__all__", [])
    assert [key for key in names if not hasattr(module, key)] == []


def test_the_names_of_burn_torch_resolve():
    for name in burn_torch.__all__:
        assert getattr(burn_torch, name) is not None
    assert dir(burn_torch) == sorted(burn_torch.__all__)
    assert len(set(burn_torch.__all__)) == len(burn_torch.__all__)
    assert burn_torch.Tensor is importlib.import_module("burn_torch.tensor").Tensor
    with pytest.raises(AttributeError, match="module 'burn_torch' has no attribute 'Tensro'"):
        _ = burn_torch.Tensro


def test_every_package_is_a_name_of_burn_torch():
    top = {name.removeprefix("burn_torch.") for name in PACKAGES if name.count(".") == 1}
    assert top <= set(burn_torch.__all__)


def test_the_stub_is_fresh_and_says_the_same():
    ran = subprocess.run(
        [sys.executable, "-B", "docs/generate", "stub", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stdout + ran.stderr
    tree = ast.parse((ROOT / "burn_torch" / "__init__.pyi").read_text(encoding="utf-8"))
    names = [alias.asname for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(filter(None, names)) == sorted(burn_torch.__all__)


def test_importing_the_package_changes_nothing_else():
    code = """
import sys, warnings
filters, hook = list(warnings.filters), sys.excepthook
import burn_torch
assert (warnings.filters, sys.excepthook) == (filters, hook)
from burn_torch import Tensor
import torch
assert not torch.cuda.is_initialized()
assert torch.get_default_dtype() is torch.float32 and torch.is_grad_enabled()
"""
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
