"""Defines what an export is asked for: the function, names, axes, the opset; everything that does not fit is told
here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from burn_torch.core.errors import ArgumentError, OnnxError
from burn_torch.core.imports import load_extra
from burn_torch.module.tree import Tree
from burn_torch.onnx.exporting.tracing import Inputs, Tracing
from burn_torch.onnx.ir import split_multiple

__all__ = [
    "DEFAULT_OPSET",
    "LEAST_OPSET",
    "MOST_AXES",
    "Axes",
    "called",
    "dynamic_axes",
    "input_names_of",
    "name_of",
    "output_names_of",
    "require_inference",
    "require_opset",
]

MOST_AXES: Final = 5
"""The number of dynamic axes that may have names of their own."""

LEAST_OPSET: Final = 13
"""From which on axes and pads are inputs, which sizes that vary need."""

DEFAULT_OPSET: Final = 18
"""Read by every runtime of the last years; a newer one writes layers such as Gelu as one operator."""


class Axis(NamedTuple):
    """A dynamic axis: its sizes are multiples of `factor`; it stands at (number of the input, axis)."""

    factor: int
    places: list[tuple[int, int]]


Axes: TypeAlias = dict[str, Axis]
"""Dynamic axes by name."""


def called(function: Any, example_inputs: Any) -> tuple[Callable[..., Any], tuple[Any, ...], list[str]]:
    """A function of modules and inputs, these, and the names of its parameters."""
    arguments = example_inputs if type(example_inputs) is tuple else (example_inputs,)
    owner = getattr(function, "__self__", None)
    run: Callable[..., Any]
    if isinstance(function, Tree) or isinstance(owner, Tree):
        module = function if isinstance(function, Tree) else owner
        method = "forward" if isinstance(function, Tree) else function.__name__
        if not callable(getattr(module, method, None)):
            raise ArgumentError(
                "export: the module has no forward",
                given=type(module).__name__,
                expected="a module with a method forward, or one of its methods",
                mend="export(model.encode, inputs, path) exports another method",
            )

        def run(tree: object, *inputs: object) -> Any:
            return getattr(tree, method)(*inputs)

        return run, (module, *arguments), ["", *_parameters(getattr(module, method), len(arguments))]
    return function, arguments, _parameters(function, len(arguments))


def _parameters(function: Callable[..., object], count: int) -> list[str]:
    """The names of the first positional parameters; numbered where there are none of that name."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        parameters = ()  # type: ignore[assignment]  # no parameters that could be named
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [parameter.name for parameter in parameters if parameter.kind in positional]
    return [*names[:count], *(f"input_{i}" for i in range(len(names), count))]


def name_of(function: object) -> str:
    """Returns what the graph is called: the class of a module, or the function."""
    return type(function).__name__ if isinstance(function, Tree) else getattr(function, "__name__", "function")


def require_inference(captures: Sequence[object]) -> None:
    """Raises: ArgumentError for captured modules that would train: they cannot be replaced by what they infer as."""
    training = [
        type(capture).__name__
        for capture in captures
        if isinstance(capture, Tree) and any(device.is_autodiff() for device in getattr(capture, "devices", list)())
    ]
    if training:
        raise ArgumentError(
            "export: a captured module would train",
            given=", ".join(training),
            expected="modules for inference, where dropout is off and batch norm uses its running statistics",
            mend="capture model.valid(), or pass the module among example_inputs",
        )


def require_opset(opset: int) -> None:
    """Raises: ArgumentError for an opset that cannot be written, OnnxError where onnx is not installed."""
    defs = load_extra("onnx", "onnx", "writing ONNX files", error=OnnxError).defs
    newest = defs.onnx_opset_version()
    if not LEAST_OPSET <= opset <= newest:
        raise ArgumentError(
            "export: this opset cannot be written",
            given=f"opset {opset}",
            expected=f"{LEAST_OPSET} to {newest}, the newest that the installed onnx knows",
            mend=f"leave it out for {DEFAULT_OPSET}",
        )


def input_names_of(inputs: Inputs, wanted: Sequence[str] | None) -> list[str]:
    """One name for each tensor.  Raises: ArgumentError for names that are not as many, or not distinct."""
    names = list(inputs.tensors) if wanted is None else list(wanted)
    if len(names) != len(inputs.tensors) or len(set(names)) < len(names) or not all(names):
        raise ArgumentError(
            "export: input_names does not name the inputs",
            given=", ".join(map(repr, names)) or "no name",
            expected=f"{len(inputs.tensors)} distinct names, for {', '.join(inputs.tensors) or 'no tensors'}",
            mend="give one name for each tensor, in that order",
        )
    return names


def output_names_of(trace: Tracing, wanted: Sequence[str] | None, inputs: Sequence[str]) -> list[str]:
    """One name for each tensor that is returned, none of them an input's.  Raises: ArgumentError as above."""
    names = [_apart(name, inputs) for name in trace.outputs] if wanted is None else list(wanted)
    clash = [name for name in names if name in inputs]
    if len(names) != len(trace.outputs) or len(set(names)) < len(names) or clash or not names or not all(names):
        raise ArgumentError(
            "export: the outputs need names of their own" if names else "export: nothing is returned",
            given=", ".join(map(repr, names)) or "no output",
            expected=f"{max(len(trace.outputs), 1)} distinct names, none of them that of an input",
            mend=f"give output_names for {', '.join(trace.outputs) or 'what the function returns'}",
        )
    return names


def _apart(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name = f"{name}_out"
    return name


def dynamic_axes(inputs: Inputs, names: Sequence[str], batch: bool, dims: Mapping[str, Mapping[int, str]]) -> Axes:
    """Returns where each dynamic axis stands.  Raises: ArgumentError that tells every axis which is not there."""
    tensors = list(inputs.tensors.values())
    faults = [f"no input {name!r}, but {', '.join(names)}" for name in dims if name not in names]
    axes: Axes = {}
    for i, (name, tensor) in enumerate(zip(names, tensors, strict=True)):
        wanted = {0: "batch"} if batch and tensor.ndim else {}
        for axis, symbol in {**wanted, **dims.get(name, {})}.items():
            if not -tensor.ndim <= axis < tensor.ndim or not symbol:
                faults.append(f"no axis {axis} of {name} {tensor.shape}, or no name for it")
            else:
                factor, word = split_multiple(symbol)
                known = axes.setdefault(word, Axis(factor, []))
                known.places.append((i, axis % tensor.ndim))
                if known.factor != factor:
                    faults.append(f"{word}: a multiple of {known.factor} and of {factor}")
    for symbol, (factor, places) in axes.items():
        sizes = {tensors[i].shape[axis] for i, axis in places}
        if len(sizes) > 1 or any(size % factor for size in sizes):
            at = ", ".join(f"axis {axis} of {names[i]} is {tensors[i].shape[axis]}" for i, axis in places)
            faults.append(f"{symbol}: {at}" + (f", no multiple of {factor}" if len(sizes) == 1 else ""))
    if len(axes) > MOST_AXES:
        faults.append(f"{len(axes)} dynamic axes, of {MOST_AXES} at most")
    if faults:
        raise ArgumentError(
            "export: the dynamic axes do not fit the example inputs",
            given="; ".join(faults),
            expected="axes of the inputs, those of one name with one size, a multiple where one is stated",
            mend='write dynamic_dims={"x": {0: "batch", 1: "16 * height"}}',
        )
    return axes
