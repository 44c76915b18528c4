"""Keys of constants: what is compiled into a program, compared by type and bits."""

from __future__ import annotations

import dataclasses
from typing import Any

from burn_torch.transform.structure import Argument

__all__ = ["constant_key", "fields_of", "is_value_class"]


def constant_key(value: Argument) -> Any:
    """A hashable that equals another's key only where the constants are the same: 1, 1.0, True and -0.0 all differ.

    So they do inside containers, named tuples, configurations and dataclasses that are compared by their fields.
    Raises: TypeError for a value that is neither hashable nor a list, dict or set of what is.
    """
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return (kind, value)
    if isinstance(value, float):
        return (kind, float.__repr__(value))
    if isinstance(value, complex):
        return (kind, complex.__repr__(value))
    if isinstance(value, tuple | list):
        return (kind, *[constant_key(item) for item in value])
    if isinstance(value, dict):
        return (kind, *[(constant_key(name), constant_key(item)) for name, item in value.items()])
    if isinstance(value, set | frozenset):
        return (kind, frozenset(constant_key(item) for item in value))
    try:
        hash(value)
    except TypeError:
        raise TypeError(
            f"a {kind.__module__}.{kind.__qualname__}, which is neither hashable nor made of tensors"
        ) from None
    if is_value_class(kind):  # its own == says that 0.0 and -0.0 are equal
        return (kind, value, *[_bits_of(item) for item in fields_of(value)])
    return (kind, value)


def is_value_class(kind: type[object]) -> bool:
    """Returns whether it is a hashable dataclass that is compared by its fields rather than by identity."""
    return dataclasses.is_dataclass(kind) and kind.__hash__ not in (None, object.__hash__)


def fields_of(value: Argument) -> list[Any]:
    """Returns what the fields of a dataclass hold that count when it is compared."""
    return [getattr(value, field.name) for field in dataclasses.fields(value) if field.compare]


def _bits_of(item: object) -> object:
    try:
        return constant_key(item)
    except TypeError:  # its class has a hash of its own, which does without this field
        return None
