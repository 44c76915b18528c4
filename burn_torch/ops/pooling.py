"""Positions of the windows of a pooling over one, two or three spatial axes, and checks of their settings."""

from __future__ import annotations

from burn_torch.core.dtype import FLOAT
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.ops.value import Primitive
from burn_torch.ops.windows import Faults, both_sides, check_fit, check_settings, check_spatial, reach

__all__ = ["lift", "lifted_size", "overhang", "pool_counts", "pooled", "undilated", "unpooled"]


def pool_counts(
    size: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, ceil_mode: bool
) -> tuple[int, ...]:
    """How many windows lie on each axis.

    With `ceil_mode` the last window may reach past the padding, but must start inside the input or the padding before
    it: torch's rule.
    """
    counts = []
    for s, k, step, p, d in zip(size, kernel, stride, padding, dilation, strict=True):
        room = s + 2 * p - reach(k, d)
        count = (room + (step - 1 if ceil_mode else 0)) // step + 1
        counts.append(count - 1 if ceil_mode and (count - 1) * step >= s + p else count)
    return tuple(counts)


def overhang(
    size: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, counts: Shape
) -> tuple[tuple[int, int], ...]:
    """Padding (before, after) with which all windows are whole; windows may leave some of the end unread."""
    return tuple(
        (p, (count - 1) * step + reach(k, d) - s - p)
        for s, k, step, p, d, count in zip(size, kernel, stride, padding, dilation, counts, strict=True)
    )


def _counts_over(
    faults: Primitive, size: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, ceil_mode: bool
) -> tuple[Primitive, ...]:
    """The counts of windows over an input of `size`; stops at what does not fit."""
    spatial = len(size)
    check_settings(faults, spatial, kernel=kernel, stride=stride, dilation=dilation)
    check_settings(faults, spatial, least=0, padding=padding)
    faults.stop()
    check_fit(faults, size, kernel, both_sides(padding), dilation)
    counts = pool_counts(size, kernel, stride, padding, dilation, ceil_mode)
    for axis, (s, k, step, p, d) in enumerate(zip(size, kernel, stride, padding, dilation, strict=True)):
        before = range(min(counts[axis], -(-p // step)))  # windows that start in the padding
        if 2 * p > k or any((i * step - p) % d >= s for i in before):
            faults.add(
                f"padding {p} is too large along spatial axis {axis}",
                expected=f"at most {k // 2}, half of the kernel, and an element of the input in each window",
                mend="lower the padding, or pad the input first (for a maximum with -inf)",
            )
    faults.stop()
    return counts


def pooled(x: TensorSpec, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, ceil_mode: bool) -> Shape:
    """The shape of x (batch, channels, *spatial) after pooling."""
    faults = Faults()
    check_spatial(faults, x.require(FLOAT))
    return (*x.shape[:2], *_counts_over(faults, x.shape[2:], kernel, stride, padding, dilation, ceil_mode))


def unpooled(
    g: TensorSpec, size: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, ceil_mode: bool
) -> tuple[Primitive, ...]:
    """The shape of the input of spatial sizes `size` whose pooling has the shape of g."""
    faults = Faults()
    check_settings(faults, check_spatial(faults, g.require(FLOAT), "g"), size=size)
    faults.stop()
    counts = _counts_over(faults, size, kernel, stride, padding, dilation, ceil_mode)
    if g.shape[2:] != counts:
        faults.add(
            "g is no output of this pooling",
            expected=f"g (batch, channels, {', '.join(map(str, counts))})",
            mend="pass the gradient of the pooling's output, with the settings of the pooling",
        )
    faults.stop()
    return (*g.shape[:2], *size)


def undilated(kernel: Shape) -> tuple[Primitive, ...]:
    """A dilation of 1 along each axis of a kernel."""
    return (1,) * len(kernel)


def lift(*settings: tuple[Primitive, ...]) -> tuple[tuple[int, int], ...]:
    """One-axis settings for height 1: (neutral entry, setting) pairs."""
    return tuple((neutral, *setting) for neutral, setting in settings)


def lifted_size(size: Shape) -> tuple[Primitive, ...]:
    """Spatial sizes, of one axis with height 1."""
    return (1, *size) if len(size) == 1 else size
