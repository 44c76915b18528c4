"""Embedding: rows of a table by index."""

from __future__ import annotations

from burn_torch import ops
from burn_torch.config import Config
from burn_torch.module import Content, Module, Param
from burn_torch.module.initializer import Initializer
from burn_torch.nn._layer import Rules, noting_layer
from burn_torch.tensor import Device, Tensor, functional
from burn_torch.tensor.apply import apply_one
from burn_torch.tensor.functional.weighting import hold_padding

__all__ = ["Embedding", "EmbeddingConfig"]


class EmbeddingConfig(Config):
    """A table of `n_embedding` rows.

    initializer normal with standard deviation 1: rows are far apart from the start, as in PyTorch.
    padding_idx none: every row is trained; else that row begins as zeros and stays as it is.
    """

    n_embedding: int
    d_model: int
    initializer: Initializer = Initializer.Normal(mean=0.0, std=1.0)
    padding_idx: int | None = None

    def __post_init__(self) -> None:
        rules = Rules(self).at_least(1, "n_embedding", "d_model")
        (rules if self.padding_idx is None else rules.at_least(0, "padding_idx")).stop()

    def init(self, device: Device) -> Embedding:
        """The layer with fresh parameters."""
        shape = (self.n_embedding, self.d_model)
        weight = self.initializer.init_with(shape, *shape, device)
        if self.padding_idx is not None:
            rules = Rules(self)
            if self.padding_idx >= self.n_embedding:
                rules.fault("padding_idx", "no row", f"0 to {self.n_embedding - 1}", "count rows from 0")
            rules.stop()
            row = Tensor.from_ints([self.padding_idx], device.no_grad())
            zeros = Tensor.zeros((1, self.d_model), device.no_grad())
            weight = weight.map(lambda table: table.select_assign(0, row, zeros, "assign"))
        return Embedding(weight, self.padding_idx)


class Embedding(Module):
    """The row of the weight at each index; the row `padding_idx` gets no gradient.

    Shapes: indices (*s), weight (n_embedding, d_model) -> (*s, d_model).
    Dtypes: indices any integer, weight any float -> that of the weight.
    Raises: BoundsError for an index outside [0, n_embedding), where the data is on the host.
    PyTorch: torch.nn.Embedding.
    """

    weight: Param
    padding_idx: int | None = None

    @noting_layer
    def forward(self, indices: Tensor) -> Tensor:
        """The rows."""
        adapter = self.weight.adapter()
        if adapter is None:
            return functional.embedding(self.weight.val(), indices, self.padding_idx)
        rows, reduced = (apply_one(ops.embedding, (table, indices)) for table in (self.weight.base(), adapter.a.val()))
        return hold_padding(adapter.add_rows(rows, reduced), indices, self.padding_idx)

    def custom_content(self, content: Content) -> Content:
        """Sizes as Burn shows them."""
        n_embedding, d_model = self.weight.shape
        content.add("n_embedding", n_embedding).add("d_model", d_model)
        return content if self.padding_idx is None else content.add("padding_idx", self.padding_idx)
