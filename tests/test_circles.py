"""No two files of burn_torch need each other at run time, but for the few circles that are part of the design.

An import counts where it stands: at the top of a file or in a function.  Imports for types alone do not count.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import burn_torch

grimp = pytest.importorskip("grimp", reason="reads imports with grimp, which import-linter brings: make setup")

INHERENT = {
    frozenset({"ops", "ops.op", "ops.value"}): "a value applies rows, and a row is applied to values",
    frozenset({"ops.reductions", "ops.rules", "ops.shapes", "ops.slicing"}): "the gradient of sum is expand, and back",
    frozenset({"graph.drawing", "graph.ir", "graph.serialisation", "graph.verifier"}): "graph.show() and to_json()",
}


def imports(package: str) -> dict[str, set[str]]:
    """For each file of a package the files of it that it imports when it runs; names go without the package's."""
    graph = grimp.build_graph(package, exclude_type_checking_imports=True, cache_dir=None)
    short = {name: name.removeprefix(f"{package}.") for name in graph.modules if name != package}
    return {
        short[name]: {short[to] for to in graph.find_modules_directly_imported_by(name) if to in short}
        for name in short
    }


def circles(arrows: Mapping[str, set[str]]) -> list[frozenset[str]]:
    """The groups of files from each of which every other one is reached."""
    reach = {name: set(to) for name, to in arrows.items()}
    for middle in arrows:  # Warshall
        for to in reach.values():
            if middle in to:
                to |= reach[middle]
    groups = {
        frozenset(other for other in reach[name] if name in reach[other]) for name in reach if name in reach[name]
    }
    return sorted(groups, key=sorted)


def test_no_circle_but_the_inherent_ones() -> None:
    there = circles(imports("burn_torch"))
    assert [sorted(circle) for circle in there if circle not in INHERENT] == []
    assert set(there) == set(INHERENT), "a circle that is gone leaves the list"


def test_the_kernel_library_has_no_circle() -> None:
    assert circles(imports("burn_kernels")) == []


def test_a_circle_is_found_through_an_import_in_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house = tmp_path / "some_house"
    house.mkdir()
    (house / "__init__.py").touch()
    (house / "a.py").write_text("import os\nfrom some_house.b import x\n")
    (house / "b.py").write_text("def f():\n    from some_house import a\n")
    (house / "c.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from some_house.a import x\nimport some_house.b\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert imports("some_house") == {"a": {"b"}, "b": {"a"}, "c": {"b"}}
    assert circles(imports("some_house")) == [frozenset("ab")]


def test_no_import_is_hidden_in_a_string() -> None:
    """`import_module` of a fixed name of ours is an import that no tool sees; tables of names are looked up by key."""
    package = Path(burn_torch.__file__).parent
    hidden = re.compile(r"""import_module\(f?["']burn_torch\.[\w.]*["']""")
    names = [path.name for path in package.rglob("*.py") if hidden.search(path.read_text(encoding="utf-8"))]
    assert names == []
