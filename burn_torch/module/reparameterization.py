"""Defines what computes a parameter's value, and what says which parameters are computed; see `reparameterized`."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Protocol

from burn_torch.module.module import Module
from burn_torch.module.param import Param
from burn_torch.tensor import Tensor

if TYPE_CHECKING:
    from burn_torch.module.lora import LoraAdapter

__all__ = ["Reparameterization", "Reparameterizer"]


class Reparameterization(Module):
    """A module that computes a parameter's value from a base tensor and from parameters of its own.

    class Scaled(Reparameterization):
        NAME = "scaled"
        scale: Param

        def materialize(self, base: Tensor) -> Tensor:
            return base * self.scale.val()
    """

    NAME: ClassVar[str] = "reparameterization"
    """The name in paths: the parameters of a reparameterized `weight` are below `weight.<NAME>`."""

    @abstractmethod
    def materialize(self, base: Tensor) -> Tensor:
        """The value of the parameter, in the shape and element type of the base."""

    def as_adapter(self) -> LoraAdapter | None:
        """This reparameterization, if it is a low-rank adapter."""
        return None


class Reparameterizer(Protocol):
    """Says which parameters of a module are reparameterized, and how; see `Module.apply_reparameterization`."""

    @abstractmethod
    def reparameterize(self, path: str, param: Param) -> tuple[Param, Reparameterization | None]:
        """The parameter that takes the place of `param` as the base, and what computes the value from it.

        None for a parameter that is its own value.  It is called with each float parameter, a shared one once.
        """
