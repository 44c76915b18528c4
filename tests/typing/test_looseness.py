"""Types leave ever less open: `Any`, functions without types, ignores without a reason."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
FILES: Final = sorted([*(ROOT / "burn_torch").rglob("*.py"), *(ROOT / "kernels").rglob("*.py")])

ANY: Final = {"burn_torch": 1885, "kernels": 690}
"""How often `Any` may be written.  Lower a number when you have made it smaller; none grows."""


@pytest.mark.parametrize("folder", ANY)
def test_any_is_written_no_more_often_than_before(folder: str) -> None:
    files = [file for file in FILES if file.is_relative_to(ROOT / folder)]
    count = sum(len(re.findall(r"\bAny\b", file.read_text(encoding="utf-8"))) for file in files)
    assert count <= ANY[folder], f"{count} times Any: name what is known, or object where nothing is asked of it"


def test_every_ignore_says_why() -> None:
    bare = re.compile(r"# type: ignore(\[[^\]]*\])?\s*$")
    places = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in FILES
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if bare.search(line)
    ]
    assert not places, "write the reason behind the ignore, after two spaces and #"


def untyped(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Functions that lack the type of a parameter or of the result."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            arguments = node.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
            named = [one for one in every if one is not None and one.arg not in ("self", "cls")]
            without = [one for one in named if one.annotation is None]
            if without or (node.returns is None and not (node.name == "__init__" and named)):
                yield node


def is_exempt(node: ast.FunctionDef) -> bool:
    """A rule below its row, `def _(g, y, x):`, or a function of Triton, whose text is a key of tuned tables."""
    names = {ast.unparse(decorator).split("(")[0].rpartition(".")[2] for decorator in node.decorator_list}
    return (node.name == "_" and bool(names & {"gradient", "batched", "decomposes"})) or "jit" in names


def test_only_rules_and_kernels_go_without_types() -> None:
    places = [
        f"{file.relative_to(ROOT)}:{node.lineno} {node.name}"
        for file in FILES
        for node in untyped(ast.parse(file.read_text(encoding="utf-8")))
        if not is_exempt(node)
    ]
    assert not places


def test_the_walk_sees_a_function_without_types() -> None:
    text = "def f(x): ...\n@square.gradient\ndef _(g, y, x): ...\n@jit\ndef k(x_ptr): ...\ndef g(x: int) -> int: ..."
    assert [node.name for node in untyped(ast.parse(text)) if not is_exempt(node)] == ["f"]
