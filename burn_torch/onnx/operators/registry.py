"""The registry: one entry for each ONNX operator and range of opsets, a function of tensors.

    @operator("Elu")
    def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor: ...

The signature is the contract.  Positional parameters are the node's inputs, keyword-only ones its attributes under
ONNX's names; an attribute that is not declared is refused before anything runs.

A value of an imported model lies on a device (a Tensor) or is known on the host (a numpy array: shapes and what is
worked out from them).  The annotation of a positional parameter says what the function gets:

    Tensor      a tensor; an array beside tensors is moved to their device
    Operand     the same, or a Python number where the array has no axes
    Host        an array; a tensor is read, which waits for the device and which a traced function cannot do
    Condition   an array where the host knows it, else the tensor as it is: the operator reads it if it must
    Sequence    an ONNX sequence, a list

Attributes that several operators share are the fields of a dataclass: a keyword-only parameter that is annotated with
a subclass of `Attributes` gets them all.

If every tensor is known on the host, the same function computes on numpy arrays and gives arrays back: shapes stay
plain numbers, also while a function is traced.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Many
from dataclasses import MISSING, dataclass, fields
from typing import Any, Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from burn_torch.backend.tracing import suspended
from burn_torch.core.checking import checked
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.onnx.folding import host
from burn_torch.tensor import Device, Tensor

__all__ = [
    "FAULTS", "HOST", "Attributes", "Condition", "Entry", "Host", "Operand", "Outputs", "Sequence", "earlier", "find",
    "known", "on_host", "operator", "read",
]  # fmt: skip

Outputs: TypeAlias = Any
"""The results of a node: a tensor, or a tuple with one for each output."""

Host: TypeAlias = NDArray[Any]
HOST: Final = (np.ndarray, TensorData)
"""Holds what values that are known on the host are: arrays, and TensorData of bfloat16, which numpy lacks."""
Condition: TypeAlias = NDArray[Any] | Tensor
Operand: TypeAlias = Tensor | float
Sequence: TypeAlias = list[Any]

FAULTS: Final = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, TypeError, ValueError,
)  # fmt: skip
"""Errors that operators raise on inputs that do not fit, besides those of the table."""

_KINDS: Final = {"Tensor": "tensor", "Operand": "operand", "Host": "host", "Condition": "host"} | dict.fromkeys(
    ("Sequence", "Any", "object"), "raw"
)
INJECTED: Final = frozenset({"device", "outputs", "version", "place", "stacks"})
"""Keyword-only parameters that the importer fills in.

device   where to compute
outputs  how many outputs are read
version  the opset, or the version of another domain, that says what the operator means
place    where to compute although the host knows all inputs, see `Step.placed`; only those declare it that read values
stacks   element type and shape, as far as the file declares them, of what each iteration of a body gives to be stacked
"""


@dataclass(frozen=True)
class Parameter:
    """One input of an operator."""

    name: str
    kind: str
    required: bool
    reads: bool = True
    """Says whether a tensor is read where an array is wanted."""


@dataclass(frozen=True)
class Attributes:
    """Attributes that several operators share; subclasses are dataclasses of them under ONNX's names."""


@final
@dataclass(eq=False, repr=False)
class Entry:
    """An operator in a range of opsets; called with values it computes."""

    function: Callable[..., Any]
    domain: str
    op: str
    since: int
    until: int | None
    written: str | None
    """How generated source writes it where all inputs are on a device: "{0} + {1}"."""
    name: str = ""

    REQUIRED = inspect.Parameter.empty
    """The default of an attribute that has none."""

    def __post_init__(self) -> None:
        function = self.function
        self.name = self.name or function.__name__
        self.__doc__ = function.__doc__
        self.inputs: list[Parameter] = []
        self.variadic = False
        self.attributes: dict[str, Any] = {}
        self._shared: dict[str, tuple[type[Attributes], Many[str]]] = {}
        for name, parameter in inspect.signature(function).parameters.items():
            annotation = str(parameter.annotation).removesuffix(" | None")
            if parameter.kind is parameter.KEYWORD_ONLY:
                shared = getattr(function, "__globals__", {}).get(annotation)
                if isinstance(shared, type) and issubclass(shared, Attributes):
                    defaults = _defaults_of(shared)
                    self._shared[name] = (shared, tuple(defaults))
                    self.attributes.update(defaults)
                else:
                    self.attributes[name] = parameter.default
                continue
            required = parameter.default is parameter.empty and "None" not in str(parameter.annotation)
            self.variadic = self.variadic or parameter.kind is parameter.VAR_POSITIONAL
            self.inputs.append(
                Parameter(
                    name,
                    _KINDS[annotation],
                    required and parameter.kind is not parameter.VAR_POSITIONAL,
                    annotation != "Condition",
                )
            )
        self.computes = any(parameter.kind in ("tensor", "operand") for parameter in self.inputs)
        """Says whether it takes tensors; else it works on what the host knows, wherever its values lie."""
        self.multiple = str(inspect.signature(function).return_annotation).startswith("tuple")

    def kind(self, position: int) -> str:
        """Returns what the input at this position is given as: "tensor", "operand", "host" or "raw"."""
        return self.inputs[min(position, len(self.inputs) - 1)].kind

    @property
    def least(self) -> int:
        """How many inputs a node must have."""
        return sum(parameter.required for parameter in self.inputs)

    @property
    def most(self) -> int | None:
        """How many inputs a node may have; None without a limit."""
        return None if self.variadic else len(self.inputs)

    def __call__(self, *inputs: object, place: Device | None = None, **attributes: object) -> Any:
        """Computes where the tensors lie; where all values are known on the host, there, or at a place."""
        for name, (shared, names) in self._shared.items():
            attributes[name] = shared(**{own: attributes.pop(own) for own in names if own in attributes})
        device = None
        for x in inputs:
            if x.__class__ is Tensor:
                device = x.device
                break
        if device is None and place is not None:
            if "place" in self.attributes:
                return self.function(*inputs, place=place, **attributes)
            device = place
        if device is None and self.computes and any(isinstance(x, HOST) for x in inputs):
            return self._on_host(inputs, attributes)
        return self.function(*[self._as_argument(i, x, device) for i, x in enumerate(inputs)], **attributes)

    def _as_argument(self, position: int, x: object, device: Device | None) -> object:
        if x is None:
            return None
        kind = self.kind(position)
        if kind == "raw":
            return x
        if kind == "host":
            return read(x) if self.inputs[min(position, len(self.inputs) - 1)].reads else x
        if isinstance(x, HOST):
            if kind == "operand" and isinstance(x, np.ndarray) and x.ndim == 0:
                return x.item()
            assert device is not None
            return Tensor.from_data(x, device)
        return x

    def _on_host(self, inputs: Many[object], attributes: Mapping[str, object]) -> object:
        with suspended():
            device = host()
            arguments = [
                Tensor.from_data(x, device)
                if isinstance(x, HOST) and self.kind(i) in ("tensor", "operand")
                else self._as_argument(i, x, device)
                for i, x in enumerate(inputs)
            ]
            return _to_host(self.function(*arguments, **attributes))

    def __repr__(self) -> str:
        until = "" if self.until is None else f"-{self.until}"
        return f"<{self.op} of opset {self.since}{until or '+'}>"


def _defaults_of(shared: type[Attributes]) -> dict[str, object]:
    return {field.name: Entry.REQUIRED if field.default is MISSING else field.default for field in fields(shared)}


def read(x: object) -> Host:
    """A value as an array; waits for the device.  Raises: TraceError while a function is traced."""
    if isinstance(x, Tensor):
        return np.asarray(x.into_data().values)
    return np.asarray(x.values if isinstance(x, TensorData) else x)


def on_host(data: TensorData) -> Any:
    """Data as a value that is known on the host."""
    return data if data.dtype is DType.BF16 else data.array


def _to_host(y: object) -> object:
    if isinstance(y, Tensor):
        return on_host(y.into_data())
    if isinstance(y, tuple):
        return tuple(_to_host(part) for part in y)
    return [_to_host(part) for part in y] if isinstance(y, list) else y


_ENTRIES: Final[dict[tuple[str, str], list[Entry]]] = {}


@checked
def operator(
    op: str, since: int = 1, until: int | None = None, *, domain: str = "", written: str | None = None
) -> Callable[[Callable[..., Any]], Entry]:
    """Registers a function as what an operator means from opset `since` to `until`, both included.

    If several fit, the one registered last counts: so users replace ours.
    """

    return lambda function: _register(Entry(function, domain, op, since, until, written))


def _register(entry: Entry) -> Entry:
    _ENTRIES.setdefault((entry.domain, entry.op), []).insert(0, entry)
    return entry


def earlier(
    entry: Entry,
    name: str,
    since: int,
    until: int,
    *,
    attributes: Many[str] = (),
    lacks: Many[str] = (),
    op: str = "",
    what: str = "",
) -> Entry:
    """Registers an operator as older opsets have it.

    attributes  inputs that were attributes
    lacks       inputs and attributes that came later
    op          how it was called, if otherwise
    what        what it computes, if that is less
    """
    older = Entry(entry.function, entry.domain, op or entry.op, since, until, entry.written, name)
    older.__doc__ = what or older.__doc__
    for parameter in entry.inputs:
        if parameter.name in (*attributes, *lacks):
            older.inputs.remove(parameter)
            older.attributes[parameter.name] = Entry.REQUIRED if parameter.required else None
    for later in lacks:
        del older.attributes[later]
    return _register(older)


def find(domain: str, op: str, opset: int) -> Entry | None:
    """Returns what an operator means in an opset; None if nobody has told."""
    for entry in _ENTRIES.get((domain, op), ()):
        if entry.since <= opset and (entry.until is None or opset <= entry.until):
            return entry
    return None


def known(domain: str = "") -> dict[str, list[Entry]]:
    """Every operator of a domain, with its entries, oldest opset first."""
    return {
        op: sorted(entries, key=lambda entry: entry.since)
        for (where, op), entries in sorted(_ENTRIES.items())
        if where == domain
    }
