"""Layers of `burn_torch.nn` as steps of programs: their parameters are values of the program like all others.

The table of layers is the one that exports are tested on.  Dropout is set to 0.  Doors compare devices with gradients
and without, so layers that train on the former alone are left out, and layers that draw.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from burn_torch import Module, Param, RunningState, Tensor, nn
from burn_torch.module.tree import rebuild, walk
from tests.onnx.layer_cases import CASES

__all__ = ["LAYERS", "layer_function", "operands_of"]

_TRAINS: Final = {
    "AlphaDropout", "BatchNorm", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout",
    "GaussianNoise", "RRelu", "SyncBatchNorm",
}  # fmt: skip
_DRAWS: Final = {"FractionalMaxPool2d", "FractionalMaxPool3d"}
LAYERS: Final = tuple(name for name in CASES if name not in _TRAINS | _DRAWS)


@functools.cache
def _template(name: str) -> Module:
    """The layer on the CPU, without dropout."""
    layer: Module = _without_dropout(CASES[name].make())
    return layer


def _without_dropout(x: Any) -> Any:
    if isinstance(x, nn.Dropout):
        return dataclasses.replace(x, prob=0.0)
    if isinstance(x, list | tuple):
        return tuple(_without_dropout(part) for part in x)
    if not isinstance(x, Module):
        return x
    fields = {field.name: getattr(x, field.name) for field in dataclasses.fields(x)}  # type: ignore[arg-type]
    changed = {
        name: changed_value for name, value in fields.items() if (changed_value := _without_dropout(value)) is not value
    }
    return dataclasses.replace(x, **changed) if changed else x  # type: ignore[type-var]


@functools.cache
def _arguments(name: str) -> tuple[Any, ...]:
    """Returns what `forward` is called with, for the structure of it."""
    return CASES[name].inputs(np.random.default_rng(7))


def _leaves(name: str) -> tuple[list[Param], list[Tensor | RunningState]]:
    """A layer's parameters, and its other tensors."""
    leaves = [leaf for _, leaf in walk(_template(name))]
    return [x for x in leaves if isinstance(x, Param)], [x for x in leaves if not isinstance(x, Param)]


def operands_of(name: str, generator: np.random.Generator) -> tuple[list[Any], list[Any], list[Any]]:
    """Arrays for a layer's parameters, for its constants, and for what its `forward` takes."""
    parameters, constants = _leaves(name)
    return (
        [generator.uniform(-0.8, 0.8, param.shape) for param in parameters],
        [_value(x).into_data().array for x in constants],
        [x.into_data().array for x in _tensors(CASES[name].inputs(generator), {})],
    )


def _value(x: Tensor | RunningState) -> Tensor:
    return x.value() if isinstance(x, RunningState) else x


def _tensors(x: Any, seen: dict[int, Tensor]) -> list[Tensor]:
    """The tensors in a structure, each once."""
    for tensor in _walk(x):
        seen.setdefault(id(tensor), tensor)
    return list(seen.values())


def _walk(x: Any) -> Iterator[Tensor]:
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, list | tuple):
        for part in x:
            yield from _walk(part)
    elif dataclasses.is_dataclass(x):
        for field in dataclasses.fields(x):
            yield from _walk(getattr(x, field.name))


def _with(x: Any, places: dict[int, Tensor]) -> Any:
    """The structure with other tensors."""
    if isinstance(x, Tensor):
        return places[id(x)]
    if isinstance(x, list | tuple):
        return type(x)(_with(part, places) for part in x)
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        return dataclasses.replace(x, **{f.name: _with(getattr(x, f.name), places) for f in dataclasses.fields(x)})
    return x


@functools.cache
def layer_function(name: str) -> Callable[..., Any]:
    """Returns what a layer gives for parameters, constants and inputs: one tensor, or a tuple of them.

    What it reads is collected once, as a trace watches all that its Python reads.
    """
    template, arguments = _template(name), _arguments(name)
    parameters, constants = _leaves(name)
    places = {id(x): i for i, x in enumerate([*parameters, *constants])}
    count = len(places)
    inputs = _tensors(arguments, {})
    plain = all(isinstance(x, Tensor) for x in arguments) and len(inputs) == len(arguments)

    def compute(*operands: Tensor) -> Any:
        def leaf(x: Any) -> Any:
            value = operands[places[id(x)]]
            return value if isinstance(x, Tensor) else x.with_value(value)

        taken: Any = operands[count:]
        if not plain:
            taken = _with(arguments, {id(x): y for x, y in zip(inputs, taken, strict=True)})
        output = rebuild(template, leaf).forward(*taken)
        if isinstance(output, Tensor):
            return output
        results = tuple(_walk(output))
        return results if len(results) > 1 else results[0]

    return compute
