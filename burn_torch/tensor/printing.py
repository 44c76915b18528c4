"""How a tensor is printed: Burn's block of data, shape, device, backend, kind and dtype."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from burn_torch.core.checking import checked
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError
from burn_torch.core.spec import TensorSpec

__all__ = ["PrintOptions", "block", "options_for", "set_print_options", "shown_axes"]


@final
@dataclass(frozen=True)
class PrintOptions:
    """How tensors are printed.

    threshold: a tensor of more elements is shortened.  edge_items: how many are shown at each end of an axis then.
    precision: digits after the point; None: as many as tell the value from its neighbours.
    """

    threshold: int = 1000
    edge_items: int = 3
    precision: int | None = None

    @staticmethod
    def const_default() -> PrintOptions:
        """The default options."""
        return PrintOptions()


_options: PrintOptions = PrintOptions()


@checked
def set_print_options(options: PrintOptions) -> None:
    """Sets how tensors are printed from now on, in all threads."""
    global _options
    _options = options


_PRECISION: Final = re.compile(r"\.(\d+)f?")


def options_for(format_spec: str) -> PrintOptions:
    """The options of a format such as ".2f".  Raises: ArgumentError for any other."""
    if not format_spec:
        return _options
    precision = _PRECISION.fullmatch(format_spec)
    if precision is None:
        raise ArgumentError(
            "a tensor has no such format",
            given=repr(format_spec),
            expected="a precision such as '.2f'",
            mend="format single numbers with x.into_scalar()",
        )
    return replace(_options, precision=int(precision[1]))


def shown_axes(spec: TensorSpec, options: PrintOptions) -> tuple[bool, ...]:
    """For each axis whether only its ends are shown."""
    long = spec.numel > options.threshold
    return tuple([long and size > 2 * options.edge_items for size in spec.shape])


def block(
    spec: TensorSpec, data: TensorData, backend: str, options: PrintOptions, imag: TensorData | None = None
) -> str:
    """The whole text; `data` has only the ends of the axes of which only the ends are shown.

    imag: imaginary parts beside `data`, of a ComplexTensor.
    """
    kind = "Bool" if spec.dtype.is_bool else "Int" if spec.dtype.is_int else "Float"
    values, element = data.values, _element(spec.dtype, options)
    if imag is not None:
        kind, values, element = "Complex", _join(values, imag.values), _complex_element(element)
    text = _write_nested(values, shown_axes(spec, options), options.edge_items, element, 1)
    return (
        f"{'Tensor' if imag is None else 'ComplexTensor'} {{\n  data:\n{text},\n  shape:  {list(spec.shape)},\n"
        f"  device:  {_device(spec.place)},\n"
        f'  backend:  "{backend}",\n  kind:  "{kind}",\n  dtype:  "{spec.dtype}",\n}}'
    )


def _join(real: NDArray[Any], imag: NDArray[Any]) -> NDArray[Any]:
    pairs = np.empty(real.shape, [("real", real.dtype), ("imag", imag.dtype)])
    pairs["real"], pairs["imag"] = real, imag
    return pairs


def _complex_element(element: Callable[[object], str]) -> Callable[[Any], str]:
    def text(pair: Any) -> str:
        imag = element(pair["imag"])
        return f"{element(pair['real'])}{'' if imag.startswith('-') else '+'}{imag}i"

    return text


def _device(place: str) -> str:
    kind, _, index = place.partition(":")
    return kind.capitalize() + (f"({index})" if index else "")


def _write_nested(
    values: NDArray[Any], short: tuple[bool, ...], edge: int, element: Callable[[Any], str], depth: int
) -> str:
    if not values.ndim:
        return element(values[()])
    if values.ndim == 1:
        words = [element(x) for x in values]
        return f"[{', '.join([*words[:edge], '...', *words[-edge:]] if short[0] else words)}]"
    rows = [_write_nested(row, short[1:], edge, element, depth + 1) for row in values]
    indent = "\n" + " " * depth
    if not short[0]:
        return f"[{(',' + indent).join(rows)}]"
    first, last = (f",{indent}".join(part) for part in (rows[:edge], rows[len(rows) - edge :]))
    return f"[{first},{indent}...{indent}{last}]"


def _element(dtype: DType, options: PrintOptions) -> Callable[[Any], str]:
    if dtype.is_bool:
        return lambda x: "true" if x else "false"
    if not dtype.is_float:
        return str
    precision = options.precision

    def text(x: Any) -> str:
        if not np.isfinite(x):
            return "NaN" if np.isnan(x) else "inf" if x > 0 else "-inf"
        return str(x) if precision is None else f"{float(x):.{precision}f}"

    return text
