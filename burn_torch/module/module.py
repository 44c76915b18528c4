"""Module: a network as an immutable, typed tree of fields."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, dataclass_transform

from burn_torch.core.errors import ArgumentError, DeviceError
from burn_torch.core.spellings import attach_spellings
from burn_torch.core.spellings.layers import MODULE
from burn_torch.module import display, reparameterized, tree
from burn_torch.module.annotations import scope_of_statement
from burn_torch.module.fields import check_class, checked_constructor, require_declared
from burn_torch.module.param import Param, ParamId
from burn_torch.module.param_group import ParamGroup, no_members, require_group
from burn_torch.module.running_state import RunningState
from burn_torch.module.tree import Tree
from burn_torch.tensor import Device, Tensor

if TYPE_CHECKING:
    from burn_torch.module.lora import Lora, QLora
    from burn_torch.module.quantization import Quantizer
    from burn_torch.module.record import FileRecorder, ModuleRecord, Store, WritableStore
    from burn_torch.module.reparameterization import Reparameterizer
    from burn_torch.module.visitor import ModuleMapper, ModuleVisitor

__all__ = ["Module"]

T = TypeVar("T")


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(dataclasses.field,))
class Module(Tree):
    """Base of all networks.  Declare fields by annotation; the constructor takes them in order.

        class Mlp(Module):
            linear1: Linear
            linear2: Linear
            activation: Relu

            def forward(self, x: Tensor) -> Tensor:
                return self.linear2.forward(self.activation.forward(self.linear1.forward(x)))

    Fields that hold a Module, Param, RunningState or Tensor (alone or in lists, tuples, dicts, or None) form the tree;
    all other fields are constants.  Lists are kept as tuples, dicts as copies; no field may have the name of a method
    of Module.  A module never changes: training, moving and loading give a new one that shares what stayed the same.
    """

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """The result of `forward`: `linear(x)` is `linear.forward(x)`.  A class may define what a call of its own does.

        Raises: ArgumentError for a module that has no method `forward`.
        """
        forward = getattr(type(self), "forward", None)
        if forward is None:
            raise self._no_forward(args, kwargs)
        return forward(self, *args, **kwargs)

    def _no_forward(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> ArgumentError:
        name = type(self).__name__
        own = [name for name, value in vars(type(self)).items() if inspect.isfunction(value) and name[0] != "_"]
        return ArgumentError(
            f"{name}: this module has no forward, which a call would run",
            given=f"{name}(...) called with {len(args) + len(kwargs)} arguments",
            expected=f"a call of one of its methods: {', '.join(own)}" if own else "a method forward",
            mend="call the method by its name, or define forward(self, ...) in the class",
        )

    _require_declared = require_declared
    _scope: ClassVar[Mapping[str, object]]
    """The names of the class statement's scope that its annotations use."""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        cls._scope = scope_of_statement(cls, sys._getframe(1))
        check_class(cls)
        cls.__init__ = checked_constructor(cls, cls.__init__)  # type: ignore[method-assign]  # the same function, checked

    def named_params(self) -> Iterator[tuple[str, Param]]:
        """Paths and parameters in order, each parameter once: ("conv1.weight", Param)."""
        seen: set[int] = set()
        for path, leaf in tree.walk(self):
            if isinstance(leaf, Param) and id(leaf) not in seen:
                seen.add(id(leaf))
                yield path, leaf

    def named_states(self) -> Iterator[tuple[str, RunningState]]:
        """Paths and running states in order, each once: ("norm.running_mean", RunningState)."""
        seen: set[int] = set()
        for path, leaf in tree.walk(self):
            if isinstance(leaf, RunningState) and id(leaf) not in seen:
                seen.add(id(leaf))
                yield path, leaf

    def map_params(self, function: Callable[..., object]) -> Self:
        """The same module with `function(param)` in the place of each parameter; a shared one is mapped once."""
        return tree.rebuild(self, lambda leaf: function(leaf) if isinstance(leaf, Param) else leaf)

    def with_states(self, states: Mapping[ParamId, Tensor]) -> Self:
        """The same module with new values of running states, by their id; see StepScope."""
        if not states:
            return self
        return tree.rebuild(
            self,
            lambda leaf: (
                leaf.with_value(states[leaf.id]) if isinstance(leaf, RunningState) and leaf.id in states else leaf
            ),
        )

    # -- counting and walking ---------------------------------------------------------------
    def num_params(self) -> int:
        """Number of elements in all parameters, shared ones once.  Running statistics are none."""
        from burn_torch.module.quantization import quantized_params  # which needs trees

        quantized = [param for _, param in quantized_params(self)]
        inside = {id(leaf) for param in quantized for _, leaf in tree.walk(param)}
        whole = {id(param.codes): param.numel for param in quantized}
        return sum(param.numel for _, param in self.named_params() if id(param) not in inside) + sum(whole.values())

    def devices(self) -> list[Device]:
        """The devices of all parameters, running states and constant tensors, each once."""
        return list(dict.fromkeys(leaf.device for _, leaf in tree.walk(self)))

    def visit(self, visitor: ModuleVisitor) -> None:
        """Shows each parameter to a visitor."""
        _visit(self, visitor, "")

    def map(self, mapper: ModuleMapper) -> Self:
        """The same module with each parameter as the mapper gives it back."""
        return _map(self, mapper, {})

    # -- devices and gradients ------------------------------------------------------------------
    def to_device(self, device: Device) -> Self:
        """The same module on another device; parameters keep their ids and become leaves there.

        Running states get cells of their own there, as `fork`, `valid` and `train` give them: what one module learns
        of its data leaves the other as it was.
        """
        there = all(param.device is device for _, param in self.named_params())
        return self._move_to(device) if there else self._copy_to(device, Param.on_device)

    def fork(self, device: Device) -> Self:
        """A copy on `device` for a worker: new leaves and cells, apart from any tape."""
        return self._copy_to(device)

    def _move_to(self, device: Device) -> Self:
        """Moves what lies elsewhere; the rest is the same object."""
        host = device.no_grad()
        return tree.rebuild(
            self,
            lambda leaf: (
                leaf.on_device(device)
                if isinstance(leaf, Param)
                else leaf.to_device(host if isinstance(leaf, RunningState) else device)
            ),
        )

    def _copy_to(self, device: Device, move: Callable[[Param, Device], Param] = Param.fork) -> Self:
        """New leaves and cells; constants are shared where they lie there already."""
        host = device.no_grad()

        def copy(leaf: Any) -> Any:
            if isinstance(leaf, Param):
                return move(leaf, device)
            return leaf.fork(host) if isinstance(leaf, RunningState) else leaf.to_device(device)

        return tree.rebuild(self, copy)

    def no_grad(self) -> Self:
        """The same module with frozen parameters: constants of every derivative."""
        return self.map_params(lambda param: param.set_require_grad(False))

    def requires_grad(self) -> Self:
        """The same module with all float parameters trainable again."""
        return self.map_params(lambda param: param.set_require_grad(True))

    def freeze_group(self, group: ParamGroup) -> Self:
        """The same module; the parameters of a group are constants of every derivative.

        Raises: ArgumentError for a group without parameters here, and for what is no group.
        """
        return self._map_group("freeze_group", group, lambda param: param.set_require_grad(False))

    def unfreeze_group(self, group: ParamGroup) -> Self:
        """The same module; the float parameters of a group are trainable again.  Raises: as `freeze_group`."""
        return self._map_group("unfreeze_group", group, lambda param: param.set_require_grad(True))

    def _map_group(self, what: str, group: ParamGroup, function: Callable[[Param], Param]) -> Self:
        leaves = [(path, leaf) for path, leaf in tree.walk(self) if isinstance(leaf, Param)]
        members = {id(param) for path, param in leaves if require_group(what, group).matches(param.id, path)}
        if not members:
            raise no_members(what, group, [path for path, _ in leaves])
        return self.map_params(lambda param: function(param) if id(param) in members else param)

    def valid(self) -> Self:
        """The module for evaluation: on the inner device, where Dropout and BatchNorm do not train.  Its parameters are
        constants of every derivative.  Reparameterizations stay, so that `train()` goes on with them; Burn merges them
        here: `model.valid().merge_reparameterizations()`.

        A module that holds no tensor has no device and is given back as it is.

        Raises: DeviceError if the module is already on a device without gradients.
        """
        device = self._only_device("valid")
        if device is None:
            return self
        if not device.is_autodiff():
            raise DeviceError(
                "valid: the module is already on a device without gradients",
                given=repr(device),
                expected="a module of a device.autodiff()",
                mend="use it as it is",
            )
        return self._copy_to(device.inner())

    def train(self) -> Self:
        """The module for training again: on the same place with gradients."""
        device = self._only_device("train")
        return self if device is None or device.is_autodiff() else self._copy_to(device.autodiff())

    def _only_device(self, what: str) -> Device | None:
        devices = list(dict.fromkeys(param.device for _, param in self.named_params()))
        devices = devices or self.devices()
        if len(devices) > 1:
            raise DeviceError(
                f"{what}: the parameters lie on several devices",
                given=", ".join(map(repr, devices)),
                expected="one device",
                mend="move the module first: module.to_device(device)",
            )
        return devices[0] if devices else None

    # -- reparameterizations ---------------------------------------------------------------------
    def apply_reparameterization(self, reparameterizer: Reparameterizer) -> Self:
        """The same module, in which float parameters are computed from a base and further parameters.

        `reparameterizer.reparameterize(path, param)` says for each parameter what takes its place: see Reparameterizer.
        Raises: ArgumentError where a parameter is to be reparameterized twice.
        """
        return reparameterized.apply_to(self, reparameterizer)

    def apply_lora(self, lora: Lora) -> Self:
        """The same module, frozen, with trainable low-rank adapters at the matrices of `lora.param_group`.

        Raises: ArgumentError where no matrix belongs to the group, or one has an adapter already.
        """
        return reparameterized.apply_lora(self, lora)

    def apply_qlora(self, qlora: QLora) -> Self:
        """The same module, frozen, with trainable low-rank adapters over quantised weights.

        The frozen parameters of the quantizer's group are codes and scales; a Linear multiplies by them as they are.
        Raises: as `apply_lora`.
        """
        return reparameterized.apply_qlora(self, qlora)

    def merge_reparameterizations(self) -> Self:
        """The same module with plain parameters again, which hold the values that were computed."""
        return reparameterized.merge_into(self)

    # -- quantisation ----------------------------------------------------------------------------
    def quantize_weights(self, quantizer: Quantizer) -> Self:
        """The same module with codes and scales in the place of its parameters of floats, as Burn does after training.

        Each becomes a QuantizedParam, which is not trained.  The quantizer's group says which; all, without one.
        """
        return quantizer.quantize_module(self)

    def quantize_weights_group(self, quantizer: Quantizer, group: ParamGroup) -> Self:
        """`quantize_weights` of the parameters of a group: a `ParamGroup`."""
        return quantizer.set_param_group(group).quantize_module(self)

    def fake_quantize_weights(self, quantizer: Quantizer) -> Self:
        """The same module with parameters as quantising leaves them; gradients flow straight through to its own.

        In a loss it trains the module for what `quantize_weights` will make of it.
        """
        return quantizer.fake_quantize_module(self)

    # -- records ---------------------------------------------------------------------------------
    def into_record(self) -> ModuleRecord:
        """Its parameters and running states as a record: named tensors."""
        from burn_torch.module.record import ModuleRecord

        return ModuleRecord.from_module(self)

    def into_record_group(self, group: ParamGroup) -> ModuleRecord:
        """The values of a group as a record, such as those of the adapters alone.

        A module takes it with `load_record(record.allow_partial())`.
        Raises: ArgumentError for a group without values here, and for what is no group.
        """
        record = self.into_record()
        require_group("into_record_group", group)
        entries = {path: entry for path, entry in record.entries.items() if group.matches(entry.id, path)}
        if not entries:
            raise no_members("into_record_group", group, list(record.entries))
        return dataclasses.replace(record, entries=entries)

    def load_record(self, record: ModuleRecord) -> Self:
        """The same module with the values of a record.

        Raises: RecordError that lists every missing, unused and mismatched key; nothing is loaded then.
        """
        return record.apply(self)

    def save_file(self, path: str | Path, recorder: FileRecorder | None = None) -> Path:
        """Writes the record to a file, whole or not at all; the ending chooses the format (default .safetensors).

        A recorder chooses format, ending and precision instead: `model.save_file("model", CompactRecorder())`.
        Returns: the path written.  Raises: RecordError for an unknown ending, ArtifactError where it cannot write.
        """
        record = self.into_record()
        return record.save(path) if recorder is None else recorder.record(record, path)

    def load_file(self, path: str | Path, recorder: FileRecorder | None = None, device: Device | None = None) -> Self:
        """The same module with the values of a file; all keys are checked before anything changes.

        It stays where it is, or goes to `device`.
        Raises: RecordError for a damaged file or one of another model.
        """
        if recorder is not None or device is not None:
            module = self if device is None else self.to_device(device)
            return module.load_record(recorder.load(path)) if recorder is not None else module.load_file(path)
        from burn_torch.module.record import ModuleRecord

        return self.load_record(ModuleRecord.load(path))

    def load_from(self, store: Store) -> tuple[Self, Any]:
        """The same module with the values of a store of `burn_torch.record.stores`, and what became of each key.

        Raises: RecordError with every fault at once.
        """
        return store.apply_to(self)

    def save_into(self, store: WritableStore) -> Path:
        """Writes the module as a store says, whole or not at all; returns the file.

        Raises: ArgumentError for a store that is only read.
        """
        if not hasattr(store, "collect_from"):
            raise ArgumentError(
                "save_into: nothing is written there",
                given=type(store).__name__,
                expected="a store that is written: a SafetensorsStore or a BurnpackStore",
                mend="for PyTorch SafetensorsStore.from_file(path).with_to_adapter(BurnToPyTorchAdapter()), "
                "which safetensors.torch.load_file reads; save_file(path) writes to a path",
            )
        return store.collect_from(self)

    # -- display -----------------------------------------------------------------------------------
    def custom_content(self, content: display.Content) -> display.Content | None:
        """Returns what `print(module)` shows of it; None for all fields.  Layers override it to show their sizes."""
        return None

    def custom_settings(self) -> display.DisplaySettings | None:
        """Returns how this module and what is inside print, unless `format` is told otherwise; None for the defaults.

        A class overrides it: `return DisplaySettings().with_show_param_id(True)`.
        """
        return None

    def format(self, settings: display.DisplaySettings | None = None) -> str:
        """The nested tree as text."""
        return display.format_module(self, settings or display.DisplaySettings())

    def __repr__(self) -> str:
        return self.format()


attach_spellings(Module, {"new": MODULE["new"]})
Module.__init__ = checked_constructor(Module, Module.__init__)  # type: ignore[method-assign]  # the same function, checked


def _kind(param: Param) -> str:
    dtype = param.val().dtype
    return "bool" if dtype.is_bool else "int" if dtype.is_int else "float"


def _visit(value: object, visitor: ModuleVisitor, path: str) -> None:
    for name, child in tree.named_children(value):
        where = tree.join_path(path, name)
        if isinstance(child, Param):
            kind = _kind(child)
            if name:
                visitor.enter_module(name, "Param")
            getattr(visitor, f"visit_{kind}")(child)
            getattr(visitor, f"visit_{kind}_with_path")(where, child.id, child.val())
            if name:
                visitor.exit_module(name, "Param")
        elif isinstance(child, RunningState):
            visitor.visit_state(where, child)
        elif not isinstance(child, Tensor):
            container = tree.container_name(child)
            visitor.enter_module(name, container)
            _visit(child, visitor, where)
            visitor.exit_module(name, container)


def _map(value: T, mapper: ModuleMapper, memo: dict[int, Any]) -> T:
    mapped: T
    if id(value) in memo:
        mapped = memo[id(value)]
        return mapped
    mapped = value
    if isinstance(value, Param):
        mapped = getattr(mapper, f"map_{_kind(value)}")(value)
    elif isinstance(value, RunningState):
        mapped = mapper.map_state(value)
    elif not isinstance(value, Tensor):
        entries: dict[str, Any] = {}
        for (field, child), (name, _) in zip(tree.children(value), tree.named_children(value), strict=True):
            container = "Param" if isinstance(child, Param) else tree.container_name(child)
            if name:
                mapper.enter_module(name, container)
            entries[field] = _map(child, mapper, memo)
            if name:
                mapper.exit_module(name, container)
        mapped = _with_entries(value, entries)
    memo[id(value)] = mapped
    return mapped


def _with_entries(value: Any, entries: dict[str, Any]) -> Any:
    if all(new is old for new, (_, old) in zip(entries.values(), tree.children(value), strict=True)):
        return value
    if isinstance(value, Tree):
        return value._with_fields(entries)
    if isinstance(value, dict):
        return type(value)({key: entries.get(str(key), item) for key, item in value.items()})
    items = [entries.get(str(i), item) for i, item in enumerate(value)]
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
