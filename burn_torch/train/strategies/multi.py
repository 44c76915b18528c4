"""Several devices in one process: each computes the gradients of its part of the batch, and they are added up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final, Self, final

from burn_torch.core.checking import checked
from burn_torch.core.errors import ConfigError, TraceError
from burn_torch.core.share import shares
from burn_torch.core.wording import first_line
from burn_torch.module import Module, Param, ParamId, RunningState, Tree
from burn_torch.module.gradients import params_by_id
from burn_torch.module.tree import walk
from burn_torch.optim import GradientsParams, OptimizerRecord
from burn_torch.tensor import Device, Tensor
from burn_torch.train.learner import AnyLearner, Learner
from burn_torch.train.loop import GradientWindow, valid_step
from burn_torch.train.step import AnyBatch, AnyModel
from burn_torch.train.strategies.base import WHOLE_BATCH, Stepper
from burn_torch.train.strategies.parts import cut, items_in, map_tensors
from burn_torch.train.strategies.sharding import owners
from burn_torch.train.strategies.single import one_device
from burn_torch.transform.compilation import compile

__all__ = ["DeviceShards", "MultiDevice", "MultiDeviceOptim", "Several"]


class MultiDeviceOptim(StrEnum):
    """Says where the optimizer's states lie."""

    OptimMainDevice = "main"
    """All on the first device, which computes every update."""
    OptimSharded = "sharded"
    """Those of each parameter on one of the devices, which computes its update."""


@final
class Several:
    """The items of one batch, of several devices: each metric reads all of them."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.items: Final = tuple(items)


@checked(error=ConfigError)
@final
class MultiDevice:
    """Data-parallel training on several devices of one process.

        training.with_training_strategy(MultiDevice([Device.cuda(0), Device.cuda(1)]))

    The model is forked to every device, each batch is cut along the first axis of its tensors, gradients are added up
    weighted by items, and one update is made, whose parameters go back to all devices.  Random layers draw by an item's
    place in the whole batch, so the loss is that of one device, up to the order of sums.  BatchNorm takes statistics
    over each device's own items; their running means are averaged.  Validation runs on the first device.

    optim   `MultiDeviceOptim.OptimMainDevice`, or `.OptimSharded`, with the optimizer's states spread over the devices

    Raises: ConfigError for no device.
    """

    def __init__(
        self, devices: Sequence[Device], optim: MultiDeviceOptim | str = MultiDeviceOptim.OptimMainDevice
    ) -> None:
        if not devices or optim not in list(MultiDeviceOptim):
            raise ConfigError(
                "MultiDevice cannot train so",
                given=f"{len(devices)} devices, optim {str(optim)!r}",
                expected="one device at least, and MultiDeviceOptim.OptimMainDevice or .OptimSharded",
                mend="MultiDevice([Device.cuda(0), Device.cuda(1)])",
            )
        self.devices: Final = tuple(device if device.is_autodiff() else device.autodiff() for device in devices)
        self.optim: Final = MultiDeviceOptim(optim)

    def prepare(self, learner: AnyLearner, /) -> tuple[AnyLearner, Device]:
        """The learner on the first device."""
        model = learner.model.to_device(self.devices[0])
        learner = learner.with_model(model)
        if self.optim is MultiDeviceOptim.OptimSharded:
            if hasattr(model, "optimize"):
                raise ConfigError(
                    "a model that updates itself cannot have its optimizer in shards",
                    given=f"{type(model).__name__}.optimize with OptimSharded",
                    expected="updates by the optimizer alone",
                    mend="take MultiDeviceOptim.OptimMainDevice",
                )
            shards = DeviceShards.of(learner.optim, model, len(self.devices))
            learner = Learner(model, shards, learner.lr_scheduler)
        return learner, one_device(model)

    def make_steps(
        self, learner: AnyLearner, accumulation: int, compiled: bool, say: Callable[[str], None], /
    ) -> Stepper:
        """Returns what executes the steps of one run."""
        return _Steps(self.devices, accumulation, compiled, say)

    def train_step(self, learner: AnyLearner, batch: AnyBatch, key: int, /) -> tuple[AnyLearner, GradientsParams, Any]:
        """The gradients of one batch on all devices."""
        steps = _Steps(self.devices, 1, False, lambda text: None)
        learner, item = steps.add(learner, batch, key)
        return learner, steps.take(self.devices[0]).take(), item

    def optimizer_step(self, learner: AnyLearner, lr: float, grads: GradientsParams, /) -> AnyLearner:
        """One update."""
        return learner.optimizer_step(lr, grads)


@final
class _Steps:
    """The steps of a run on several devices."""

    def __init__(
        self, devices: Sequence[Device], accumulation: int, compiled: bool, say: Callable[[str], None]
    ) -> None:
        self.batches = 0
        self._devices: Final = devices
        self._accumulation: Final = accumulation
        self._compiled = compiled
        self._say: Final = say
        self._windows = [GradientWindow() for _ in devices]
        self._replicas: list[Any] = []
        """The model on each device; the first is the one that the learner had when they were made."""
        self._gradients: Final = compile(WHOLE_BATCH.gradients, donate="window", static="share")
        self._update: Final = compile(WHOLE_BATCH.update, donate="window")
        self._valid: Final = compile(valid_step)

    def train(self, learner: AnyLearner, lr: float, batch: AnyBatch, key: int) -> tuple[AnyLearner, Any, bool]:
        """One batch: the learner, the items, and whether its parameters were updated."""
        learner, item = self.add(learner, batch, key)
        self.batches += 1
        if self.batches < self._accumulation:
            return learner, item, False
        return self.finish(learner, lr), item, True

    def add(self, learner: AnyLearner, batch: AnyBatch, key: int) -> tuple[AnyLearner, Several]:
        """The gradients of one batch, added to those so far."""
        replicas = self._models(learner.model)
        parts = shares(items_in(batch), len(self._devices))
        items = []
        for i, (device, share) in enumerate(zip(self._devices, parts, strict=True)):
            if share.count:
                arguments = (replicas[i], self._windows[i], cut(batch, share, device), key, share)
                replicas[i], self._windows[i], item = self._run(self._gradients, WHOLE_BATCH.gradients, arguments)
                items.append(item)
        weights = [share.count / share.total for share in parts]
        model = _with_mean_states(learner.model, replicas, weights, self._devices[0])
        if model is not learner.model:
            replicas = [model, *(model.to_device(device) for device in self._devices[1:])]
        self._replicas = [model, *replicas[1:]]
        home = self._devices[0].inner()
        return learner.with_model(model), Several([map_tensors(item, lambda x: _moved(x, home)) for item in items])

    def take(self, device: Device, ids: frozenset[ParamId] | None = None) -> GradientWindow:
        """The gradients of all devices so far, of these parameters, on one device."""
        home = device.inner()
        windows = [_window_on(window, home, ids) for window in self._windows if window.sum is not None]
        window_of_all = GradientWindow()
        for window in windows:
            window_of_all = window_of_all.joined(window)
        return window_of_all

    def finish(self, learner: AnyLearner, lr: float) -> AnyLearner:
        """The update of the batches so far."""
        rates = dict(lr.groups) if hasattr(lr, "groups") else lr
        self.batches = 0
        if isinstance(learner.optim, DeviceShards):
            learner = self._finish_in_shards(learner, rates)
        else:
            arguments = (learner.model, learner.optim, self.take(self._devices[0]), rates)
            model, optim = self._run(self._update, WHOLE_BATCH.update, arguments)
            learner = replace(learner, model=model, optim=optim)
        self._windows = [GradientWindow() for _ in self._devices]
        return learner

    def _finish_in_shards(self, learner: AnyLearner, rates: object) -> AnyLearner:
        optim: DeviceShards = learner.optim
        replicas = self._models(learner.model)
        by_replica, parts = [], []
        for i, device in enumerate(self._devices):
            model, part = replicas[i], optim.parts[i]
            if optim.of_part(i):
                arguments = (model, part, self.take(device, optim.of_part(i)), rates)
                model, part = self._run(self._update, WHOLE_BATCH.update, arguments)
            by_replica.append(params_by_id(model))
            parts.append(part)
        owner = dict(zip(optim.ids, optim.owned_by, strict=True))
        home = self._devices[0].inner()

        def updated(param: Param) -> Param:
            if param.id not in owner:
                return param
            value = by_replica[owner[param.id]][param.id].val()
            bare = _moved(value.no_grad(), home)
            return param.with_value(Tensor(param.val().backend, bare.primitive, bare.spec))

        model = learner.model.map_params(updated)
        return replace(learner, model=model, optim=optim.with_parts(parts))

    def valid(self, model: AnyModel, batch: AnyBatch, key: int) -> Any:
        """One batch of validation, on the first device."""
        return self._run(self._valid, valid_step, (model, batch, key))

    def _models(self, model: AnyModel) -> list[Any]:
        if not self._replicas or self._replicas[0] is not model:
            self._replicas = [model, *(model.to_device(device) for device in self._devices[1:])]
        return list(self._replicas)

    def _run(self, compiled: Callable[..., Any], function: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        if self._compiled:
            try:
                return compiled(*given)
            except TraceError as err:
                self._compiled = False
                self._say(f"steps run eagerly, they cannot be compiled: {first_line(err)}")
        return function(*given)


def _moved(x: object, device: Device) -> Any:
    if not isinstance(x, Tensor):
        return x
    bare = x.no_grad()
    return bare if bare.place == device.place else bare.to_device(device)


def _window_on(window: GradientWindow, device: Device, ids: frozenset[ParamId] | None) -> GradientWindow:
    assert window.sum is not None
    kept = {i: _moved(g, device) for i, g in window.sum.items() if ids is None or i in ids}
    return GradientWindow(GradientsParams(kept), _moved(window.items, device))


def _with_mean_states(model: AnyModel, replicas: Sequence[object], weights: Sequence[float], device: Device) -> Any:
    """The model with the means of the devices' running statistics; other states are those of the first device."""
    means: dict[Any, Any] = {}
    for replica, weight in zip(replicas, weights, strict=True):
        for _, leaf in walk(replica):
            if isinstance(leaf, RunningState) and weight:
                value = _moved(leaf.value(), device.inner())
                if not value.dtype.is_float:
                    means.setdefault(leaf.id, value)
                else:
                    means[leaf.id] = means[leaf.id] + value * weight if leaf.id in means else value * weight
    states = {leaf.id: leaf.value() for _, leaf in walk(model) if isinstance(leaf, RunningState)}
    return model.with_states(
        {ident: Tensor(states[ident].backend, value.primitive, value.spec) for ident, value in means.items()}
    )


class DeviceShards(Tree):
    """An optimizer in parts, one a device, each of the parameters that `owned_by` gives it."""

    parts: tuple[Any, ...]
    ids: tuple[ParamId, ...]
    owned_by: tuple[int, ...]

    @staticmethod
    def of(optim: Any, model: Module, count: int) -> DeviceShards:
        """An optimizer cut for a model."""
        params = {ident: param for ident, param in params_by_id(model).items() if param.require_grad}
        owned_by = owners([param.val().spec.numel for param in params.values()], count)
        return DeviceShards((optim,) * count, tuple(params), tuple(owned_by)).load_record(optim.to_record())

    def of_part(self, part: int) -> frozenset[ParamId]:
        """The parameters of a part."""
        return frozenset(ident for ident, owner in zip(self.ids, self.owned_by, strict=True) if owner == part)

    def with_ids(self, ids: Mapping[ParamId, ParamId]) -> Self:
        """It, for the same parameters under other ids, given by those that they had."""
        parts = [part.with_ids(ids) if hasattr(part, "with_ids") else part for part in self.parts]
        return self._with_fields({"parts": tuple(parts), "ids": tuple(ids.get(ident, ident) for ident in self.ids)})

    def with_parts(self, parts: Sequence[object]) -> Self:
        """It, with other parts."""
        return self._with_fields({"parts": tuple(parts)})

    def step(self, lr: object, model: AnyModel, gradients: GradientsParams) -> tuple[Any, Self]:
        """The model and the optimizer after one update, all of it where the model lies."""
        parts = []
        for i, part in enumerate(self.parts):
            mine = self.of_part(i)
            own = GradientsParams({ident: gradient for ident, gradient in gradients.items() if ident in mine})
            model, stepped = part.step(lr, model, own)
            parts.append(stepped)
        return model, self.with_parts(parts)

    def to_record(self) -> OptimizerRecord:
        """The states of all parts, as one device would have them."""
        records = [part.to_record() for part in self.parts]
        states = {ident: state for record in records for ident, state in record.states.items()}
        return OptimizerRecord(records[0].kind, {ident: states[ident] for ident in self.ids if ident in states})

    def load_record(self, record: OptimizerRecord, device: Device | None = None) -> Self:
        """It, with the states of a record.  Raises: RecordError for the record of another kind of optimizer."""
        parts = []
        for i, part in enumerate(self.parts):
            mine = self.of_part(i)
            states = {ident: state for ident, state in record.states.items() if ident in mine}
            parts.append(part.load_record(OptimizerRecord(record.kind, states), device))
        return self.with_parts(parts)
