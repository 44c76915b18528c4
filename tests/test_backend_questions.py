"""Nothing above the backends asks which backend it has: it asks for a property, so a leaf of a user's counts too."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import burn_torch
from burn_torch.backend.base import Backend

ROOT = Path(burn_torch.__file__).parent


def kinds(base: type[Backend] = Backend) -> set[str]:
    """The names of all classes of backends."""
    for name in ("autodiff", "batched", "lazy.decorator", "libtorch", "ndarray", "tracing"):
        importlib.import_module(f"burn_torch.backend.{name}")
    return {base.__name__}.union(*(kinds(kind) for kind in base.__subclasses__()))


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} | {
        part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)
    }


def questions(text: str, classes: set[str]) -> Iterator[str]:
    """The expressions of a program that ask for the class of a backend, or for one that is a singleton."""
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("isinstance", "issubclass")
        ):
            if _names(node.args[1]) & classes:
                yield ast.unparse(node)
        elif isinstance(node, ast.Compare):
            if any(_names(side) & classes for side in (node.left, *node.comparators)):
                yield ast.unparse(node)
        elif isinstance(node, ast.MatchClass) and _names(node.cls) & classes:
            yield ast.unparse(node)


def test_nothing_above_the_backends_asks_for_the_class_of_one() -> None:
    classes = kinds() - {"Backend"}
    assert {"Autodiff", "LibTorch", "NdArray", "Batched", "Fusion"} <= classes
    files = [path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] != "backend"]
    asked = {str(path.relative_to(ROOT)): list(questions(path.read_text(encoding="utf-8"), classes)) for path in files}
    assert {path: lines for path, lines in asked.items() if lines} == {}


@pytest.mark.parametrize(
    "line",
    [
        "isinstance(x.backend, (Autodiff, Other))",
        "issubclass(type(x.backend), backend.LibTorch)",
        "type(x.backend) is NdArray",
        "host.backend.leaf() is not LibTorch()",
        "x.backend.__class__ in (LibTorch, NdArray)",
    ],
)
def test_a_question_is_found(line: str) -> None:
    assert list(questions(line, {"Autodiff", "LibTorch", "NdArray"})) == [line]


def test_a_process_that_may_not_ask_for_its_memory_shows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    from burn_torch.cli import one_step

    there = one_step.peak_process_bytes()
    assert there is not None
    assert there > 1 << 20
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert one_step.peak_process_bytes() is None
