"""Param: a tensor that training changes, with an identity of its own."""

from __future__ import annotations

import random
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

import numpy as np
import torch

from burn_torch.backend.autodiff.laid import is_recorded
from burn_torch.backend.tracing import Session, active, suspended
from burn_torch.core.checking import checked
from burn_torch.core.dtype import DType
from burn_torch.core.errors import BurnTorchError, DTypeError, ShapeError, TraceError
from burn_torch.core.frames import at_user_line, user_line
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.core.spellings import Named, attach_spellings
from burn_torch.core.spellings.tensors import PARAM
from burn_torch.core.wording import described
from burn_torch.ops.value import Value
from burn_torch.tensor import Device, Tensor
from burn_torch.tensor.apply import NUMBERS
from burn_torch.tensor.device import no_device
from burn_torch.tensor.gradients import leaf_id

if TYPE_CHECKING:
    from burn_torch.module.lora import LoraAdapter
    from burn_torch.module.reparameterization import Reparameterization

__all__ = ["Param", "ParamId", "ParamMapper", "is_computed"]

_SOURCE: Final[ContextVar[random.Random | None]] = ContextVar("identities of parameters", default=None)
_lock: Final = threading.RLock()  # making a parameter may read another: one that moved, or lies the other way round


@final
class ParamId(int):
    """The identity of a parameter, a random 63-bit number: the key of its gradient and of its optimizer state.

    It survives training steps, moves between devices and records.
    """

    __slots__ = ()

    @staticmethod
    def new() -> ParamId:
        """An identity that no other parameter has; inside of `seeded` the next one that follows from the seed."""
        source = _SOURCE.get()
        return ParamId(secrets.randbits(63) if source is None else source.getrandbits(63))

    @staticmethod
    @contextmanager
    def seeded(seed: int) -> Iterator[None]:
        """Identities that this thread makes until the block ends follow from a seed.

        So two runs of a program write the same bytes into a record.  For a program that builds its models once: models
        of two blocks with one seed have the same identities, and one optimizer would not tell them apart.
        """
        token = _SOURCE.set(random.Random(f"identities of parameters {seed}"))
        try:
            yield
        finally:
            _SOURCE.reset(token)

    @staticmethod
    def parse(text: str) -> ParamId:
        """The identity that `str` wrote.  Raises: ValueError for other text."""
        return ParamId(int(text, 16))

    def __str__(self) -> str:
        return f"{int(self):016x}"

    def __repr__(self) -> str:
        return f"ParamId({self})"


@checked
@final
@dataclass(frozen=True)
class ParamMapper:
    """Holds what happens to a parameter's tensor on its way from and into a record."""

    load: Callable[[Tensor], Tensor] | None = None
    save: Callable[[Tensor], Tensor] | None = None

    def on_load(self, tensor: Tensor) -> Tensor:
        """The tensor as the module wants it."""
        return tensor if self.load is None else self.load(tensor)

    def on_save(self, tensor: Tensor) -> Tensor:
        """The tensor as the record wants it."""
        return tensor if self.save is None else self.save(tensor)


@final
@dataclass(frozen=True)
class _Lazy:
    """How an uninitialised parameter will be made."""

    make: Callable[[Device, bool], Tensor]
    device: Device
    shape: Shape
    dtype: DType | None
    """None where the caller declared none."""
    traced: bool = False
    """Says whether a function that is traced asked for it."""


@final
class Param(metaclass=Named):
    """A tensor with an identity, made when it is first read.

    `val()` gives the tensor: on a device with gradients it is a leaf of the tape, unless `require_grad` is off.  One
    that a function computes while `grad` or its kin differentiate it is no leaf there: gradients flow on through it.
    Immutable: `map` and the module's methods give new Params with the same id.
    """

    __slots__ = ("__weakref__", "_lazy", "_newest", "_value", "id", "mapper", "require_grad")

    id: ParamId
    require_grad: bool
    mapper: ParamMapper
    _value: Tensor | None
    _lazy: _Lazy | None
    _newest: list[int]
    """The leaf of the newest of its versions that are leaves; all that `with_value` made of one share it."""

    def __init__(
        self, value: Tensor, id: ParamId | None = None, *, require_grad: bool = True, mapper: ParamMapper | None = None
    ) -> None:
        if not isinstance(value, Tensor):
            raise _no_tensor(value)
        if not isinstance(id, ParamId | None) or not isinstance(mapper, ParamMapper | None):
            raise _no_identity(id, mapper)
        self.id = ParamId.new() if id is None else id
        self.require_grad = require_grad and value.dtype.is_float
        self.mapper = mapper or ParamMapper()
        self._lazy, self._newest = None, []
        self._value = _as_leaf(value, self.require_grad)

    # -- making ------------------------------------------------------------------------
    @staticmethod
    def initialized(id: ParamId, value: Tensor) -> Param:
        """A parameter with a given identity."""
        return Param(value, id)

    @staticmethod
    def from_tensor(value: Tensor) -> Param:
        """A parameter with a new identity."""
        return Param(value)

    @staticmethod
    def from_data(data: Any, device: Device) -> Param:
        """A parameter from nested sequences, arrays or TensorData."""
        return Param(Tensor.from_data(data, device))

    @staticmethod
    @checked(but=("device",))
    def uninitialized(
        id: ParamId,
        init: Callable[[Device, bool], Tensor],
        device: Device,
        require_grad: bool,
        shape: Shape,
        dtype: DType | None = None,
    ) -> Param:
        """A parameter that `init(device, require_grad)` makes when it is first read.

        With `dtype` its element type is known before; without one, loading takes f32 for it where the record has f32,
        and else follows `init` without computing anything.
        Raises: DeviceError for what is no device, which every layer passes on.
        """
        if not isinstance(device, Device):
            raise no_device(device)
        param = object.__new__(Param)
        param.id = id
        param.require_grad = require_grad
        param.mapper = ParamMapper()
        param._value, param._newest = None, []
        param._lazy = _Lazy(init, device, tuple(shape), dtype, active() is not None)
        return param

    # -- reading -------------------------------------------------------------------------
    def val(self) -> Tensor:
        """The tensor; made now if it was not yet."""
        value = self._value
        return value if value is not None else self._materialise()

    def _materialise(self) -> Tensor:
        with _lock:  # two threads that read first must see one tensor
            value = self._value
            if value is None:
                lazy = self._lazy
                assert lazy is not None
                if lazy.traced and active() is not None:
                    raise TraceError(
                        "a parameter was made while a function was traced",
                        given=f"a parameter {lazy.shape}, at {user_line(2) or 'an unknown line'}",
                        expected="parameters that come in with a module: made inside, each call would give a new"
                        " module the identities and numbers of the first",
                        mend="make the module outside and pass it as an argument",
                    )
                with suspended():  # a function that is traced reads a parameter; it does not make it
                    initial = lazy.make(lazy.device, self.require_grad)
                if initial.shape != lazy.shape or lazy.dtype not in (None, initial.dtype):
                    raise (ShapeError if initial.shape != lazy.shape else DTypeError)(
                        "an initializer made another shape or type than the parameter has",
                        given=f"{initial.shape} {initial.dtype}",
                        expected=f"{lazy.shape} {lazy.dtype or ''}".rstrip(),
                        mend="return a tensor of the shape and dtype that Param.uninitialized was given",
                    )
                self.require_grad = self.require_grad and initial.dtype.is_float
                value = self._value = _as_leaf(initial, self.require_grad)
                self._lazy = None
        return value

    def base(self) -> Tensor:
        """The tensor that a reparameterization starts from; here, where there is none, `val()`."""
        return self.val()

    def reparameterization(self) -> Reparameterization | None:
        """Returns the module that computes the value from the base; None if the base is the value."""
        return None

    def adapter(self) -> LoraAdapter | None:
        """The low-rank adapter that is added to the base; None: there is none."""
        return None

    def is_initialized(self) -> bool:
        """Returns whether the tensor exists already."""
        return self._value is not None

    def spec(self) -> TensorSpec:
        """Shape, element type and place; computes nothing, also where the tensor is not made yet."""
        lazy = self._lazy
        if lazy is None:
            return self.val().spec
        if lazy.dtype is None:
            return _spec_of(lazy.device, lambda _: lazy.make(lazy.device, False)) or self.val().spec
        return TensorSpec.of(lazy.shape, lazy.dtype, lazy.device.place)

    @checked
    def record_spec(self, dtype: DType | None = None) -> TensorSpec:
        """Shape and element type of the value in a record; computes nothing where the tensor is not made yet.

        `dtype` is that of a value which might be loaded: see `uninitialized`.
        """
        lazy, save = self._lazy, self.mapper.save
        if lazy is None:
            return self.transform_for_save().spec
        believed = lazy.dtype is None and dtype is DType.F32
        spec = TensorSpec.of(lazy.shape, DType.F32, lazy.device.place) if believed else self.spec()
        if save is None:
            return spec
        return _spec_of(lazy.device, lambda session: save(_input(session, spec))) or self.transform_for_save().spec

    @property
    def shape(self) -> Shape:
        """Sizes of the axes; makes nothing."""
        lazy = self._lazy
        return lazy.shape if lazy is not None else self.val().shape

    @property
    def device(self) -> Device:
        """Returns where the tensor lives, or will; makes nothing."""
        lazy = self._lazy
        return lazy.device if lazy is not None else self.val().device

    lazy_shape = shape
    lazy_device = device

    @property
    def numel(self) -> int:
        """Number of elements; makes nothing."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    def into_value(self) -> Tensor:
        """The tensor alone."""
        return self.val()

    def consume(self) -> tuple[ParamId, Tensor, ParamMapper]:
        """Identity, tensor and mapper."""
        return self.id, self.val(), self.mapper

    # -- new parameters with the same identity ----------------------------------------------------
    def map(self, function: Callable[[Tensor], Tensor]) -> Param:
        """The same parameter with `function(tensor)` for its tensor."""
        return self.with_value(function(self.val()))

    def with_value(self, value: Tensor) -> Param:
        """The same parameter with another tensor: a leaf again, unless this one is computed."""
        if is_computed(self) and value.backend.is_autodiff and _is_computed(value):
            return self.computed(value)
        param = Param(value, self.id, require_grad=self.require_grad, mapper=self.mapper)
        value = param.val()
        if value.is_require_grad():
            param._newest = self._newest
            param._newest[:] = (leaf_id(value),)
        return param

    def newest_leaf(self) -> int | None:
        """The tape's number of the leaf that the newest version of it is; None where no version was made of another."""
        return self._newest[0] if self._newest else None

    def computed(self, value: Tensor) -> Param:
        """The same parameter with a tensor that stays on its tape: gradients flow on to what it was computed from."""
        param = object.__new__(Param)
        param.id, param.mapper, param._newest = self.id, self.mapper, self._newest
        param._lazy, param._value = None, value
        param.require_grad = self.require_grad and value.dtype.is_float
        return param

    @checked
    def set_require_grad(self, require_grad: bool) -> Param:
        """The same parameter, with gradients, or as a constant of every derivative."""
        if require_grad == self.require_grad and (require_grad or self._value is None):
            return self
        value = self.val() if require_grad else self.val().detach()
        if require_grad == self.require_grad and value is self.val():
            return self
        return Param(value, self.id, require_grad=require_grad, mapper=self.mapper)

    def on_device(self, device: Device) -> Param:
        """The same parameter on another device, as a leaf there.  An uninitialised one stays so."""
        if self.device is device:
            return self
        if self._lazy is not None:
            return self.fork(device)
        return self.map(lambda value: _off_tape(value).to_device(device))

    def fork(self, device: Device) -> Param:
        """The same parameter as another leaf, on `device`, apart from any tape.  An uninitialised one stays so."""
        lazy = self._lazy
        if lazy is None:
            return self.map(lambda value: value.detach().to_device(device))
        forked = Param.uninitialized(self.id, _moved(self, device), device, self.require_grad, lazy.shape, lazy.dtype)
        forked.mapper = self.mapper
        return forked

    def with_mapper(
        self, load: Callable[[Tensor], Tensor] | None = None, save: Callable[[Tensor], Tensor] | None = None
    ) -> Param:
        """The same parameter with functions that its tensor passes on its way from and into records."""
        param = object.__new__(Param)
        param.id, param.require_grad = self.id, self.require_grad
        param._lazy = self._lazy  # read first: another thread that makes the value sets `_value`, then clears this
        param._value, param._newest = self._value, self._newest
        param.mapper = ParamMapper(load or self.mapper.load, save or self.mapper.save)
        return param

    def load_mapper(self, function: Callable[[Tensor], Tensor]) -> Param:
        """The same parameter whose tensor passes `function` when it is loaded."""
        return self.with_mapper(load=function)

    def save_mapper(self, function: Callable[[Tensor], Tensor]) -> Param:
        """The same parameter whose tensor passes `function` when it is saved."""
        return self.with_mapper(save=function)

    def init_mapper(self, function: Callable[[Tensor], Tensor]) -> Param:
        """The same parameter whose tensor passes `function` when it is made; at once if it exists."""
        lazy = self._lazy
        if lazy is None:
            return self.map(lambda value: function(_off_tape(value)))
        make = lazy.make
        param = Param.uninitialized(
            self.id, lambda device, grad: function(make(device, grad)), lazy.device, self.require_grad, lazy.shape
        )
        param.mapper = self.mapper
        return param

    @checked
    def transform_for_load(self, tensor: Tensor, id: ParamId) -> Param:
        """This parameter with a tensor from a record, on this parameter's device."""
        value = self.mapper.on_load(tensor).to_device(self.device)
        return Param(value, id, require_grad=self.require_grad, mapper=self.mapper)

    def transform_for_save(self) -> Tensor:
        """The tensor that goes into a record."""
        return self.mapper.on_save(self.val().detach())

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (self.val().detach(), self.id, self.require_grad, self.mapper))

    def __repr__(self) -> str:
        state = "" if self.is_initialized() else ", not yet made"
        return f"Param({self.id}, shape={self.shape}{state})"


attach_spellings(Param, PARAM)


def _no_identity(id: object, mapper: object) -> DTypeError:
    return DTypeError(
        "Param: the identity or the mapper is of another type",
        given=f"id {described(id)}, mapper {described(mapper)}",
        expected="a ParamId and a ParamMapper, or None",
        mend="leave them out: Param.from_tensor(tensor) has an identity of its own",
    )


def _refuse_operator(param: Any, *others: Any, **named: Any) -> NoReturn:
    raise at_user_line(
        DTypeError(
            "Param: a parameter is not an operand, nor an argument of functions of numpy and torch",
            given=repr(param),
            expected="its tensor",
            mend="param.val() is its tensor: param.val() + 1, np.asarray(param.val())",
        )
    )


def _equals(param: Param, other: object) -> bool:
    if isinstance(other, (Value, *NUMBERS, np.ndarray, torch.Tensor)):  # which would never be equal
        _refuse_operator(param)
    return param is other


Param.__eq__ = _equals  # type: ignore[method-assign, assignment]  # set after the class: a dataclass would make its own
Param.__hash__ = object.__hash__  # type: ignore[method-assign]  # set after the class: a dataclass would make its own
Param.__torch_function__ = classmethod(_refuse_operator)  # type: ignore[attr-defined]  # set after the class: a dataclass would make its own
for _name in ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"]:
    setattr(Param, f"__{_name}__", _refuse_operator)
    setattr(Param, f"__r{_name}__", _refuse_operator)
for _name in ["neg", "abs", "lt", "le", "gt", "ge", "getitem", "float", "len", "iter", "array"]:
    setattr(Param, f"__{_name}__", _refuse_operator)


def _no_tensor(value: object) -> DTypeError:
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    return DTypeError(
        "Param: the value is not a tensor of burn_torch",
        given=f"{kind} {tuple(value.shape)}" if hasattr(value, "shape") else f"{value!r:.60} ({kind})",
        expected="a Tensor",
        mend="Param.from_data(values, device), or Param.from_tensor(Tensor.from_torch(tensor.detach()))",
    )


def _rebuild(value: Tensor, id: ParamId, require_grad: bool, mapper: ParamMapper) -> Param:
    return Param(value, id, require_grad=require_grad, mapper=mapper)


def _spec_of(device: Device, function: Callable[[Session], Tensor]) -> TensorSpec | None:
    """Returns what a function would give, without computing it; None where that depends on numbers."""
    with suspended():
        session = Session(device.backend.leaf())
    try:
        with session.opened():
            return function(session).spec
    except BurnTorchError:
        return None


def _input(session: Session, spec: TensorSpec) -> Tensor:
    return Tensor(session.leaf, session.input(spec, None).primitive, spec)


def _moved(param: Param, device: Device) -> Callable[[Device, bool], Tensor]:
    return lambda _device, _grad: param.val().detach().to_device(device)


def is_computed(param: Param) -> bool:
    """Returns whether it is no leaf of its tape but a value computed there: gradients flow on through it."""
    value = param._value
    return value is not None and value.backend.is_autodiff and _is_computed(value)


def _is_computed(value: Tensor) -> bool:
    backend: Any = value.backend
    return backend.is_tracked(value.primitive) and not backend.is_leaf(value.primitive)


def _as_leaf(value: Tensor, require_grad: bool) -> Tensor:
    backend = value.backend
    if not backend.is_autodiff or is_recorded(backend, value.primitive):
        return value
    if require_grad and value.is_require_grad():
        return value
    return _off_tape(value).require_grad() if require_grad else _off_tape(value)


def _off_tape(value: Tensor) -> Tensor:
    """The value without its device's tape, but for what a running transform differentiates: that stays connected.

    So a parameter that was computed is a leaf of the next step, and inside of a transform a function of its arguments.
    A tape under the device's, as in a tape over a tape, is left alone.
    """
    backend: Any = value.backend
    primitive = value.primitive
    if not backend.is_autodiff or not backend.is_tracked(primitive) or is_recorded(backend, primitive):
        return value
    return Tensor(backend, backend.unwrapped(primitive), value.spec)
