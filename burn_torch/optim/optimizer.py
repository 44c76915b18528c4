"""Defines what all optimizers share: state by parameter, one row call for all tensors, records."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self, TypeAlias, TypeVar

from burn_torch.backend.autodiff.laid import is_recorded
from burn_torch.core.checking import checked, checked_after
from burn_torch.core.errors import ArgumentError, RecordError, ShapeError
from burn_torch.core.frames import unwatched
from burn_torch.core.misfits import worded
from burn_torch.module import Module, Param, ParamId, Tree
from burn_torch.module.fields import checked_constructor, require_declared
from burn_torch.module.gradients import GradientsParams, params_by_id
from burn_torch.module.param import is_computed
from burn_torch.module.scalar import Scalar
from burn_torch.ops import Op
from burn_torch.optim.clipping import GradientClipping, GradientClippingConfig
from burn_torch.optim.record import OptimizerRecord
from burn_torch.tensor import Device, Tensor
from burn_torch.tensor.gradients import leaf_id
from burn_torch.tensor.tensor import cut_from, uncut

__all__ = ["Optimizer", "Slots", "StateGroup", "Tensors", "Updated", "run_update"]

M = TypeVar("M", bound=Module)

Tensors: TypeAlias = Sequence[Tensor]
"""One tensor for each parameter."""
Slots: TypeAlias = Sequence[Tensors]
"""The states of parameters, by their kind."""
Updated: TypeAlias = tuple[Tensors, Slots]
"""New parameters and their new states."""


class StateGroup(Tree):
    """The states of parameters that have been stepped equally often.

    `slots` has one tuple of tensors for each kind of state ("mean", "square"), in the order of `ids`.
    """

    ids: tuple[ParamId, ...]
    time: Scalar
    slots: tuple[tuple[Tensor, ...], ...]
    _require_declared = require_declared


@checked(but=("step", "update", "new_slots", "is_settled", "settled"))
class Optimizer(Tree):
    """A pure update: `model, optim = optim.step(lr, model, gradients)`; neither argument changes.

    State is keyed by ParamId, so it follows a parameter through steps, devices and records.  Parameters without a
    gradient, and their state, stay as they are.
    """

    _require_declared = require_declared
    _takes_tensors_for_numbers: ClassVar[bool] = True
    """A rate or a penalty may be a tensor, which is differentiated."""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        constructor = checked_constructor(cls, cls.__init__)
        cls.__init__ = checked_after(constructor, cls.__name__, owner=cls, tensors=True)  # type: ignore[method-assign]  # the same function, checked

    groups: tuple[StateGroup, ...]
    clipping: GradientClippingConfig | None

    @property
    def slot_names(self) -> tuple[str, ...]:
        """The kinds of state: what records call them."""
        return ()

    @abstractmethod
    def update(self, lr: object, time: object, params: Tensors, grads: Tensors, slots: Slots) -> Updated:
        """New parameters and states of tensors of one device, in their `time`-th step (from 1)."""

    def new_slots(self, params: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], ...]:
        """The states before the first step: zeros."""
        return tuple(tuple(p.new_full(p.shape, 0.0) for p in params) for _ in self.slot_names)

    def is_settled(self) -> bool:
        """Returns whether it has states of parameters."""
        return bool(self.groups)

    def settled(self, model: Module) -> Self:
        """The optimizer with the states that its first step with `model` starts from: zeros, and no steps yet.

        `compile` calls it, so that the first step has the structure of all others.
        """
        params = {
            ident: param for ident, param in params_by_id(model).items() if param.require_grad and ident not in self
        }
        if not params:
            return self
        group = StateGroup(tuple(params), 0, self.new_slots([_bare(param) for param in params.values()]))
        return self._with_fields({"groups": (*self.groups, group)})

    def __contains__(self, ident: object) -> bool:
        return any(ident in group.ids for group in self.groups)

    # -- stepping -------------------------------------------------------------------------
    @worded
    def step(self, lr: object, model: M, gradients: GradientsParams) -> tuple[M, Self]:
        """The model and the optimizer after one update with learning rate `lr` (per step).

        Raises: ArgumentError for other arguments, or in another order.
        """
        if not isinstance(gradients, GradientsParams) or not isinstance(model, Module):
            raise _not_a_step(self, lr, model, gradients)
        if not type(self).__module__.startswith("burn_torch."):
            return self._step(lr, model, gradients)
        with unwatched():
            return self._step(lr, model, gradients)

    def _step(self, lr: object, model: M, gradients: GradientsParams) -> tuple[M, Self]:
        params = {ident: param for ident, param in params_by_id(model).items() if ident in gradients}
        clip = None if self.clipping is None else GradientClipping(self.clipping).clip_gradient
        known: set[ParamId] = set()
        groups: list[StateGroup] = []
        values: dict[ParamId, Tensor] = {}
        for group in self.groups:
            known.update(group.ids)
            groups += self._step_group(lr, group, params, gradients, clip, values)
        fresh = [ident for ident in params if ident not in known]
        if fresh:
            empty = StateGroup(tuple(fresh), 0, self.new_slots([_bare(params[ident]) for ident in fresh]))
            groups += self._step_group(lr, empty, params, gradients, clip, values)
        connected = any(_is_tracked(x) for x in (lr, *self.__dict__.values()))
        if connected:  # the parameters and their gradients are constants beside what is tracked
            leaves = {leaf_id(x) for param in params.values() if (x := param.val()).is_require_grad()}
            values = {ident: cut_from(x, leaves.__contains__) if _is_tracked(x) else x for ident, x in values.items()}
        new = {id(params[ident]): _replace_value(params[ident], value, connected) for ident, value in values.items()}
        stepped = model.map_params(lambda param: new.get(id(param), param))
        return stepped, self._with_fields({"groups": tuple(groups)})

    def _step_group(
        self, lr: object, group: StateGroup, params: dict[ParamId, Param], gradients: GradientsParams, clip: Any,
        values: dict[ParamId, Tensor],
    ) -> list[StateGroup]:  # fmt: skip
        here = [i for i, ident in enumerate(group.ids) if ident in params]
        if len(here) < len(group.ids):  # some have no gradient now: their count of steps parts from the others'
            left = [i for i in range(len(group.ids)) if i not in set(here)]
            kept = [_pick_members(group, left)]
            return kept + (
                self._step_group(lr, _pick_members(group, here), params, gradients, clip, values) if here else []
            )
        time = group.time + 1
        devices: dict[tuple[Any, str], list[int]] = {}
        for i, ident in enumerate(group.ids):
            value = params[ident].val()
            devices.setdefault((value.backend, value.place), []).append(i)
        slots: list[list[Any]] = [[None] * len(group.ids) for _ in group.slots]
        for members in devices.values():  # one row call a device
            bare = [_bare(params[group.ids[i]]) for i in members]
            raw_grads: list[Any] = [gradients.get(group.ids[i]) for i in members]
            grads = raw_grads if clip is None else [clip(g) for g in raw_grads]
            states = [[_beside(slot[i], x) for i, x in zip(members, bare, strict=True)] for slot in group.slots]
            new_params, new_states = self.update(lr, time, bare, grads, states)
            for i, value in zip(members, new_params, strict=True):
                values[group.ids[i]] = value
            for slot, new in zip(slots, new_states, strict=True):
                for i, value in zip(members, new, strict=True):
                    slot[i] = value
        return [StateGroup(group.ids, time, tuple(map(tuple, slots)))]

    def with_grad_clipping(self, clipping: GradientClippingConfig) -> Self:
        """The same optimizer with gradients bounded first."""
        return self._with_fields({"clipping": clipping})

    # -- records ------------------------------------------------------------------------------
    def to_record(self) -> OptimizerRecord:
        """The states of all parameters that were stepped."""
        states: dict[ParamId, tuple[int, dict[str, Tensor]]] = {}
        for group in self.groups:
            if group.time == 0:  # `settled` made it, and no step has used it: a new one would be the same
                continue
            for i, ident in enumerate(group.ids):
                named = {name: slot[i] for name, slot in zip(self.slot_names, group.slots, strict=True)}
                states[ident] = (int(group.time), named)
        return OptimizerRecord(type(self).__name__, states)

    def load_record(self, record: OptimizerRecord, device: Device | None = None) -> Self:
        """The same optimizer with the states of a record, on `device` (default: where the record's tensors are).

        Raises: RecordError for the record of another kind of optimizer.
        """
        wrong = sorted({name for _, named in record.states.values() for name in named} ^ set(self.slot_names))
        if record.kind != type(self).__name__ or (record.states and wrong):
            raise RecordError(
                "this optimizer record belongs to another optimizer",
                given=f"a record of {record.kind}" + (f" that differs in {', '.join(wrong)}" if wrong else ""),
                expected=f"a record of {type(self).__name__} with states {', '.join(self.slot_names) or 'none'}",
                mend="resume with the optimizer configuration that was saved beside it",
            )
        by_time: dict[int, list[ParamId]] = {}
        for ident, (time, _) in record.states.items():
            by_time.setdefault(time, []).append(ident)
        groups = []
        for time, idents in by_time.items():
            slots = tuple(
                tuple(_move_to(record.states[ident][1][name], device) for ident in idents) for name in self.slot_names
            )
            groups.append(StateGroup(tuple(idents), time, slots))
        return self._with_fields({"groups": tuple(groups)})


def _not_a_step(optimizer: object, *given: object) -> ArgumentError:
    name = type(optimizer).__name__
    return ArgumentError(
        f"{name}.step takes a learning rate, a model and its gradients, in this order",
        given=f"step({', '.join(type(x).__name__ for x in given)})",
        expected="step(lr, model, gradients) with a Module and a GradientsParams",
        mend="grads = GradientsParams.from_grads(loss.backward(), model), then optim.step(lr, model, grads)",
    )


def _move_to(tensor: Tensor, device: Device | None) -> Tensor:
    return tensor if device is None else tensor.to_device(device.no_grad())


def _pick_members(group: StateGroup, members: Sequence[int]) -> StateGroup:
    slots = tuple(tuple(slot[i] for i in members) for slot in group.slots)
    return StateGroup(tuple(group.ids[i] for i in members), group.time, slots)


def _bare(param: Param) -> Tensor:
    """Its tensor off the device's tape, but for one that is differentiated through: that is updated where it lies."""
    value = param.val()
    backend: Any = value.backend
    if not backend.is_autodiff or is_computed(param) or is_recorded(backend, value.primitive):
        return value
    return value.inner()


def _beside(state: Tensor, x: Tensor) -> Tensor:
    """The state where its parameter lies: the model may have moved since the step before."""
    mixes = _stands_on(state.backend, x.backend) or _stands_on(x.backend, state.backend)
    return state if mixes and state.place == x.place else state.to_device(x.device)


def _stands_on(stack: object, other: object) -> bool:
    while stack is not other and stack is not None:
        stack = getattr(stack, "inner", None)
    return stack is not None


def _is_tracked(x: Any) -> bool:
    backend: Any = x.backend if isinstance(x, Tensor) else None
    return backend is not None and backend.is_autodiff and backend.is_tracked(x.primitive)


def _replace_value(param: Param, value: Tensor, connected: bool) -> Param:
    """The parameter after its update, which lies on its device.

    connected: a tensor that the user tracks, such as the learning rate, is among the numbers; it stays on its tape.
    """
    backend: Any = param.val().backend
    if value.backend.depth < backend.depth:
        value = Tensor(backend, backend.lift(value.primitive, value.backend), value.spec)
    return param.computed(value) if connected and _is_tracked(value) else param.with_value(value)


def run_update(
    row: Op, numbers: Sequence[object], *groups: Sequence[Tensor], **attrs: object
) -> list[Sequence[Tensor]]:
    """Returns what an optimizer row gives of numbers and groups of tensors: parameters, gradients, each kind of state.

    In one call for all tensors; but by the row's formula, tensor by tensor, where the step is differentiated or a
    number is a tensor: a learning rate that is trained itself.
    Raises: ShapeError for a number that is a tensor of several elements.
    """
    count = len(groups[0])
    if any(isinstance(x, Tensor) for x in numbers) or any(_is_tracked(x) for group in groups for x in group):
        formula = row.decomposition
        assert formula is not None
        plain = [[uncut(x) for x in group] for group in groups]
        each = [formula(*[_beside_axes(n, xs[0]) for n in numbers], *xs, **attrs) for xs in zip(*plain, strict=True)]
        return [list(group) for group in zip(*each, strict=True)]
    tensors = [x for group in groups for x in group]
    backend = tensors[0].backend
    if all(x.backend is backend for x in tensors):
        results = row.run(backend, Tensor, (*numbers, *tensors), attrs)
    else:
        results = row(*numbers, *map(uncut, tensors), **attrs)
    return [results[i : i + count] for i in range(0, len(results), count)]


def _beside_axes(number: object, x: Tensor) -> object:
    """A number that is a tensor with as many axes as x, in its element type."""
    if not isinstance(number, Tensor):
        return number
    if number.spec.numel != 1:
        raise ShapeError(
            "the learning rate and other numbers of an optimizer must each be one number",
            given=f"a tensor {number.spec}",
            expected="a Python number, or a tensor of one element",
            mend="parameters of different rates are groups: GroupedOptimizer.of(model, groups)",
        )
    return number.reshape((1,) * x.ndim).cast(x.dtype)
