"""Mends of Triton 3.6's interpreter: with them it runs these kernels, in two thirds of the time."""

from __future__ import annotations

import inspect
import math
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from burn_kernels.interpreting import mend_bounds_of_loops


def mended(patch: Any) -> None:
    """Exchanges what is wrong or slow, by `patch.setattr`: a `pytest.MonkeyPatch`, or whoever keeps it to the end."""
    mend_bounds_of_loops(patch.setattr)
    _one_patch_a_launch(patch)
    _types_made_once(patch)
    _shapes_made_once(patch)
    _numbers_of_32_bits(patch)


def _numbers_of_32_bits(patch: Any) -> None:
    """A launch on a GPU passes a float as float32; here it stays a number, float64 if it is denormal, and -0.0 is 0."""
    original = interpreter._implicit_cvt

    def converted(argument: Any) -> Any:
        if type(argument) is not float:
            return original(argument)
        with np.errstate(over="ignore"):
            handle = interpreter.TensorHandle(np.array([argument], np.float32), tl.float32)
        return tl.tensor(handle, tl.float32)

    patch.setattr(interpreter, "_implicit_cvt", converted)


def _one_patch_a_launch(patch: Any) -> None:
    """Triton puts its interpreted operations into `triton.language` at a launch, and again at each call of a function.

    Here once until the launch takes them out, for each of the two modules that a function may know them by.
    """
    original = interpreter._patch_lang
    done: set[ModuleType] = set()
    known: dict[FunctionType, set[ModuleType]] = {}

    class Launch:
        def __init__(self, scope: Any) -> None:
            self.scope = scope

        def restore(self) -> None:
            done.clear()
            self.scope.restore()

    def patched(function: Any) -> Any:
        names = known.get(function)
        if names is None:
            names = {x for x in function.__globals__.values() if inspect.ismodule(x) and x in (tl, tl.core)}
            known[function] = names
        if done and names <= done:
            return None  # of a call within a launch, which restores nothing
        begins = not done
        scope = original(function)
        done.update(names)
        return Launch(scope) if begins else scope

    patch.setattr(interpreter, "_patch_lang", patched)


def _types_made_once(patch: Any) -> None:
    """Triton makes a table of all element types each time it asks for one, and a type of each tensor's shape."""
    element, shape = interpreter._get_np_dtype, tl.core._type_for_tuple_values
    elements: dict[Any, Any] = {}
    shapes: dict[tuple[int | None, ...], Any] = {}

    def element_once(kind: Any) -> Any:
        if isinstance(kind, tl.block_type):
            kind = kind.element_ty
        if isinstance(kind, tl.pointer_type):
            return element(kind)
        if kind not in elements:
            elements[kind] = element(kind)
        return elements[kind]

    def shape_once(values: Any, fields: Any = None) -> Any:
        sizes = tuple(x.value if type(x) is tl.constexpr else None for x in values)
        if fields is not None or not all(type(size) is int for size in sizes):
            return shape(values, fields)
        if sizes not in shapes:
            shapes[sizes] = shape(values)
        return shapes[sizes]

    patch.setattr(interpreter, "_get_np_dtype", element_once)
    patch.setattr(tl.core, "_type_for_tuple_values", shape_once)


def _shapes_made_once(patch: Any) -> None:
    """Triton makes a tuple of constants for the shape of each tensor, and of each type, and compares them by copies."""
    constexpr, values_of = tl.constexpr, tl.tuple
    make_type, compare = tl.block_type.__init__, values_of.__eq__
    shapes: dict[tuple[int, ...], tuple[Any, Any]] = {}
    types: dict[tuple[str, tuple[int, ...]], tuple[Any, int, str]] = {}

    def init_tensor(tensor: Any, handle: Any, type: Any) -> None:
        tensor.handle, tensor.type, tensor.dtype = handle, type, type.scalar
        sizes = tuple(type.shape.values) if type.is_block() else ()
        if sizes not in shapes:
            shapes[sizes] = constexpr(math.prod(sizes)), values_of([constexpr(size) for size in sizes])
        tensor.numel, tensor.shape = shapes[sizes]

    def init_type(block: Any, element: Any, shape: Any) -> None:
        sizes = tuple(x.value if type(x) is constexpr else x for x in shape)
        key = element.name, sizes
        if key in types:
            block.element_ty = element
            block.shape, block.numel, block.name = types[key]
            return
        make_type(block, element, shape)
        if all(type(size) is int for size in sizes):
            types[key] = block.shape, block.numel, block.name

    def equal(one: Any, other: Any) -> Any:
        if type(other) is values_of and all(type(x) is int for x in other.values):
            return constexpr(one.values == other.values)
        return compare(one, other)

    patch.setattr(tl.tensor, "__init__", init_tensor)
    patch.setattr(tl.block_type, "__init__", init_type)
    patch.setattr(values_of, "__eq__", equal)
