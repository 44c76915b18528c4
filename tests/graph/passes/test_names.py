"""Passes ask rows for their properties, never for their names: a row of one's own is treated as ours are."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import burn_torch
from burn_torch.ops.op import REGISTRY, Op

ROOT = Path(burn_torch.__file__).parent
FILES = sorted([*(ROOT / "graph" / "passes").glob("*.py"), *(ROOT / "fusion" / "rewrites").glob("*.py")])


def rows_asked_for(path: Path) -> Iterator[str]:
    """The rows that a file compares an operation with, by identity or by name."""
    room = path.relative_to(ROOT.parent).with_suffix("").parts
    module = importlib.import_module(".".join(room if room[-1] != "__init__" else room[:-1]))
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Compare):
            continue
        for part in ast.walk(node):
            if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value in REGISTRY:
                if any(isinstance(each, ast.Attribute) and each.attr == "name" for each in ast.walk(node)):
                    yield f"the name {part.value!r}"
            elif isinstance(part, ast.Name) and isinstance(row := getattr(module, part.id, None), Op):
                yield row.name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_pass_names_no_row(path: Path) -> None:
    assert list(rows_asked_for(path)) == []


def test_a_name_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ROOT / "graph" / "passes" / "narrowing.py"
    text = asked.read_text().replace("node.call.op.law(Converts) is None", 'node.call.op.name != "cast"')
    monkeypatch.setattr(Path, "read_text", lambda self: text)
    assert list(rows_asked_for(asked)) == ["the name 'cast'"]
