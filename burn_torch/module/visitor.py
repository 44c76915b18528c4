"""Walks over a module's parameters: visitors read, mappers rebuild."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from burn_torch.core.checking import checked
from burn_torch.module.param import Param, ParamId
from burn_torch.tensor import Tensor

if TYPE_CHECKING:
    from burn_torch.module.module import Module

__all__ = ["ModuleMapper", "ModuleVisitor", "list_param_ids"]


class ModuleVisitor:
    """Override what you want to see; the default of each hook does nothing or calls the more general one.

    `container` is "Struct:Linear", "List", "Tuple" or "Dict", as in Burn.
    """

    def enter_module(self, name: str, container: str) -> None:
        """Before the fields of `name`."""

    def exit_module(self, name: str, container: str) -> None:
        """After the fields of `name`."""

    def visit_float(self, param: Param) -> None:
        """A parameter of floats."""

    def visit_int(self, param: Param) -> None:
        """A parameter of integers."""

    def visit_bool(self, param: Param) -> None:
        """A parameter of truth values."""

    def visit_state(self, path: str, state: object) -> None:
        """A RunningState, such as the running mean of BatchNorm."""

    def visit_float_with_path(self, path: str, id: ParamId, tensor: Tensor) -> None:
        """A parameter of floats, with its path: "conv1.weight"."""

    def visit_int_with_path(self, path: str, id: ParamId, tensor: Tensor) -> None:
        """A parameter of integers, with its path."""

    def visit_bool_with_path(self, path: str, id: ParamId, tensor: Tensor) -> None:
        """A parameter of truth values, with its path."""


class ModuleMapper:
    """Override the hooks of the kinds that should change; each gives the parameter that takes the place of its own."""

    def enter_module(self, name: str, container: str) -> None:
        """Before the fields of `name`."""

    def exit_module(self, name: str, container: str) -> None:
        """After the fields of `name`."""

    def map_float(self, param: Param) -> Param:
        """A parameter of floats."""
        return param

    def map_int(self, param: Param) -> Param:
        """A parameter of integers."""
        return param

    def map_bool(self, param: Param) -> Param:
        """A parameter of truth values."""
        return param

    def map_state(self, state: object) -> Any:
        """A RunningState."""
        return state


@checked
def list_param_ids(module: Module) -> list[ParamId]:
    """The identities of all parameters, in the order of the fields."""
    return [param.id for _, param in module.named_params()]
