"""RotaryEncoding: positions as rotations of pairs of features."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from burn_torch import ops
from burn_torch.config import Config
from burn_torch.core.errors import ArgumentError, ShapeError
from burn_torch.module import Content, Module
from burn_torch.nn._layer import Rules, noting_layer
from burn_torch.tensor import Device, Tensor
from burn_torch.tensor.apply import apply

__all__ = ["RotaryEncoding", "RotaryEncodingConfig"]


class RotaryEncodingConfig(Config):
    """Rotations for `max_sequence_length` positions of `d_model` features (those of a head).

    theta 10000: as in the paper; more for longer contexts.
    """

    max_sequence_length: int
    d_model: int
    theta: float = 10000.0

    def __post_init__(self) -> None:
        rules = Rules(self).at_least(1, "max_sequence_length", "d_model").positive("theta")
        if self.d_model % 2:
            rules.fault("d_model", "odd", "an even number, for pairs of features", "take the next even number")
        rules.stop()

    def init(self, device: Device) -> RotaryEncoding:
        """The layer; it has no parameters."""
        return self.init_with_frequency_scaling(lambda theta: theta, device)

    def init_with_frequency_scaling(self, scaling: Callable[[Tensor], Tensor], device: Device) -> RotaryEncoding:
        """The layer with other frequencies: `scaling` maps those of the paper, (d_model / 2,), to those wanted."""
        frequencies = self.theta ** (-np.arange(0, self.d_model, 2) / self.d_model)
        theta = scaling(Tensor.from_data(frequencies.astype(np.float32), device))
        if theta.shape != frequencies.shape:
            raise ShapeError(
                "RotaryEncoding: the scaled frequencies have another shape",
                given=f"{theta.spec}",
                expected=f"{frequencies.shape}, one for each pair of features",
                mend="return a tensor of the shape that `scaling` was given",
            )
        return RotaryEncoding(_rotations(theta, 0, self.max_sequence_length), theta, 0)


def _rotations(theta: Tensor, start: int, length: int) -> Tensor:
    # angles in float64: in f32 those of position 100 000 would be off by 0.004
    angles = np.outer(np.arange(start, start + length), theta.into_data().array.astype(np.float64))
    pairs = np.stack([np.cos(angles), np.sin(angles)], -1)
    return Tensor.from_data(np.repeat(pairs, 2, 1).astype(np.float32), theta.device)


class RotaryEncoding(Module):
    """Rotates each pair of neighbouring features by an angle that grows with the position.

        y[2 k] = x[2 k] cos(a) - x[2 k + 1] sin(a),  y[2 k + 1] = x[2 k + 1] cos(a) + x[2 k] sin(a)
        a = position * theta[k],  theta[k] = theta^(-2 k / d_model)

    So the product of a query and a key depends on the distance of their positions alone.

    Shapes: x (*batch, seq, d_model) -> the same; freq_complex (max_sequence_length, d_model, 2), cosine and sine.
    Dtypes: any float, the same out.
    Source: Su et al. 2021, equation 34, https://arxiv.org/abs/2104.09864.
    """

    freq_complex: Tensor
    theta: Tensor
    start_offset: int

    def forward(self, x: Tensor) -> Tensor:
        """The sequence rotated, from the first position of the table on."""
        return self.apply(x, 0)

    @noting_layer
    def apply(self, x: Tensor, start: int) -> Tensor:
        """The sequence rotated, from position `start` of the table on: what a cache of earlier positions needs.

        Raises: ShapeError where the table ends before the sequence, or d_model differs.
        """
        length, d_model, _ = self.freq_complex.shape
        if x.ndim < 2 or x.shape[-1] != d_model or not 0 <= start <= start + x.shape[-2] <= length:
            raise ShapeError(
                "RotaryEncoding: the sequence does not fit",
                given=f"{x.spec} from position {start}",
                expected=f"(..., seq, {d_model}) with 0 <= start and start + seq <= {length}",
                mend="build it with a larger max_sequence_length, or move its table with shift(start)",
            )
        seq = x.shape[-2]
        table = self.freq_complex.narrow(0, start, seq).cast(x.dtype)
        cosine, sine = table.select_dim(2, 0), table.select_dim(2, 1)
        pairs = x.reshape((*x.shape[:-1], d_model // 2, 2))
        real, imaginary = apply(ops.split, (pairs,), (1, 1), pairs.ndim - 1)
        turned = Tensor.cat([imaginary.neg(), real], -1).reshape(x.shape)
        return x * cosine + turned * sine

    @noting_layer
    def shift(self, start: int) -> RotaryEncoding:
        """The layer whose table begins at position `start`, for sequences that outgrow it.  Burn changes it in place.

        Raises: ArgumentError unless `start` lies after the first position of the table.
        """
        if start <= self.start_offset:
            raise ArgumentError(
                "RotaryEncoding.shift: the table moves forwards only",
                given=f"start {start}, while it begins at {self.start_offset}",
                expected=f"a position after {self.start_offset}",
                mend="reset() begins at 0 again",
            )
        return self._from(start)

    def reset(self) -> RotaryEncoding:
        """The layer whose table begins at position 0.  Burn changes it in place."""
        return self._from(0) if self.start_offset else self

    def _from(self, start: int) -> RotaryEncoding:
        table = _rotations(self.theta, start, self.freq_complex.shape[0])
        return dataclasses.replace(self, freq_complex=table, start_offset=start)

    def custom_content(self, content: Content) -> Content:
        """Sizes as Burn shows them."""
        length, d_model, _ = self.freq_complex.shape
        return content.add("d_model", d_model).add("max_sequence_length", length)
