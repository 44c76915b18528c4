"""Embedding: rows of a table by index."""

from __future__ import annotations

from burn_torch import ops
from burn_torch.config import Config
from burn_torch.module import Content, Module, Param
from burn_torch.module.initializer import Initializer
from burn_torch.nn._layer import Rules, noting_layer
from burn_torch.tensor import Device, Tensor
from burn_torch.tensor.apply import apply_one

__all__ = ["Embedding", "EmbeddingConfig"]


class EmbeddingConfig(Config):
    """A table of `n_embedding` rows.

    initializer normal with standard deviation 1: rows are far apart from the start, as in PyTorch.
    """

    n_embedding: int
    d_model: int
    initializer: Initializer = Initializer.Normal(mean=0.0, std=1.0)

    def __post_init__(self) -> None:
        Rules(self).at_least(1, "n_embedding", "d_model").stop()

    def init(self, device: Device) -> Embedding:
        """The layer with fresh parameters."""
        shape = (self.n_embedding, self.d_model)
        return Embedding(self.initializer.init_with(shape, *shape, device))


class Embedding(Module):
    """The row of the weight at each index.

    Shapes: indices (*s), weight (n_embedding, d_model) -> (*s, d_model).
    Dtypes: indices any integer, weight any float -> that of the weight.
    Raises: BoundsError for an index outside [0, n_embedding), where the data is on the host.
    PyTorch: torch.nn.Embedding.
    """

    weight: Param

    @noting_layer
    def forward(self, indices: Tensor) -> Tensor:
        """The rows."""
        adapter = self.weight.adapter()
        if adapter is None:
            return apply_one(ops.embedding, (self.weight.val(), indices))
        rows, reduced = (apply_one(ops.embedding, (table, indices)) for table in (self.weight.base(), adapter.a.val()))
        return adapter.add_rows(rows, reduced)

    def custom_content(self, content: Content) -> Content:
        """Sizes as Burn shows them."""
        n_embedding, d_model = self.weight.shape
        return content.add("n_embedding", n_embedding).add("d_model", d_model)
