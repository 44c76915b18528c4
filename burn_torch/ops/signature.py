"""The inputs and attributes of a row, read off the signature of its rule."""

from __future__ import annotations

import inspect
import operator
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, final

from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError
from burn_torch.core.spec import NumberSpec, Shape, Spec, TensorSpec
from burn_torch.ops.faults import dtype_fault, shape_fault
from burn_torch.symbolic.sizes import Size

__all__ = ["Number", "Operand", "Signature"]

Number: TypeAlias = NumberSpec
"""In a row's signature: a host number, known at run time."""

Operand: TypeAlias = TensorSpec | NumberSpec
"""In a row's signature: a tensor, or a host number that stands for a tensor of one element."""


_KINDS: Final[dict[str, tuple[Any, str]]] = {
    "TensorSpec": (TensorSpec, "tensor"),
    "TensorSpec | None": (TensorSpec | None, "optional"),
    "Number": (Number, "number"),
    "Operand": (Operand, "operand"),
    "Operand | None": (Operand | None, "optional operand"),
}
"""Annotations of positional parameters: as it is written here, or anything that means the same."""


def _known_text(
    annotation: object, function: Callable[..., object], known: Mapping[str, tuple[object, object]]
) -> str | None:
    """The key of `known` that an annotation means: by its text, or by the type that it is another spelling of."""
    if isinstance(annotation, str) and annotation in known:  # nearly all of them, and quick
        return annotation
    resolved = annotation
    if isinstance(annotation, str):
        holder = types.SimpleNamespace(__annotations__={"it": annotation})
        try:
            resolved = typing.get_type_hints(holder, function.__globals__)["it"]
        except Exception:  # names under TYPE_CHECKING or of an enclosing function: their last part must do
            last = re.sub(r"\b(?:\w+\.)+(?=\w)", "", annotation)
            return last if last in known else None
    return next((text for text, (kind, _) in known.items() if kind == resolved), None)


def _refuse(function: Callable[..., object], name: str, annotation: object, what: str, expected: str) -> ArgumentError:
    empty = annotation is inspect.Parameter.empty
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return ArgumentError(
        f"op: {function.__name__}: no rule takes such {what}",
        given=name + (", without an annotation" if empty else f": {text}"),
        expected=expected,
        mend="from burn_torch.ops import Number, Operand, TensorSpec; a number that changes from call to call, "
        "a float too, is a positional parameter",
    )


@final
class Signature:
    """The inputs and attributes of a row, read off its rule."""

    def __init__(self, rule: Callable[..., Any]) -> None:
        self.inputs: Final[list[tuple[str, str]]] = []
        self.variadic = False
        self.attrs: Final[dict[str, tuple[str, Any]]] = {}
        self.python: Final = inspect.signature(rule)
        for name, parameter in self.python.parameters.items():
            annotation = parameter.annotation
            if parameter.kind is parameter.KEYWORD_ONLY:
                text = _known_text(annotation, rule, _COERCIONS)
                if text is None:
                    raise _refuse(rule, name, annotation, "an attribute", f"{name}: {' or '.join(_COERCIONS)}")
                self.attrs[name] = (text, parameter.default)
            else:
                text = _known_text(annotation, rule, _KINDS)
                if text is None or parameter.kind is parameter.VAR_KEYWORD:
                    raise _refuse(rule, name, annotation, "an input", f"{name}: {' or '.join(_KINDS)}")
                self.variadic = self.variadic or parameter.kind is parameter.VAR_POSITIONAL
                self.inputs.append((name, _KINDS[text][1]))

    def complete(self, op_name: str, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """All attributes in the declared order, coerced by declared type (1 == True == 1.0 hash alike).

        Raises: TypeError for one that is missing, unknown or of another type.
        """
        complete: dict[str, Any] = {}
        for name, (annotation, default) in self.attrs.items():
            value = attrs.get(name, default)
            if value is inspect.Parameter.empty:
                raise TypeError(f"{op_name}({self}): missing attribute {name}")
            try:
                complete[name] = _COERCIONS[annotation][1](value)
            except (TypeError, ValueError) as err:
                raise TypeError(f"{op_name}: attribute {name} is {value!r}, not {annotation}: {err}") from None
        if len(attrs) > len(complete) or any(name not in complete for name in attrs):
            unknown = sorted(set(attrs) - set(complete))
            raise TypeError(f"{op_name}({self}): unknown attributes {unknown}, expected {list(self.attrs)}")
        return complete

    def check(self, op_name: str, specs: tuple[Spec | None, ...]) -> None:
        """Raises RuleFault where the number or the kind of inputs is not the declared one."""
        fixed = len(self.inputs) - (1 if self.variadic else 0)
        if len(specs) < fixed or (len(specs) > fixed and not self.variadic):
            raise shape_fault(
                f"takes {fixed} inputs, {len(specs)} given", expected=str(self), mend=f"call {op_name}({self})"
            )
        for (name, kind), spec in zip(self.kinds(len(specs)), specs, strict=True):
            if spec is None:
                fits = kind.startswith("optional")
            elif isinstance(spec, TensorSpec):
                fits = kind != "number"
            else:
                fits = kind in ("number", "operand", "optional operand")
            if not fits:
                raise dtype_fault(
                    f"{name} is {'None' if spec is None else spec}",
                    expected=f"{name}: {kind}",
                    mend="pass a tensor" if kind in ("tensor", "optional") else "pass a Python number",
                )

    def kinds(self, count: int) -> list[tuple[str, str]]:
        """Name and kind of each of `count` inputs."""
        if not self.variadic:
            return self.inputs
        *fixed, (name, kind) = self.inputs
        return fixed + [(f"{name}[{i}]", kind) for i in range(count - len(fixed))]

    def name_of(self, specs: tuple[Spec | None, ...], spec: Spec) -> str:
        """The name of the first input with this spec."""
        return next(
            (name for (name, _), other in zip(self.kinds(len(specs)), specs, strict=False) if other is spec), "an input"
        )

    def describe(self, specs: tuple[Spec | None, ...], attrs: Mapping[str, Any]) -> str:
        """The inputs in the words of an error: "lhs (4, 3) f32, rhs (4, 5) f32, dim 1"."""
        words: list[str] = []
        names = self.kinds(len(specs)) if self.variadic or len(specs) == len(self.inputs) else [("input", "")] * 99
        places = {spec.place for spec in specs if isinstance(spec, TensorSpec)}
        for (name, _), spec in zip(names, specs, strict=False):
            if isinstance(spec, TensorSpec):
                words.append(f"{name} {spec.shape} {spec.dtype}" + (f" on {spec.place}" if len(places) > 1 else ""))
            else:
                words.append(f"{name} {'None' if spec is None else 'a ' + str(spec)}")
        words += [f"{name} {value}" for name, value in attrs.items() if name != "live"]
        return ", ".join(words)

    def __str__(self) -> str:
        words = [
            f"*{name}" if self.variadic and i == len(self.inputs) - 1 else name
            for i, (name, _) in enumerate(self.inputs)
        ]
        if self.attrs:
            words += ["*", *self.attrs]
        return ", ".join(words)


def _no_float(value: Any) -> Any:
    return value if isinstance(value, Size) else int(operator.index(value))  # True stays True in operator.index


def _boolean(value: object) -> bool:
    if value is not True and value is not False:
        raise TypeError(f"a bool was expected, {value!r} given")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a str was expected, {value!r} given")
    return str(value)  # of an enum's member its value


def _integers(value: Any) -> tuple[int, ...]:
    if isinstance(value, str | bytes):
        raise TypeError("a text is no list of whole numbers")
    return tuple([_no_float(v) for v in value])


def _optional(inner: Callable[[Any], object]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else inner(value)


def _dtype(value: object) -> DType:
    if not isinstance(value, DType):
        raise TypeError(f"a DType was expected, {value!r} given")
    return value


_COERCIONS: Final[dict[str, tuple[Any, Callable[[Any], Any]]]] = {
    "int": (int, _no_float),
    "bool": (bool, _boolean),
    "str": (str, _text),
    "DType": (DType, _dtype),
    "tuple[int, ...]": (tuple[int, ...], _integers),
    "Shape": (Shape, _integers),
    "tuple[bool, ...]": (tuple[bool, ...], lambda value: tuple(_boolean(v) for v in value)),
    "tuple[tuple[int, int], ...]": (
        tuple[tuple[int, int], ...],
        lambda value: tuple((_no_float(a), _no_float(b)) for a, b in value),
    ),
    "tuple[tuple[int, int, int], ...]": (
        tuple[tuple[int, int, int], ...],
        lambda value: tuple(_integers(v) for v in value),
    ),
    "int | None": (int | None, _optional(_no_float)),
    "Shape | None": (Shape | None, _optional(_integers)),
}
"""Annotations of attributes, and how a value becomes one."""
