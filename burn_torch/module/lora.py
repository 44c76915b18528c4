"""LoRA: frozen matrices with trainable low-rank adapters.

    attention = ParamGroup.from_regex(r"(query|value)\\.weight$")
    model = model.apply_lora(Lora(rank=8, alpha=16.0).set_param_group(attention))

Source: Hu et al. 2021, https://arxiv.org/abs/2106.09685; rank-stabilized: Kalajdzievski 2023,
https://arxiv.org/abs/2312.03732.  PyTorch: peft.LoraConfig.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, TypeVar, final

from burn_torch import ops
from burn_torch.core.ambient import first_element
from burn_torch.core.checking import checked
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError
from burn_torch.module.initializer import Initializer
from burn_torch.module.param import Param
from burn_torch.module.param_group import ParamGroup
from burn_torch.module.quantization import Quantizer
from burn_torch.module.reparameterization import Reparameterization
from burn_torch.module.scope import draw
from burn_torch.tensor import Tensor
from burn_torch.tensor.apply import apply_one

if TYPE_CHECKING:
    from burn_torch.module.module import Module

__all__ = ["Lora", "LoraAdapter", "QLora"]

M = TypeVar("M", bound="Module")


class LoraAdapter(Reparameterization):
    """A matrix of low rank that is added to a frozen one.

        value = base + scale * (a @ b)

    Shapes: base (d_input, d_output), a (d_input, rank), b (rank, d_output).
    Dtypes: a and b have the same float type; the sum is computed in theirs and has that of the base.
    While training, a Linear drops elements of what it multiplies by a, with probability `dropout`.
    PyTorch: PEFT's lora_A.weight is a turned round, lora_B.weight is b turned round.
    """

    NAME: ClassVar[str] = "lora"

    a: Param
    b: Param
    scale: float
    dropout: float = 0.0

    def delta(self) -> Tensor:
        """scale * (a @ b): what is added to the base."""
        return self.a.val().matmul(self.b.val()) * self.scale

    def materialize(self, base: Tensor) -> Tensor:
        """The sum of the base and the delta, rounded once to the type of the base."""
        delta = self.delta()
        return (base.cast(delta.dtype) + delta).cast(base.dtype)

    def add_product(self, y: Tensor, x: Tensor) -> Tensor:
        """y + x @ delta, by way of the rank: neither the delta nor its gradient is ever a matrix of the base's size."""
        x = x.cast(self.a.val().dtype)
        if self.dropout and x.backend.trains:
            x = apply_one(ops.dropout, (x, self.dropout, *draw(self)), first_element(x.spec.shape))
        return self._add(y, x.matmul(self.a.val()))

    def add_rows(self, y: Tensor, rows_of_a: Tensor) -> Tensor:
        """y with the rows of the delta added that belong to some rows of a."""
        return self._add(y, rows_of_a)

    def _add(self, y: Tensor, reduced: Tensor) -> Tensor:
        change = reduced.matmul(self.b.val()) * self.scale
        return (y.cast(change.dtype) + change).cast(y.dtype)

    @property
    def rank(self) -> int:
        """The number of columns of a."""
        return self.a.shape[1]

    def as_adapter(self) -> LoraAdapter:
        """This adapter."""
        return self


@checked(but=("reparameterize",))
@final
@dataclass(frozen=True)
class Lora:
    """Freezes a model and gives its matrices adapters; a Reparameterizer, see `Module.apply_lora`.

    rank              columns of a and rows of b
    alpha             the delta is scaled by alpha / rank, so that another rank needs no other learning rate
    init_std          a begins normal with this standard deviation, by default 1 / rank as in Burn; b begins with zeros,
                      so the model computes what it did before
    dtype             the type of a and b, by default that of the base
    param_group       which matrices have adapters, by default all parameters of two axes
    rank_stabilized   scales by alpha / sqrt(rank) instead, PEFT's use_rslora
    dropout           the probability that a Linear drops an element of what a is multiplied by, while training
    """

    rank: int
    alpha: float
    init_std: float | None = None
    dtype: DType | None = None
    param_group: ParamGroup = field(default_factory=ParamGroup.all)
    rank_stabilized: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        std = self.init_std
        right = {
            "rank of 1 or more": self.rank >= 1,
            "a finite alpha": math.isfinite(self.alpha),
            "init_std above 0": std is None or 0 < std < math.inf,
            "dropout from 0 to below 1": 0 <= self.dropout < 1,
            "a float dtype": self.dtype is None or self.dtype.is_float,
        }
        if not all(right.values()):
            raise ArgumentError(
                "Lora: this is not an adapter",
                given=f"rank {self.rank}, alpha {self.alpha}, init_std {std}, {self.dtype}, dropout {self.dropout}",
                expected=", ".join(words for words, holds in right.items() if not holds),
                mend="Lora(rank=8, alpha=16.0) is usual",
            )

    def set_param_group(self, group: ParamGroup) -> Lora:
        """The same settings for the matrices of a group."""
        return replace(self, param_group=group)

    def set_dtype(self, dtype: DType) -> Lora:
        """The same settings with a and b of this float type."""
        return replace(self, dtype=dtype)

    @property
    def scale(self) -> float:
        """The number that a @ b is multiplied by."""
        return self.alpha / (math.sqrt(self.rank) if self.rank_stabilized else self.rank)

    def reparameterize(self, path: str, param: Param) -> tuple[Param, LoraAdapter | None]:
        """The parameter, frozen, and its adapter if it is a matrix of the group."""
        frozen = param.set_require_grad(False)
        if len(param.shape) != 2 or not self.param_group.matches(param.id, path):
            return frozen, None
        return frozen, self.init_adapter(param)

    def init_adapter(self, param: Param) -> LoraAdapter:
        """A new adapter for a matrix."""
        d_input, d_output = param.shape
        normal = Initializer.Normal(mean=0.0, std=1.0 / self.rank if self.init_std is None else self.init_std)
        dtype = self.dtype or param.spec().dtype
        a, b = (
            factor if dtype is DType.F32 else factor.init_mapper(lambda value: value.cast(dtype))
            for factor in (
                normal.init((d_input, self.rank), param.device),
                Initializer.Zeros.init((self.rank, d_output), param.device),
            )
        )
        return LoraAdapter(a, b, self.scale, self.dropout)


@checked
@final
@dataclass(frozen=True)
class QLora:
    """Adapters over quantised weights: see `Module.apply_qlora`.

    lora        the adapters; their factors have the type of the weights before these are quantised, or `lora.dtype`
    quantizer   how the frozen parameters of its group are quantised: matrices alone, if it has no group

    Source: Dettmers et al. 2023, https://arxiv.org/abs/2305.14314, section 3.
    """

    lora: Lora
    quantizer: Quantizer

    def quantize_base(self, module: M) -> M:
        """The module with codes and scales in the place of frozen parameters."""
        matrices = [param.id for path, param in module.named_params() if len(param.shape) == 2]
        trained = [param.id for _, param in module.named_params() if param.require_grad]
        group = self.quantizer.param_group or ParamGroup.from_ids(matrices)
        frozen = group.exclude(ParamGroup.from_ids(trained))
        return self.quantizer.set_param_group(frozen).quantize_module(module)
