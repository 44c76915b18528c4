"""The drawing of the house: floors follow from imports, circles are refused, every package has a box."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def house(generator: Callable[[str], Any]) -> Any:
    return generator("house")


def test_a_package_stands_above_all_that_it_imports(house: Any) -> None:
    arrows = {"roof": {"wall", "ground"}, "wall": {"ground"}, "ground": set(), "cellar": set()}
    assert house.floors(arrows) == [["ground", "cellar"], ["wall"], ["roof"]]
    assert house.reduced(arrows) == [("roof", "wall"), ("wall", "ground")]


def test_packages_that_import_each_other_have_no_floor(house: Any) -> None:
    with pytest.raises(SystemExit, match="these packages import each other: "):
        house.floors({"a": {"b"}, "b": {"a"}, "c": set()})


def test_imports_in_functions_count_and_those_for_types_alone_do_not(house: Any, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / "a" / "one.py").write_text("if TYPE_CHECKING:\n    import p.c\ndef f():\n    from p.b import x\n")
    assert house.imports(tmp_path, "p") == {"a": {"b"}, "b": set(), "c": set()}


def test_the_drawing_has_a_box_for_each_package(house: Any) -> None:
    text = (ROOT / "docs" / "_static" / "house.svg").read_text(encoding="utf-8")
    packages = {path.parent.name for path in (ROOT / "burn_torch").glob("*/__init__.py")}
    assert packages
    assert {name for name in packages if f">{name}</text>" not in text} == set()
    with pytest.raises(SystemExit):
        house.drawing({"a": {"b"}, "b": {"a"}})
