"""The one launcher: what happens to a call before the kernels of a family see it.

    @launcher("layer_norm", "x (*batch, cols), w (cols), b (cols)", reference=layer_norm_reference)
    def layer_norm(x, w, b, eps=1e-5, *, config=None):
        ...  # allocates results, chooses a config, launches

It compares the tensors of a call with the table of their shapes, lets the reference compute where no kernel runs, and
calls the function for all other calls.  So a family describes its operations, and writes what is its own: the
allocation of results, the key of the choice, the launch.

A table names the parameters that are tensors, with their axes; a parameter that is None is left out.

    dy as x                    the shape of another tensor
    x (*batch, cols)           the first one with axes gives them their sizes; one axis may stand for several
    w (cols)                   axes of these sizes
    ; mean (*batch, 1)         any element type behind a semicolon; tensors before it share one float type

The function and the reference take the same arguments, but for configs, whose names end so.  Both, and the operation's
name, are attributes of the result, from which trials (`Trial.of`) and specs (`register_kernel`) are made.
"""

from __future__ import annotations

import functools
import inspect
import operator
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar

import torch

from burn_kernels.errors import KernelArgumentError, KernelShapeError
from burn_kernels.launch import check, describe, runs_kernel

__all__ = ["Launcher", "Shapes", "launcher", "refuses_unknown"]

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Sizes = Callable[[torch.Size], Sequence[int]]


class Launcher(Protocol[P, R_co]):
    """A function that computes by kernels where they run, and by its reference elsewhere."""

    op: str
    reference: Callable[..., Any]
    """Takes the same arguments, but for `config`."""
    __name__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Computes by kernels, or by the reference."""


def launcher(
    op: str, table: str, *, reference: Callable[..., Any], options: Callable[..., None] | None = None
) -> Callable[[Callable[P, R]], Launcher[P, R]]:
    """Makes a launcher of a function that computes by kernels.

    op         the operation, as messages call it
    table      the tensors with their shapes
    reference  computes the same in plain torch
    options    (op, *arguments of the call) raises for options outside their range
    """

    def decorate(function: Callable[P, R]) -> Launcher[P, R]:
        shapes = Shapes(table)
        signature = inspect.signature(function)
        # asked of the signature, names and defaults are calls of its properties
        known, missing = signature.parameters.keys(), inspect.Parameter.empty
        parameters = [p for p in signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        defaults = [(p.name, p.default) for p in parameters]
        # the tensors are parameters by position: those of the table are picked from the arguments at once
        places = [[*known].index(name) for name in shapes.names]
        end = max(places) + 1
        beside = places == list(range(places[0], end))
        pick: Any = operator.itemgetter(slice(places[0], end)) if beside else operator.itemgetter(*places)
        most = max([end, *[at + 1 for at, p in enumerate(parameters) if "Tensor" in str(p.annotation)]])

        run: Callable[..., R] = function
        configs = [name for name in signature.parameters if name.endswith("config")]
        # a function that takes any options names them in a TypedDict, which its reference reads
        is_open = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            # the options' check and the reference may call tensors otherwise, and have them by position
            if len(args) > len(defaults):
                require_arguments(args, kwargs)
            arguments = args if len(args) >= most else (*args, *by_position(args, kwargs))
            tensors = pick(arguments)
            if not shapes.fit(tensors):
                require_arguments(arguments, kwargs)
                shapes.refuse(op, tensors)
            try:
                if options is not None:
                    options(op, *arguments, **kwargs)
                if runs_kernel(op, tensors[shapes.anchor]):
                    return run(*arguments, **kwargs)
                if not (is_open or kwargs.keys() <= known):
                    require_arguments(arguments, kwargs)  # references may take others
                for name in configs:
                    kwargs.pop(name, None)
                return launched.reference(*arguments, **kwargs)
            except TypeError:
                require_arguments(arguments, kwargs)
                raise

        def by_position(args: tuple[object, ...], kwargs: dict[str, object]) -> list[object]:
            """Takes the arguments behind `args`, up to the last tensor, out of those by name."""
            behind = defaults[len(args) : most]
            for name, default in behind:
                if default is missing and name not in kwargs:
                    require_arguments(args, kwargs)
            return [kwargs.pop(name, default) for name, default in behind]

        def require_arguments(args: tuple[object, ...], kwargs: dict[str, object]) -> None:
            if is_open:
                refuse_unknown(function, kwargs)
            try:
                signature.bind(*args, **kwargs)
            except TypeError:
                run(*args, **kwargs)  # raises: the message names the function that was called

        launched: Any = call
        launched.op, launched.reference = op, reference
        return launched  # type: ignore[no-any-return]  # a function with two attributes more

    return decorate


def refuses_unknown(function: Callable[P, R]) -> Callable[P, R]:
    """Makes a function with `**options: Unpack[Options]` name itself where an option is misspelt."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError:
            refuse_unknown(function, kwargs)
            raise

    return call


def refuse_unknown(function: Callable[..., object], options: Mapping[str, object]) -> None:
    """Raises: TypeError for an option that a function does not take, as Python words it."""
    for name in options.keys() - inspect.signature(function).parameters.keys() - options_of(function):
        raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}")


def options_of(function: Callable[..., object]) -> set[str]:
    """The names of the options that a function takes as `**options: Unpack[Options]`."""
    hints = typing.get_type_hints(function).values()
    unpacked = [typing.get_args(hint)[0] for hint in hints if typing.get_origin(hint) is typing.Unpack]
    return {name for options in unpacked for name in options.__annotations__}


class Shapes:
    """The table of a call's tensors: their names, their axes, and which of them share one float type."""

    def __init__(self, text: str) -> None:
        alike, _, others = text.partition(";")
        rows = [(row, part is alike) for part in (alike, others) for row in _ROW.findall(part)]
        self.names = [name for (name, _, _), _ in rows]
        self.alike = [name for (name, _, _), is_alike in rows if is_alike]
        axes = {name: tuple(re.split(r"\s*,\s*", sizes.strip(", "))) for (name, _, sizes), _ in rows if sizes}
        self.anchor = self.names.index(next(iter(axes), self.names[0]))
        named = axes.get(self.names[self.anchor], _ANY)
        self.axes = named
        self.starred = any(axis.startswith("*") for axis in named)
        self.least = len(named) - self.starred
        assert all(same in ("", self.names[self.anchor]) for (_, same, _), _ in rows), text
        self.patterns: list[Sizes] = []
        """The functions from the anchor's shape to the other shapes."""
        self.rules: list[tuple[bool, int]] = []
        """For each tensor: whether it shares the float type, and the number of its shape; 0 the anchor's, -1 any."""
        numbers: dict[tuple[str, ...], int] = {}
        for (name, same, sizes), is_alike in rows:
            if sizes and axes[name] not in numbers:
                self.patterns.append(_sizes_of(axes[name], named))
                numbers[axes[name]] = len(self.patterns)
            self.rules.append((is_alike, numbers[axes[name]] if sizes else 0 if same else -1))

    def fit(self, tensors: Sequence[torch.Tensor | None]) -> bool:
        """Tells if the tensors of a call have the shapes and element types of the table, and lie on one device."""
        anchor = tensors[self.anchor]
        if anchor is None:
            return False
        shape, dtype = anchor.shape, anchor.dtype
        if len(shape) < self.least or not (dtype.is_floating_point and (self.starred or len(shape) == self.least)):
            return False
        if len(tensors) == 1:
            return True
        device = anchor.device
        shapes: list[Sequence[int]] = [shape]
        for pattern in self.patterns:
            shapes.append(pattern(shape))  # noqa: PERF401  # a comprehension is a call more
        for x, (is_alike, number) in zip(tensors, self.rules, strict=True):
            if x is None or x is anchor:
                continue
            if x.device != device or (is_alike and x.dtype is not dtype):
                return False
            if number >= 0 and x.shape != shapes[number]:
                return False
        return True

    def shapes_of(self, shape: torch.Size) -> list[Sequence[int]]:
        """The shapes of the table by number, if the anchor has this one."""
        return [shape, *[pattern(shape) for pattern in self.patterns]]

    def refuse(self, op: str, tensors: Sequence[torch.Tensor | None]) -> None:
        """Raises: KernelShapeError, KernelDTypeError, KernelDeviceError, KernelArgumentError, by what does not fit."""
        named = dict(zip(self.names, tensors, strict=True))
        anchor, name = tensors[self.anchor], self.names[self.anchor]
        if anchor is None:
            axes = "" if self.axes == _ANY else f" ({', '.join(self.axes)})"
            raise KernelArgumentError(
                f"{op}: there is no {name}",
                given=describe(named) or "None",
                expected=f"a tensor {name}{axes}",
                mend="pass it: the sizes of the other tensors follow from it",
            )
        count = anchor.dim()
        if count < self.least or not (self.starred or count == self.least):
            missing = [axis for axis in self.axes if not axis.startswith("*")][count:]
            raise KernelShapeError(
                f"{op}: the input has {f'no axis of {missing[0]}' if missing else f'{count} axes'}",
                given=describe(named),
                expected=f"{name} ({', '.join(self.axes)})",
                mend="add an axis with x.unsqueeze(0)" if missing else "flatten the axes that are too many",
            )
        whole = self.shapes_of(anchor.shape)
        shapes = {name: whole[n] for name, (_, n) in zip(self.names, self.rules, strict=True) if n >= 0}
        check(op, named, shapes, alike=self.alike)


_ANY = ("*any",)
"""The axes of a tensor that has none in its table."""
_ROW = re.compile(r"(\w+)(?:\s+as\s+(\w+)|\s*\(([^)]*)\))?\s*(?:,|$)")


def _sizes_of(axes: Sequence[str], named: Sequence[str]) -> Sizes:
    """The function from the anchor's shape to the sizes of these axes."""
    star = next((place for place, axis in enumerate(named) if axis.startswith("*")), len(named))

    def part_of(axis: str) -> slice | tuple[int]:
        if axis.isdigit():
            return (int(axis),)
        place = named.index(axis)
        if place < star:
            return slice(place, place + 1)
        behind = len(named) - place - 1
        if place == star:
            return slice(place, -behind or None)
        return slice(-behind - 1, -behind or None)

    parts = [part_of(axis) for axis in axes if axis]
    if len(parts) == 1 and isinstance(parts[0], slice):
        return operator.itemgetter(parts[0])
    if len(parts) == 2 and isinstance(parts[0], slice) and isinstance(parts[1], tuple):
        first: Any = parts[0]
        last: Any = parts[1]
        return lambda shape: (*shape[first], *last)
    return lambda shape: tuple([n for part in parts for n in (shape[part] if isinstance(part, slice) else part)])
