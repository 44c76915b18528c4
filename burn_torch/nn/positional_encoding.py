"""PositionalEncoding: sinusoids that tell positions apart."""

from __future__ import annotations

import math

import numpy as np

from burn_torch.config import Config
from burn_torch.core.checking import checked
from burn_torch.core.errors import ArgumentError, ShapeError
from burn_torch.module import Content, Module
from burn_torch.nn._layer import Rules, noting_layer, require_ndim
from burn_torch.tensor import Device, Tensor

__all__ = ["PositionalEncoding", "PositionalEncodingConfig", "generate_sinusoids"]


@checked
def generate_sinusoids(length: int, d_model: int, max_timescale: int, device: Device) -> Tensor:
    """The positional encoding of the paper, computed in float64.

        y[t, 2 k] = sin(t / max_timescale^(2 k / d_model)),  y[t, 2 k + 1] = cos of the same

    Shapes: -> (length, d_model).  Dtypes: f32.
    Raises: ArgumentError for an odd d_model, or max_timescale below length.
    Source: Vaswani et al. 2017, section 3.5, https://arxiv.org/abs/1706.03762.
    """
    if d_model % 2 or max_timescale < max(length, 1):
        raise ArgumentError(
            "generate_sinusoids: these sizes make no encoding",
            given=f"length {length}, d_model {d_model}, max_timescale {max_timescale}",
            expected="an even d_model, for pairs of sine and cosine, and max_timescale of length or more",
            mend="take the next even d_model; raise max_timescale or shorten the sequence",
        )
    rates = np.exp(np.arange(0, d_model, 2) * (-math.log(max_timescale) / max(d_model, 1)))
    angles = np.outer(np.arange(length), rates)
    pairs = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(length, d_model)
    return Tensor.from_data(pairs.astype(np.float32), device)


class PositionalEncodingConfig(Config):
    """Sinusoids for up to `max_sequence_size` positions.

    max_timescale 10000: as in the paper, the period of the slowest sinusoid over 2 pi.
    """

    d_model: int
    max_sequence_size: int = 5_000
    max_timescale: int = 10_000

    def __post_init__(self) -> None:
        rules = Rules(self).at_least(1, "d_model", "max_sequence_size", "max_timescale")
        if self.d_model % 2:
            rules.fault("d_model", "odd", "an even number, for pairs of sine and cosine", "take the next even number")
        if self.max_timescale < self.max_sequence_size:
            rules.fault("max_timescale", "too small", "max_sequence_size or more", "raise it, or shorten the sequence")
        rules.stop()

    def init(self, device: Device) -> PositionalEncoding:
        """The layer; it has no parameters."""
        sinusoids = generate_sinusoids(self.max_sequence_size, self.d_model, self.max_timescale, device)
        return PositionalEncoding(sinusoids.unsqueeze_dim(0), self.max_sequence_size, self.max_timescale)


class PositionalEncoding(Module):
    """Adds the sinusoids of its positions to a sequence; see `generate_sinusoids`.

    Shapes: x (batch, seq, d_model) -> the same; sinusoids (1, max_sequence_size, d_model).
    Dtypes: any float, the same out.
    """

    sinusoids: Tensor
    max_sequence_size: int
    max_timescale: int

    @noting_layer
    def forward(self, input: Tensor) -> Tensor:
        """The sequence with its positions.  Raises: ShapeError for one that is too long, or of another d_model."""
        require_ndim(input, self, "(batch, seq, d_model)")
        seq, d_model = input.shape[1], self.sinusoids.shape[2]
        if input.shape[2] != d_model or seq > self.max_sequence_size:
            raise ShapeError(
                "PositionalEncoding: the sequence does not fit",
                given=f"{input.spec}",
                expected=f"(batch, seq, {d_model}) with seq of at most {self.max_sequence_size}",
                mend="build it with a larger max_sequence_size, or with the d_model of the embedding",
            )
        return input + self.sinusoids.narrow(1, 0, seq).cast(input.dtype)

    def custom_content(self, content: Content) -> Content:
        """Sizes as Burn shows them."""
        content.add("d_model", self.sinusoids.shape[2]).add("max_sequence_size", self.max_sequence_size)
        return content.add("max_timescale", self.max_timescale)
