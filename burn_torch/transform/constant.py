"""Keys of constants: what is compiled into a program, compared by type and bits."""

from __future__ import annotations

from typing import Any

__all__ = ["constant_key"]


def constant_key(value: Any) -> Any:
    """A hashable that equals another's key only where the constants are the same: 1, 1.0, True and -0.0 all differ.

    Raises: TypeError for a value that is neither hashable nor a list, dict or set of what is.
    """
    kind = type(value)
    if kind is float or kind is complex:
        return (kind, repr(value))
    if kind is tuple or kind is list:
        return (kind, *[constant_key(item) for item in value])
    if kind is dict:
        return (kind, *[(constant_key(name), constant_key(item)) for name, item in value.items()])
    if kind is set or kind is frozenset:
        return (kind, frozenset(constant_key(item) for item in value))
    try:
        hash(value)
    except TypeError:
        raise TypeError(
            f"a {kind.__module__}.{kind.__qualname__}, which is neither hashable nor made of tensors"
        ) from None
    return (kind, value)
