"""Defines what differs between a file and a module: names, the way that matrices lie, element types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

from burn_torch.core.checking import checked
from burn_torch.core.dtype import DType
from burn_torch.module.twins import Place, Twin

__all__ = [
    "BurnToPyTorchAdapter",
    "ChainAdapter",
    "FloatCastAdapter",
    "HalfPrecisionAdapter",
    "IdentityAdapter",
    "ModuleAdapter",
    "PyTorchToBurnAdapter",
]


@checked(but=("twins", "stored"))
class ModuleAdapter:
    """Adapts nothing; others override one of the two methods."""

    def twins(self, place: Place) -> Sequence[Twin] | None:
        """Returns what a value of the module is in the file, the likeliest first; None to leave it as it is."""
        return None

    def stored(self, place: Place, dtype: DType) -> DType:
        """The element type that a value of the module has in the file that is written."""
        return dtype

    def chain(self, following: ModuleAdapter) -> ModuleAdapter:
        """This adapter, then another."""
        return ChainAdapter(self, following)


@final
class IdentityAdapter(ModuleAdapter):
    """Adapts nothing."""


class _Twins(ModuleAdapter):
    def twins(self, place: Place) -> Sequence[Twin]:
        """PyTorch's names, blocks and layouts."""
        return place.torch


@checked(but=("twins", "stored"))
@final
class PyTorchToBurnAdapter(_Twins):
    """Reads what torch.nn wrote: matrices of linear layers turned, `weight` and `bias` of norms, joined projections of
    attention and gates of recurrent layers split, and the names of transformer layers."""


@checked(but=("twins", "stored"))
@final
class BurnToPyTorchAdapter(_Twins):
    """Writes what torch.nn reads: the same, the other way round."""


@checked(but=("twins", "stored"))
@final
@dataclass(frozen=True)
class ChainAdapter(ModuleAdapter):
    """Two adapters: the names of the first that has some, element types of one after the other."""

    first: ModuleAdapter
    second: ModuleAdapter

    def twins(self, place: Place) -> Sequence[Twin] | None:
        """The names of the first adapter that has some."""
        twins = self.first.twins(place)
        return self.second.twins(place) if twins is None else twins

    def stored(self, place: Place, dtype: DType) -> DType:
        """The element type after both."""
        return self.second.stored(place, self.first.stored(place, dtype))


_HALVED = (
    "Linear", "Embedding", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d",
    "LayerNorm", "GroupNorm", "InstanceNorm", "RmsNorm", "PRelu",
)  # fmt: skip


@checked(but=("twins", "stored"))
@final
@dataclass(frozen=True)
class HalfPrecisionAdapter(ModuleAdapter):
    """Stores f32 as f16, in modules of these classes: not those of BatchNorm, whose running variances grow large."""

    modules: frozenset[str] = frozenset(_HALVED)

    def with_module(self, name: str) -> HalfPrecisionAdapter:
        """Those of this class too."""
        return replace(self, modules=self.modules | {name})

    def without_module(self, name: str) -> HalfPrecisionAdapter:
        """Not those of this class."""
        return replace(self, modules=self.modules - {name})

    def stored(self, place: Place, dtype: DType) -> DType:
        """f16 for f32."""
        return DType.F16 if dtype is DType.F32 and place.container in self.modules else dtype


@checked(but=("twins", "stored"))
@final
@dataclass(frozen=True)
class FloatCastAdapter(ModuleAdapter):
    """Stores all floats in one element type."""

    target: DType

    @staticmethod
    def to(target: DType) -> FloatCastAdapter:
        """Burn's constructor."""
        return FloatCastAdapter(target)

    def stored(self, place: Place, dtype: DType) -> DType:
        """The target for floats."""
        return self.target if dtype.is_float else dtype
