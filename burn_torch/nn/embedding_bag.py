"""EmbeddingBag: rows of a table by index, reduced bag by bag."""

from __future__ import annotations

import math
from enum import Enum

from burn_torch import ops
from burn_torch.config import Config
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, ShapeError
from burn_torch.core.frames import told
from burn_torch.module import Content, Module, Param
from burn_torch.module.initializer import Initializer
from burn_torch.nn._layer import Rules, noting_layer
from burn_torch.tensor import Device, Tensor, segments
from burn_torch.tensor.apply import apply_one

__all__ = ["EmbeddingBag", "EmbeddingBagConfig", "EmbeddingBagMode"]


class EmbeddingBagMode(Enum):
    """How the rows of a bag become one; a bag of nothing gives zeros."""

    Sum = "Sum"
    """Their sum, weighted where there are weights."""
    Mean = "Mean"
    """Their mean."""
    Max = "Max"
    """The largest number of each column."""


class EmbeddingBagConfig(Config):
    """A table of `n_embedding` rows that are read in bags.

    mode Mean: bags of unlike sizes have outputs of one scale.  padding_idx None: every index counts; else this one is
    left out of its bag.  include_last_offset false: offsets say where bags begin; true: and where the last one ends.
    initializer normal with standard deviation 1, as `EmbeddingConfig`.
    """

    n_embedding: int
    d_model: int
    mode: EmbeddingBagMode = EmbeddingBagMode.Mean
    padding_idx: int | None = None
    include_last_offset: bool = False
    initializer: Initializer = Initializer.Normal(mean=0.0, std=1.0)

    def __post_init__(self) -> None:
        rules = Rules(self).at_least(1, "n_embedding", "d_model")
        if self.padding_idx is not None:
            rules.at_least(0, "padding_idx")
            if self.padding_idx >= self.n_embedding:
                expected = f"a table with the row of padding_idx, which is {self.padding_idx}"
                rules.fault("n_embedding", "too small", expected, "count padding_idx from 0")
        rules.stop()

    def init(self, device: Device) -> EmbeddingBag:
        """The layer with fresh parameters."""
        shape = (self.n_embedding, self.d_model)
        weight = self.initializer.init_with(shape, *shape, device)
        return EmbeddingBag(weight, self.mode, self.padding_idx, self.include_last_offset)


class EmbeddingBag(Module):
    """The sum, the mean or the maximum of the rows of the weight that each bag names.

    Shapes: indices (bags, n), or (total,) with offsets (bags,), with include_last_offset (bags + 1,);
    per_sample_weights as indices; weight (n_embedding, d_model) -> (bags, d_model).
    Dtypes: indices and offsets any integer, weight any float -> that of the weight.
    Raises: BoundsError for an index outside [0, n_embedding) or wrong offsets, where the data is on the host.
    PyTorch: torch.nn.EmbeddingBag.
    """

    weight: Param
    mode: EmbeddingBagMode
    padding_idx: int | None
    include_last_offset: bool

    @noting_layer
    def forward(
        self, indices: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        """The reduced rows; weights, of sums alone, multiply each row."""
        self._check(indices, offsets, per_sample_weights)
        ends = _ends_of_lines(indices) if offsets is None else self._ends(offsets, indices)
        places = indices.flatten()
        rows = apply_one(ops.embedding, (self.weight.val(), places))
        padding = None if self.padding_idx is None else places.equal(self.padding_idx).unsqueeze_dim(1)
        if per_sample_weights is not None:
            rows = rows * per_sample_weights.flatten().unsqueeze_dim(1)
        if self.mode is EmbeddingBagMode.Max:
            if padding is not None:
                rows = rows.mask_fill(padding.expand(rows.shape), -math.inf)
            y = segments.max(rows, ends)
            return y.mask_fill(_lengths(padding, ends).equal(0).unsqueeze_dim(1).expand(y.shape), 0.0)
        if padding is not None:
            rows = rows.mask_fill(padding.expand(rows.shape), 0.0)
        if self.mode is EmbeddingBagMode.Sum:
            return segments.sum(rows, ends)
        if padding is None:
            return segments.mean(rows, ends)
        wide = rows.cast(DType.F32) if rows.dtype in (DType.F16, DType.BF16) else rows
        counts = _lengths(padding, ends).clamp_min(1).cast(wide.dtype)
        return (segments.sum(wide, ends) / counts.unsqueeze_dim(1)).cast(rows.dtype)

    def _ends(self, offsets: Tensor, indices: Tensor) -> Tensor:
        ends = offsets.cast(DType.I64)
        if self.include_last_offset:
            return ends
        return Tensor.cat([ends, Tensor.from_ints([indices.shape[0]], indices.device)], 0)

    def _check(self, indices: Tensor, offsets: Tensor | None, per_sample_weights: Tensor | None) -> None:
        fits = indices.ndim == 2 if offsets is None else indices.ndim == 1 and offsets.ndim == 1
        weights = per_sample_weights
        if not fits or (weights is not None and weights.shape != indices.shape):
            parts = (("indices", indices), ("offsets", offsets), ("per_sample_weights", weights))
            raise told(
                ShapeError,
                "EmbeddingBag: indices, offsets and weights do not fit together",
                given=", ".join(f"{name} {x.spec}" for name, x in parts if x is not None),
                expected="indices (bags, n), or (total,) with offsets (bags,); per_sample_weights as indices",
                mend="offsets say where bags begin, so only indices of one axis have them",
            )
        if weights is not None and self.mode is not EmbeddingBagMode.Sum:
            raise told(
                ArgumentError,
                "EmbeddingBag: only sums have weights",
                given=f"mode {self.mode.value}, per_sample_weights {weights.spec}",
                expected="mode Sum beside per_sample_weights",
                mend="EmbeddingBagConfig(..., mode=EmbeddingBagMode.Sum)",
            )

    def custom_content(self, content: Content) -> Content:
        """Sizes and settings."""
        n_embedding, d_model = self.weight.shape
        content.add("n_embedding", n_embedding).add("d_model", d_model).add("mode", self.mode.value)
        return content.add("padding_idx", self.padding_idx).add("include_last_offset", self.include_last_offset)


def _ends_of_lines(indices: Tensor) -> Tensor:
    bags, size = indices.shape
    return Tensor.arange(bags + 1, indices.device) * size


def _lengths(padding: Tensor | None, ends: Tensor) -> Tensor:
    """How many indices of each bag count."""
    if padding is not None:
        return segments.sum(padding.squeeze_dim(1).bool_not().int(), ends)
    bags = ends.shape[0] - 1
    return ends.narrow(0, 1, bags) - ends.narrow(0, 0, bags)
