"""Functions of burn_kernels take few parameters, and none hands more than six of its own on by position.

A launched kernel takes 32 at most, a function that kernels call 24, one of the host 20.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import burn_kernels

ROOT = Path(burn_kernels.__file__).parent
MOST_OF_KERNEL, MOST_OF_DEVICE_FUNCTION, MOST_OF_HOST_FUNCTION, MOST_BY_POSITION = 32, 24, 20, 6


def functions(text: str) -> Iterator[ast.FunctionDef]:
    """Every function of a file."""
    return (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))


def parameters(function: ast.FunctionDef) -> int:
    """How many a function takes; `*rest` and `**options` are one each."""
    names = function.args
    several = [names.vararg, names.kwarg]
    return len([*names.posonlyargs, *names.args, *names.kwonlyargs]) + sum(one is not None for one in several)


def by_position(function: ast.FunctionDef) -> int:
    """The most of its own parameters that a function hands on by position in one call."""
    own = {one.arg for one in [*function.args.posonlyargs, *function.args.args]}
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    return max((sum(isinstance(x, ast.Name) and x.id in own for x in call.args) for call in calls), default=0)


def is_device(function: ast.FunctionDef) -> bool:
    """Tells if Triton compiles a function."""
    return any("jit" in ast.unparse(decorator) for decorator in function.decorator_list)


def measured(texts: dict[str, str]) -> tuple[dict[str, int], dict[str, int]]:
    """Functions above the bounds, by family and name: their parameters, and what they hand on by position."""
    called = {
        node.func.id
        for text in texts.values()
        for function in functions(text)
        if is_device(function)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    many, handed = {}, {}
    for path, text in texts.items():
        for function in functions(text):
            most = MOST_OF_HOST_FUNCTION
            if is_device(function):
                most = MOST_OF_DEVICE_FUNCTION if function.name in called else MOST_OF_KERNEL
            name = f"{path.split('/')[0].removesuffix('.py')}.{function.name}"
            if parameters(function) > most:
                many[name] = parameters(function)
            if by_position(function) > MOST_BY_POSITION:
                handed[name] = max(by_position(function), handed.get(name, 0))
    return many, handed


def texts() -> dict[str, str]:
    """The text of each file of the package."""
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("*.py"))}


def test_no_function_takes_or_hands_on_more_than_it_may() -> None:
    assert measured(texts()) == ({}, {})


def test_one_parameter_too_many_is_seen() -> None:
    names = ", ".join(f"x{i}" for i in range(25))
    text = f"@triton.jit\ndef inner({names}):\n    pass\n\n@triton.jit\ndef kernel(a):\n    inner(a)\n"
    assert measured({"some/kernels.py": text}) == ({"some.inner": 25}, {})
    assert measured({"some.py": f"@triton.jit\ndef kernel({names}):\n    pass\n"}) == ({}, {})
    assert measured({"some.py": f"def host({names}):\n    f(x0, x1, x2, x3, x4, x5, x6, a=x7)\n"}) == (
        {"some.host": 25},
        {"some.host": 7},
    )
