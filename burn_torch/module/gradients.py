"""Gradients by parameter: what `grad` of a module gives, and optimizers take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn, final

from burn_torch.core.checking import checked
from burn_torch.core.errors import ArgumentError
from burn_torch.core.frames import unwatched, warn_user
from burn_torch.core.wording import described
from burn_torch.module.fields import UntrainedWarning
from burn_torch.module.module import Module
from burn_torch.module.param import Param, ParamId
from burn_torch.module.tree import Tree
from burn_torch.tensor import Device, Gradients, Tensor

__all__ = ["GradientsParams", "params_by_id", "trainable_params"]


def params_by_id(module: Module) -> dict[ParamId, Param]:
    """The parameters of a module by id; of a trainable one and its frozen copies (a teacher), the trainable one.

    Raises: ArgumentError where several trainable ones have one id: their gradients and states could not be told apart.
    """
    return _by_id(module, _is_trainable)


def trainable_params(tree: Tree) -> dict[ParamId, Param]:
    """The parameters that `grad` of a module is about, by id: the trainable ones on devices with gradients.

    In a module without any on such a device, those that would be trainable there.  Other trees have no parameters.
    Raises: as `params_by_id`.
    """
    if not isinstance(tree, Module):
        return {}
    params = [param for _, param in tree.named_params()]
    # a transform's own tape over a plain device does not count
    taped = [param.val().backend.trains for param in params]
    among = [param for param, is_taped in zip(params, taped, strict=True) if is_taped] if any(taped) else params
    by_id = {param.id: param for param in among if param.require_grad}
    if len(by_id) < len([param for param in among if param.require_grad]):
        _by_id(tree, lambda param: param in among and param.require_grad)  # words the error
    return by_id


def _by_id(module: Module, trainable: Callable[[Param], bool]) -> dict[ParamId, Param]:
    if not hasattr(module, "named_params"):
        raise ArgumentError(
            "this holds no parameters",
            given=f"a {type(module).__name__} in the place of a model",
            expected="a Module",
            mend="pass the model: step(lr, model, grads), from_grads(grads, model)",
        )
    by_id: dict[ParamId, Param] = {}
    for path, param in module.named_params():
        other = by_id.setdefault(param.id, param)
        if other is param or not trainable(param):
            continue
        if trainable(other):
            first = next(name for name, held in module.named_params() if held is other)
            raise ArgumentError(
                "two parameters of one module have one id",
                given=f"{first} and {path}, both trainable, with id {param.id}",
                expected="an id for each, or one Param in both places: copies and loaded files keep their ids",
                mend="give one part new ids: part.map_params(lambda p: Param.from_tensor(p.val())),"
                " or freeze it: part.no_grad()",
            )
        by_id[param.id] = param
    return by_id


def _is_trainable(param: Param) -> bool:
    return param.require_grad and param.device.is_autodiff()


def _warn_of_lost(module: Module, params: Sequence[Param], left: int, *, newer: bool) -> None:
    paths = [path for path, param in module.named_params() if any(param is one for one in params)]
    shown = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
    others = f"gradients of {left} other leaves"
    missed = f"none of {shown}" if paths else f"a {type(module).__name__} without parameters"
    warn_user(
        UntrainedWarning,
        f"gradients stop before parameters of this {type(module).__name__}",
        given=f"{others}, among them newer versions of {shown}" if newer else f"{others}, and {missed}",
        expected="a loss of these very parameters: optimizer steps and other ways to new ones make leaves",
        mend="pass the module that the loss was computed with; or differentiate through what makes new parameters:"
        " value_and_grad(outer)(model), with the step inside of outer",
    )


@final
class GradientsParams:
    """Gradients keyed by ParamId, on the inner device.  Picklable: ids survive where tensors' tape numbers do not."""

    __slots__ = ("_by_id",)

    def __init__(self, by_id: dict[ParamId, Tensor] | None = None) -> None:
        self._by_id: dict[ParamId, Tensor] = dict(by_id or {})

    @staticmethod
    def from_grads(gradients: Gradients, module: Module) -> GradientsParams:
        """The gradients of a module's parameters; taken out of `gradients`, so their memory has one owner."""
        return GradientsParams.from_params(gradients, module, None)

    @staticmethod
    def from_module(gradients: Gradients, module: Module) -> GradientsParams:
        """The same as `from_grads`, for a part of the network."""
        return GradientsParams.from_params(gradients, module, None)

    @staticmethod
    def from_params(gradients: Gradients, module: Module, ids: Iterable[ParamId] | None) -> GradientsParams:
        """The gradients of the parameters with these ids (None: all).

        Says, as an UntrainedWarning, where gradients stop at a newer version of a parameter, where there are some, but
        none of these parameters, and where the module has no parameters at all.
        """
        wanted = None if ids is None else set(ids)
        reached: dict[ParamId, Tensor] = {}
        with unwatched():
            params = {
                ident: param
                for ident, param in params_by_id(module).items()
                if _is_trainable(param) and (wanted is None or ident in wanted)
            }
            for ident, param in params.items():
                gradient = gradients.remove(param.val())
                if gradient is not None:
                    reached[ident] = gradient
        if len(gradients):  # those of other modules, or of what was made of these parameters
            newer = [param for param in params.values() if gradients.has_leaf(param.newest_leaf())]
            is_bare = wanted is None and not module.num_params()
            if newer or (params and not reached) or is_bare:
                _warn_of_lost(module, newer or list(params.values()), len(gradients), newer=bool(newer))
        return GradientsParams(reached)

    def get(self, id: ParamId) -> Tensor | None:
        """The gradient of a parameter; None if it has none."""
        gradient = self._by_id.get(id)
        return gradient if gradient is not None or isinstance(id, int) else _no_identity(id)

    def remove(self, id: ParamId) -> Tensor | None:
        """Takes the gradient of a parameter out; None if it has none."""
        gradient = self._by_id.pop(id, None)
        return gradient if gradient is not None or isinstance(id, int) else _no_identity(id)

    @checked
    def register(self, id: ParamId, gradient: Tensor) -> None:
        """Puts a gradient in, in the place of an earlier one."""
        self._by_id[id] = gradient

    def to_device(self, device: Device) -> GradientsParams:
        """The same gradients on another device."""
        return GradientsParams({id: gradient.to_device(device) for id, gradient in self._by_id.items()})

    def items(self) -> Iterable[tuple[ParamId, Tensor]]:
        """Ids and gradients in the order of the module's fields."""
        return self._by_id.items()

    def __len__(self) -> int:
        return len(self._by_id)

    def is_empty(self) -> bool:
        """Returns whether no parameter has a gradient."""
        return not self._by_id

    def __iter__(self) -> Iterator[ParamId]:
        return iter(self._by_id)

    def __contains__(self, id: object) -> bool:
        return id in self._by_id

    def __repr__(self) -> str:
        return f"GradientsParams({len(self)} gradients)"


def _no_identity(id: object) -> NoReturn:
    raise ArgumentError(
        "GradientsParams: gradients are kept by the identities of parameters",
        given=described(id),
        expected="a ParamId",
        mend="grads.get(param.id)",
    )
