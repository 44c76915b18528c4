"""Draws the house from the imports: docs/_static/house.svg, and the tables of floors and rooms of docs/house.md.

A package stands one floor above the highest package that it imports.  Imports inside functions count, imports for types
alone do not.  An arrow that follows from others is not drawn.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from _files import ROOT, refresh

PAGE = "docs/house.md"
DRAWING = "docs/_static/house.svg"
MARKS = "<!-- {}: written by docs/generate/house.py -->", "<!-- end of {} -->"
ROOMS = ("fusion", "backend")
"""Packages with rooms of their own, which the page lists."""
KERNELS = "burn_kernels"
"""The library that the house stands beside."""
BOX, GAP, FLOOR, LANE = (116, 30), 14, 74, 16
"""Width and height of a box, the space between two boxes, the height of a floor, the width of a lane beside them."""


def main(check: bool) -> list[str]:
    """Writes the drawing and the tables."""
    arrows = imports(ROOT / "burn_torch", "burn_torch") | {KERNELS: set()}
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    text = between(text, "floors", table(arrows, "burn_torch"))
    for package in ROOMS:
        path = ROOT / "burn_torch" / package
        rooms = table(imports(path, f"burn_torch.{package}"), f"burn_torch.{package}")
        text = between(text, f"rooms of {package}", rooms)
    return refresh({PAGE: text, DRAWING: drawing(arrows)}, check)


def imports(folder: Path, package: str) -> dict[str, set[str]]:
    """Returns the folders of a package, each with those that its files import."""
    folders = sorted(path.parent.name for path in folder.glob("*/__init__.py"))
    arrows: dict[str, set[str]] = {name: set() for name in folders}
    for name in folders:
        for path in sorted((folder / name).rglob("*.py")):
            for module in imported_modules(ast.parse(path.read_text(encoding="utf-8"))):
                other = module.removeprefix(f"{package}.").partition(".")[0]
                if module.partition(".")[0] == KERNELS and package == "burn_torch":
                    arrows[name].add(KERNELS)
                if module.startswith(f"{package}.") and other in arrows and other != name:
                    arrows[name].add(other)
    return arrows


def imported_modules(tree: ast.AST) -> Iterator[str]:
    """Yields the modules that code imports, but for those for types alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        yield from imported_modules(node)


def floors(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Returns the packages by floor, the ground floor first.  Raises: SystemExit if an arrow climbs."""
    built: list[list[str]] = []
    standing: set[str] = set()
    while len(standing) < len(arrows):
        floor = [name for name in arrows if name not in standing and arrows[name] <= standing]
        if not floor:
            circle = {name: sorted(arrows[name] - standing) for name in sorted(set(arrows) - standing)}
            raise SystemExit(f"docs/generate/house.py: these packages import each other: {circle}")
        built.append(floor)
        standing |= set(floor)
    return built


def reduced(arrows: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Returns the arrows that do not follow from others."""
    below: dict[str, set[str]] = {}
    for floor in floors(arrows):
        for name in floor:
            below[name] = set(arrows[name]).union(*(below[other] for other in arrows[name]))
    return [
        (name, other)
        for name in arrows
        for other in sorted(arrows[name])
        if not any(other in below[between_] for between_ in arrows[name])
    ]


def table(arrows: dict[str, set[str]], package: str) -> str:
    """Returns the packages as a table, the top floor first, each with the first sentence about it."""
    lines = ["| floor | package | for |", "| --- | --- | --- |"]
    for height, floor in reversed(list(enumerate(floors(arrows), 1))):
        for name in floor:
            path = name if name == KERNELS else f"{package}.{name}"
            lines.append(f"| {height} | `{path}` | {about(path)} |")
    return "\n".join(lines)


def about(package: str) -> str:
    """Returns the first line of a package's docstring."""
    root = ROOT / "kernels" if package == KERNELS else ROOT
    path = root.joinpath(*package.split("."), "__init__.py")
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.splitlines()[0].replace("|", "\\|")


def between(text: str, name: str, new: str) -> str:
    """Returns a text with what stands between the marks of a name exchanged."""
    begin, end = (mark.format(name) for mark in MARKS)
    before, rest = text.split(begin)
    return f"{before}{begin}\n\n{new}\n\n{end}{rest.split(end)[1]}"


def drawing(arrows: dict[str, set[str]]) -> str:
    """Returns the house as SVG: a row of boxes a floor, the ground floor below, and an arrow for each import."""
    built = floors(arrows)
    house = max(len(floor) for floor in built) * (BOX[0] + GAP) + GAP
    height_of = {name: at for at, floor in enumerate(built) for name in floor}
    drawn = reduced(arrows)
    long = [arrow for arrow in drawn if height_of[arrow[0]] - height_of[arrow[1]] > 1]
    width, height = house + (len(long) + 1) * LANE, len(built) * FLOOR + GAP
    places: dict[str, tuple[float, float]] = {}
    for at, floor in enumerate(built):
        left = (house - len(floor) * (BOX[0] + GAP) + GAP) / 2
        for n, name in enumerate(floor):
            places[name] = left + n * (BOX[0] + GAP), height - (at + 1) * FLOOR + GAP
    size = f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13"'
    tip = 'viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
        "<title>The packages of burn_torch: each imports those that its arrows lead to, and what these import</title>",
        f'<defs><marker id="tip" {tip}><path d="M0 0L8 4L0 8z" fill="#888"/></marker></defs>',
        f'<rect width="{width}" height="{height}" rx="6" fill="#fff"/>',
    ]
    for name, other in drawn:
        x, y = places[name][0] + BOX[0] / 2, places[name][1] + BOX[1]
        to_x, to_y = places[other][0] + BOX[0] / 2, places[other][1]
        path = f"M{x:g} {y:g}L{to_x:g} {to_y:g}"
        if (name, other) in long:  # beside the house, so that it crosses no box
            lane = long.index((name, other))
            shift = BOX[0] / 4 + 4 * lane
            path = (
                f"M{x + shift:g} {y:g}V{y + 8 + 3 * lane:g}H{house + lane * LANE:g}"
                f"V{to_y - 12 - 3 * lane:g}H{to_x + shift:g}V{to_y:g}"
            )
        lines.append(f'<path d="{path}" fill="none" stroke="#888" marker-end="url(#tip)"/>')
    for name, (x, y) in places.items():
        lines.append(
            f'<rect x="{x:g}" y="{y:g}" width="{BOX[0]}" height="{BOX[1]}" rx="4" fill="#fff3e6" stroke="#d9691f"/>'
            f'<text x="{x + BOX[0] / 2:g}" y="{y + 20:g}" text-anchor="middle" fill="#222">{name}</text>'
        )
    return "\n".join([*lines, "</svg>", ""])
