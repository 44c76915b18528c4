"""Defines what `compile` is asked: the function and its options, checked where they are written."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from typing import Any, TypeAlias, TypedDict

from burn_torch.core.errors import ArgumentError
from burn_torch.graph.passes import Numerics, Precision
from burn_torch.module import Module
from burn_torch.transform.surroundings import plain_function

__all__ = ["Arguments", "Options", "choice", "limit", "signature"]

Arguments: TypeAlias = str | int | Collection[str | int]
"""Arguments of a function, by name or position."""


class Options(TypedDict, total=False):
    """The options of `compile`."""

    donate: Arguments
    static: Arguments
    captures: Sequence[object]
    numerics: Numerics | None
    precision: Precision
    fuse: bool | None
    replay: bool
    memory_limit_bytes: int | None
    max_programs: int | None


def signature(function: Any) -> inspect.Signature:
    """How a function is called.  Raises: ArgumentError for what cannot be compiled: no function, or one that pauses."""
    plain = plain_function(function)
    try:
        if isinstance(function, Module) and type(function).__call__ is Module.__call__:
            raise TypeError
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        refused, mend = f"{function!r:.80}", "write a function of your own around it: compile(lambda x: ...)"
        if isinstance(function, Module):
            refused, mend = f"a module, {type(function).__name__}", "compile(lambda model, x: model.forward(x))"
    else:
        pauses = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
        if not any(test(plain) for test in pauses):
            return signature
        refused, mend = f"{function!r:.80}, which yields or awaits", "compile what it does between two pauses"
    raise ArgumentError(
        "compile takes a function that returns its results",
        given=refused,
        expected="a function, a method or a callable object with a signature, without yield and await",
        mend=mend,
    )


def choice(name: str, given: object, among: tuple[object, ...]) -> Any:
    """An option that is one of a few.  Raises: ArgumentError for any other."""
    if not isinstance(given, str | bool | None) or given not in among:
        raise ArgumentError(
            f"compile: unknown {name}",
            given=repr(given),
            expected=" or ".join(map(repr, among)),
            mend=f"write {name}={among[-1]!r}, or leave it out",
        )
    return given


def limit(given: object) -> int | None:
    """A limit of memory, in bytes.  Raises: ArgumentError for what is none."""
    if given is None or (isinstance(given, int) and not isinstance(given, bool) and given >= 0):
        return given
    raise ArgumentError(
        "compile: a limit of memory is a number of bytes",
        given=f"memory_limit_bytes={given!r}",
        expected="an int of 0 or more, or None",
        mend="write 4 << 30 for 4 GiB; 0 is as little as recomputation can do",
    )
