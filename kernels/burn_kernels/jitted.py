"""The parts of a Triton kernel: the functions that it calls, its text, and the key under which Triton keeps it.

    settle(kernel)                  before its first compilation: then all processes have the same key for it
    kernel_hash(kernel, ...)        the hash of these kernels with all that they call: what their timings are worth

Triton 3.6 writes the constants of a function that a kernel calls into the kernel's key only if that function's own key
was made before.  So the key depends on which kernels ran earlier in the process, and one that another process compiled
is compiled again.  Made from the innermost function outwards, keys are the same in each process.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from types import FunctionType, ModuleType
from typing import Any

__all__ = ["called", "function_of", "kernel_hash", "settle", "text_of"]


def function_of(value: object) -> FunctionType | None:
    """The function in Python of a kernel, or of what kernels call; None for anything else.

    Without Triton a kernel is that function itself, marked by the stand-in of `_triton`.
    """
    if isinstance(value, FunctionType):
        return value if hasattr(value, "is_kernel") else None
    function = getattr(value, "fn", None)
    return function if type(value).__module__.startswith("triton.") and isinstance(function, FunctionType) else None


def _named(kernel: object) -> Iterator[tuple[str, object]]:
    """The values that a kernel names and does not own: globals, closures, and members of modules that it names."""
    function = function_of(kernel)
    assert function is not None
    around = inspect.getclosurevars(function).nonlocals if function.__closure__ else {}
    names = function.__code__.co_names
    for name in dict.fromkeys((*names, *function.__code__.co_freevars)):
        value = around.get(name, function.__globals__.get(name))
        if isinstance(value, ModuleType) and not value.__name__.startswith("triton"):
            yield from ((f"{name}.{part}", vars(value)[part]) for part in names if part in vars(value))
        elif value is not None:
            yield name, value


def called(kernel: object) -> list[object]:
    """The functions of ours that a kernel calls, each once, in the order in which it names them first."""
    functions: dict[int, Any] = {}
    for _, value in _named(kernel):
        function = function_of(value)
        if function is not None and not function.__module__.startswith("triton"):
            functions[id(value)] = value
    return list(functions.values())


def settle(kernel: object) -> None:
    """Makes the keys of what a kernel calls, from the innermost outwards, and then its own; costs nothing later."""
    if getattr(kernel, "hash", "") is None:
        _settle(kernel, set())


def _settle(kernel: Any, begun: set[int]) -> None:
    begun.add(id(kernel))
    for other in called(kernel):
        if id(other) not in begun and getattr(other, "hash", "") is None:
            _settle(other, begun)
    _ = kernel.cache_key


# -- what timings are worth --------------------------------------------------------------------------
_DOCSTRING = re.compile(r'(\)(?: *->[^\n]*)?:)[^\n]*\n\s*"""(?:[^"\\]|\\.|"(?!""))*"""[ \t]*(?=\n)')
_COMMENT = re.compile(r"(?m)(?:^|[ \t]+)#[^\n\"']*$")


def text_of(kernel: object) -> str:
    """The text of a kernel without its docstring, comments and empty lines: another one, another kernel."""
    lines = getattr(kernel, "raw_src", None)
    if lines is None:
        function = function_of(kernel)
        assert function is not None
        lines = inspect.getsourcelines(function)[0]
    text = _COMMENT.sub("", _DOCSTRING.sub(r"\1", "".join(lines), count=1))
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())


def kernel_hash(*kernels: object) -> str:
    """The hash of these kernels, of a module by name all, and of the functions and constants that they use.

    What does not reach the compiler (docstrings, comments, the functions that launch) changes nothing; neither does the
    file in which a kernel lies, nor a function that no kernel of them calls.
    """
    texts = dict[int, str]()
    for kernel in kernels:
        _collect(_kernels_of(kernel) if isinstance(kernel, str) else [kernel], texts)
    return hashlib.sha256("\0".join(sorted(set(texts.values()))).encode()).hexdigest()[:16]


def _kernels_of(name: str) -> list[object]:
    """The kernels that a module defines."""
    module = importlib.import_module(name) if name not in sys.modules else sys.modules[name]
    return [value for value in vars(module).values() if getattr(function_of(value), "__module__", "") == name]


def _collect(kernels: Iterable[object], texts: dict[int, str]) -> None:
    for kernel in kernels:
        if id(kernel) in texts:
            continue
        constants = [
            f"{place}={plain!r}"
            for place, value in _named(kernel)
            if isinstance(plain := getattr(value, "value", value), (bool, int, float, str))
        ]
        texts[id(kernel)] = "\n".join([text_of(kernel), *sorted(constants)])
        _collect(called(kernel), texts)
