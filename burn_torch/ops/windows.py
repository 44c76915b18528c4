"""Windows that slide over the spatial axes: their geometry, and gathering and scattering them on numpy arrays.

Convolution, pooling, unfold4d and fold4d share it.  The spatial axes come last.  Along an axis of `size` elements,
window i starts at `i * stride - before`, reads every `dilation`-th element, and so spans
`reach = dilation * (kernel - 1) + 1`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from burn_torch.core.dtype import DType
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.ops.faults import shape_fault
from burn_torch.ops.torch_types import TO_TORCH
from burn_torch.ops.value import Primitive

PerAxis = tuple[int, ...]
"""A number for each spatial axis."""
Pairs = tuple[tuple[int, int], ...]


# -- geometry ------------------------------------------------------------------------------------------
def reach(kernel: int, dilation: int) -> int:
    """How many elements a window spans."""
    return dilation * (kernel - 1) + 1


def both_sides(padding: Sequence[int]) -> Pairs:
    """The same padding before and after."""
    return tuple((p, p) for p in padding)


def window_counts(size: Shape, kernel: Shape, stride: Shape, padding: Pairs, dilation: Shape) -> Shape:
    """How many whole windows fit each axis."""
    return tuple(
        (s + before + after - reach(k, d)) // step + 1
        for s, k, step, (before, after), d in zip(size, kernel, stride, padding, dilation, strict=True)
    )


# -- faults --------------------------------------------------------------------------------------------
class Faults:
    """Collects everything that is wrong with the shapes of one call, then raises it as one fault."""

    def __init__(self) -> None:
        self._found: list[tuple[str, str, str]] = []

    def add(self, what: str, *, expected: str, mend: str) -> None:
        """Notes one fault."""
        self._found.append((what, expected, mend))

    def stop(self) -> None:
        """Raises what was noted so far, if anything: later checks would not make sense."""
        if self._found:
            # dict.fromkeys: two faults may have one expectation
            what, expected, mend = ("; ".join(dict.fromkeys(words)) for words in zip(*self._found, strict=True))
            raise shape_fault(what, expected=expected, mend=mend)


def check_spatial(faults: Faults, x: TensorSpec, name: str = "x", axes: tuple[int, ...] = (1, 2, 3)) -> int:
    """The number of spatial axes of `x` (batch, channels, *spatial), none of which may be empty.

    Stops where the number of axes is wrong.
    """
    spatial = x.ndim - 2
    if spatial not in axes:
        words = ["(batch, channels, length)", "(batch, channels, height, width)", "(batch, channels, d, h, w)"]
        faults.add(
            f"{name} has {x.ndim} axes",
            expected=f"{name} " + " or ".join(words[n - 1] for n in axes),
            mend="insert the missing axes with unsqueeze_dim",
        )
        faults.stop()
    if 0 in x.shape[1:]:
        faults.add(
            f"{name} has an empty axis besides the batch",
            expected="at least one channel and one element along each spatial axis",
            mend="skip inputs without elements; only the batch may be empty",
        )
    return spatial


def check_settings(faults: Faults, spatial: int, *, least: int = 1, **settings: Sequence[object]) -> None:
    """Each setting has one entry a spatial axis, and integers are not below `least`."""
    for name, value in settings.items():
        if len(value) != spatial:
            faults.add(
                f"{name} {value} has {len(value)} entries",
                expected=f"one entry of {name} for each of the {spatial} spatial axes",
                mend=f"give {name} {spatial} entries",
            )
        elif any(isinstance(v, int) and v < least for v in value):
            faults.add(
                f"{name} {value} has an entry below {least}",
                expected=f"{name} of at least {least} along each axis",
                mend=f"raise {name} to {least} or more",
            )


def check_fit(faults: Faults, size: Shape, kernel: Shape, padding: Pairs, dilation: Shape) -> None:
    """At least one window fits along each axis."""
    for axis, (s, k, (before, after), d) in enumerate(zip(size, kernel, padding, dilation, strict=True)):
        if reach(k, d) > s + before + after:
            faults.add(
                f"the kernel is larger than the padded input along spatial axis {axis}",
                expected=f"a kernel over at most {s} + {before} + {after} = {s + before + after} elements; "
                f"size {k} with dilation {d} reaches over {reach(k, d)}",
                mend="pad more, or take a smaller kernel or dilation",
            )


# -- numpy ---------------------------------------------------------------------------------------------
def fit(x: Primitive, padding: Pairs, value: float = 0.0) -> Primitive:
    """Pads the last axes of an array with `value`; a negative amount cuts off."""
    lead = x.ndim - len(padding)
    kept = (slice(max(-b, 0), size - max(-a, 0)) for size, (b, a) in zip(x.shape[lead:], padding, strict=True))
    x = x[(..., *kept)]
    amounts = (*((0, 0),) * lead, *((max(b, 0), max(a, 0)) for b, a in padding))
    return np.pad(x, amounts, constant_values=value) if any(map(any, amounts)) else x


def unfit(x: Primitive, padding: Pairs) -> Primitive:
    """The transpose of `fit`: cuts off what was padded, puts zeros where it cut."""
    return fit(x, tuple((-b, -a) for b, a in padding))


def windows(x: Primitive, kernel: Shape, stride: Shape, dilation: Shape) -> Primitive:
    """A view (*lead, *counts, *kernel) of an array (*lead, *spatial)."""
    axes = tuple(range(x.ndim - len(kernel), x.ndim))
    spans = tuple(map(reach, kernel, dilation))
    view: Primitive = np.lib.stride_tricks.sliding_window_view(x, spans, axis=axes)
    steps: Any = (*(slice(None, None, s) for s in stride), *(slice(None, None, d) for d in dilation))
    return view[(..., *steps)]


def tap_slices(counts: Shape, kernel: Shape, stride: Shape, dilation: Shape) -> Any:
    """For each offset in the kernel, row by row: the offset, and where all windows read it."""
    for offset in itertools.product(*map(range, kernel)):
        yield (
            offset,
            (
                ...,
                *(
                    slice(o * d, o * d + (count - 1) * s + 1, s)
                    for o, count, s, d in zip(offset, counts, stride, dilation, strict=True)
                ),
            ),
        )


def scatter_windows(columns: Primitive, size: Shape, stride: Shape, dilation: Shape) -> Primitive:
    """The transpose of `windows`: sums (*lead, *counts, *kernel) into an array (*lead, *size)."""
    spatial = len(size)
    lead, counts = columns.shape[: -2 * spatial], columns.shape[-2 * spatial : -spatial]
    kernel = columns.shape[-spatial:]
    x = np.zeros((*lead, *size), columns.dtype)
    for offset, where in tap_slices(counts, kernel, stride, dilation):
        x[where] += columns[(..., *offset)]
    return x


def widened(x: Primitive) -> Primitive:
    """Half precision as float32, in which sums are taken; the leaf rounds the result back."""
    return x.astype(np.float32) if x.dtype == np.float16 else x


# -- torch ---------------------------------------------------------------------------------------------
def stand_in(shape: Shape, dtype: DType, place: str) -> torch.Tensor:
    """A tensor without memory of its own, for torch's backward functions that read only the shape of an input."""
    return torch.empty(1, dtype=TO_TORCH[dtype], device=place).expand(shape)
