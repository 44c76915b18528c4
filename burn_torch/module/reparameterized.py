"""Reparameterizations: parameters that are computed from a base and from further parameters when they are read.

A field `weight: Param` then holds a `Reparameterized`: a node of the tree with the base, which keeps the path and the
identity of the parameter, and the reparameterization, a module at `weight.<NAME>`.  It reads as a Param does, so no
layer changes.  Optimizers, records, devices and transforms see plain parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from burn_torch.core.errors import ArgumentError, DTypeError, ShapeError
from burn_torch.core.spec import Shape
from burn_torch.core.wording import described
from burn_torch.module import tree
from burn_torch.module.param import Param, ParamId, ParamMapper
from burn_torch.module.param_group import no_members
from burn_torch.tensor import Device, QuantizedTensor, Tensor

if TYPE_CHECKING:
    from burn_torch.module.lora import Lora, LoraAdapter, QLora
    from burn_torch.module.module import Module
    from burn_torch.module.reparameterization import Reparameterization, Reparameterizer

__all__ = [
    "Reparameterized",
    "adapted_params",
    "apply_lora",
    "apply_qlora",
    "apply_to",
    "merge_into",
    "remove_adapters",
]

M = TypeVar("M", bound="Module")


class Reparameterized(tree.Tree):
    """A parameter that is computed when it is read: `change.materialize(stored.val())`, of a quantised base's floats.

    It is read as a Param is: `val()`, `shape`, `device`, `id`, which is that of the base.
    """

    stored: Param
    change: Reparameterization

    def _name_in_paths(self, field: str) -> str:
        return "" if field == "stored" else type(self.change).NAME

    def val(self) -> Tensor:
        """The computed tensor, on the tape of its parameters.  Raises: ShapeError, DTypeError for another one."""
        stored: object = self.stored.val()
        base = stored.dequantize() if isinstance(stored, QuantizedTensor) else self.stored.val()
        value = self.change.materialize(base)
        if value.shape != base.shape or value.dtype is not base.dtype:
            raise (ShapeError if value.shape != base.shape else DTypeError)(
                f"{type(self.change).__name__}.materialize: the value is not like the base",
                given=f"{value.spec}, from a base {base.spec}",
                expected="the shape and the element type of the base",
                mend="reshape and cast what materialize returns",
            )
        return value

    def base(self) -> Tensor:
        """The tensor that the value is computed from."""
        return self.stored.val()

    def reparameterization(self) -> Reparameterization:
        """Returns the module that computes the value."""
        return self.change

    def adapter(self) -> LoraAdapter | None:
        """The low-rank adapter, if that is what computes the value."""
        return self.change.as_adapter()

    into_value = val

    # -- what it shares with its base ------------------------------------------------------------------
    @property
    def id(self) -> ParamId:
        """The identity of the base."""
        return self.stored.id

    @property
    def mapper(self) -> ParamMapper:
        """Returns what happens to the base on its way from and into a record."""
        return self.stored.mapper

    @property
    def shape(self) -> Shape:
        """Sizes of the axes; makes nothing."""
        return self.stored.shape

    @property
    def device(self) -> Device:
        """Returns where the base lives; makes nothing."""
        return self.stored.device

    @property
    def numel(self) -> int:
        """Number of elements; makes nothing."""
        return self.stored.numel

    @property
    def require_grad(self) -> bool:
        """Returns whether the base, or a parameter that the value is computed with, is trained."""
        return any(leaf.require_grad for _, leaf in tree.walk(self) if isinstance(leaf, Param))

    lazy_shape = shape
    lazy_device = device

    @property
    def holds_codes(self) -> bool:
        """Returns whether the base is quantised."""
        return isinstance(self.stored, tree.Tree)

    def is_initialized(self) -> bool:
        """Returns whether the base exists already."""
        return self.holds_codes or self.stored.is_initialized()

    def __repr__(self) -> str:
        return f"Reparameterized({self.stored!r} by {type(self.change).__name__})"


_PLACES: Final = (*tree.LEAVES, Reparameterized)


def apply_to(module: M, reparameterizer: Reparameterizer) -> M:
    """The module with what the reparameterizer gives in the places of its float parameters.

    Raises: ArgumentError for what is no reparameterizer, and where a parameter is to be reparameterized twice.
    """
    if not callable(getattr(reparameterizer, "reparameterize", None)):
        raise ArgumentError(
            "apply_reparameterization: this says nothing of parameters",
            given=described(reparameterizer),
            expected="an object with reparameterize(path, param)",
            mend="pass a Reparameterizer, such as Lora(rank=8, alpha=16) or WeightNormMapper()",
        )
    new: dict[int, object] = {}
    for path, place in tree.walk(module, leaves=_PLACES):
        base = place.stored if isinstance(place, Reparameterized) else place
        if id(place) in new or not isinstance(base, Param) or not base.spec().dtype.is_float:
            continue
        stored, change = reparameterizer.reparameterize(path, base)
        if change is not None and isinstance(place, Reparameterized):
            raise ArgumentError(
                f"{path} is reparameterized already",
                given=f"{type(change).__name__} for a parameter with {type(place.change).__name__}",
                expected="one reparameterization a parameter",
                mend="merge the first: model.merge_reparameterizations(); or leave the parameter out of the group",
            )
        if change is not None:
            new[id(place)] = Reparameterized(stored, change)
        elif stored is not base:
            new[id(place)] = place._with_fields({"stored": stored}) if isinstance(place, Reparameterized) else stored
    return tree.rebuild(module, lambda leaf: new.get(id(leaf), leaf), leaves=_PLACES)


def merge_into(module: M) -> M:
    """The module with plain parameters, off every tape, in the places of reparameterized ones."""
    return tree.rebuild(
        module, lambda leaf: _merge(leaf) if isinstance(leaf, Reparameterized) else leaf, leaves=_PLACES
    )


def _merge(place: Reparameterized) -> Param:
    device = place.device
    plain = tree.rebuild(place, lambda leaf: leaf.fork(device.no_grad()) if hasattr(leaf, "fork") else leaf)
    value = plain.val().to_device(device)
    if place.holds_codes:
        return Param(value, place.id, require_grad=False)
    return Param(value, place.id, require_grad=place.stored.require_grad, mapper=place.mapper)


def apply_lora(module: M, lora: Lora) -> M:
    """The module, frozen, with adapters.

    Raises: ArgumentError for what is no Lora, and where no matrix belongs to its group.
    """
    if not callable(getattr(lora, "init_adapter", None)):
        raise ArgumentError(
            "apply_lora: these are no settings of adapters",
            given=described(lora),
            expected="a Lora",
            mend="model.apply_lora(Lora(rank=8, alpha=16.0))",
        )
    adapted = apply_to(module, lora)
    if adapted_params(adapted).keys() == adapted_params(module).keys():
        matrices = [path for path, param in module.named_params() if len(param.shape) == 2]
        raise no_members("apply_lora", lora.param_group, matrices)
    return adapted


def apply_qlora(module: M, qlora: QLora) -> M:
    """The module with adapters at matrices, and with codes and scales for what is frozen.  Raises: as `apply_lora`."""
    if not callable(getattr(qlora, "quantize_base", None)):
        raise ArgumentError(
            "apply_qlora: these are no settings of adapters over quantised weights",
            given=described(qlora),
            expected="a QLora",
            mend="model.apply_qlora(QLora(Lora(rank=8, alpha=16.0), quantizer))",
        )
    return qlora.quantize_base(apply_lora(module, qlora.lora))


def adapted_params(module: Module) -> dict[str, Reparameterized]:
    """The parameters with a low-rank adapter, by their paths."""
    return {
        path: place
        for path, place in tree.walk(module, leaves=_PLACES)
        if isinstance(place, Reparameterized) and place.adapter() is not None
    }


def remove_adapters(module: M) -> M:
    """The module without low-rank adapters: their bases are its parameters, frozen as they were."""
    return tree.rebuild(
        module,
        lambda leaf: leaf.stored if isinstance(leaf, Reparameterized) and leaf.adapter() is not None else leaf,
        leaves=_PLACES,
    )
