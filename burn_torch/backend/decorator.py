"""Decorator: a backend that holds a backend.  Everything that all of them hand on to the one they hold stands here."""

from __future__ import annotations

import threading
from abc import abstractmethod
from typing import Any, ClassVar, Final, Self

from burn_torch.backend.base import Backend
from burn_torch.core.data import TensorData
from burn_torch.core.errors import ArgumentError, DeviceError
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.value import Executor, Primitive

__all__ = ["Decorator", "detached", "leaf_primitive"]

_lock: Final = threading.Lock()


class Decorator(Backend):
    """A backend over another one.  Equal stacks are one object; over a trace they belong to its session.

    A decorator writes `execute`, `unwrapped` and what differs from the backend that it holds.
    """

    _instances: ClassVar[dict[tuple[Any, ...], Any]] = {}

    _options: tuple[Any, ...]

    def __new__(cls, inner: Any, *options: Any) -> Self:
        """The stack of this composition."""
        return cls._intern(inner, *options)

    @classmethod
    def _intern(cls, inner: Any, *options: Any) -> Self:
        session = getattr(inner, "session", None)
        stack: Self
        if session is not None:
            stack = session.decorated(cls._intern(inner.real, *options), lambda: cls._make(inner, *options))
            return stack
        if not hasattr(inner, "lasting"):
            raise ArgumentError(
                f"{cls.__name__}: it holds a backend",
                given=f"{type(inner).__name__} {inner!r:.60}",
                expected="a backend to decorate",
                mend=f"{cls.__name__}(LibTorch())",
            )
        if not inner.lasting:
            return cls._make(inner, *options)
        key = (cls, id(inner), *options)
        with _lock:
            if key not in cls._instances:
                cls._instances[key] = cls._make(inner, *options)
            stack = cls._instances[key]
        return stack

    @classmethod
    def _make(cls, inner: Any, *options: Any) -> Self:
        stack = object.__new__(cls)
        stack.inner = inner
        stack._options = options
        stack.name = f"{cls.__name__}({inner.name})"
        stack.depth = inner.depth + 1
        stack.trains = inner.trains
        stack.lasting = inner.lasting
        stack._begin(*options)
        return stack

    @staticmethod
    def interned() -> list[Decorator]:
        """Every stack that lasts, of all decorators; another thread may intern one meanwhile."""
        with _lock:
            return list(Decorator._instances.values())

    def _begin(self, *options: Any) -> None:
        """Sets what a decorator has beside the backend that it holds."""

    def onto(self, inner: Any) -> Self:
        """The same decorator over another backend."""
        return self._intern(inner, *self._options)

    @abstractmethod
    def unwrapped(self, primitive: Primitive) -> Any:
        """The inner backend's primitive of a value, without what this decorator adds; what is pending is computed."""

    def detached(self, primitive: Primitive) -> Primitive:
        """The primitive as a constant of every tape in the stack; itself where it is one already."""
        return primitive

    # -- the same as of the backend that it holds ------------------------------------------------
    def lift(self, primitive: Primitive, source: Executor) -> Primitive:
        """A value of an inner stack, as a constant of this one."""
        if source is self:
            return primitive
        try:
            return self.inner.lift(primitive, source)
        except DeviceError:
            if isinstance(self.inner, Backend):  # told of the stacks that met; a trace has words of its own
                self._refuse(source)
            raise

    def from_data(self, data: TensorData, place: str) -> Primitive:
        """The inner backend's value."""
        return self.inner.from_data(data, place)

    def into_data(self, primitive: Primitive) -> TensorData:
        """The data of the value."""
        return self.inner.into_data(self.unwrapped(primitive))

    def spec(self, primitive: Primitive) -> TensorSpec:
        """The spec of the value."""
        return self.inner.spec(self.unwrapped(primitive))

    def sync(self, place: str) -> None:
        """Waits for the inner backend."""
        self.inner.sync(place)

    def copy(self, primitive: Primitive) -> Primitive:
        """A copy that no tape knows, at once."""
        return self.inner.copy(self.unwrapped(primitive))

    def version(self, primitive: Primitive) -> int:
        """The inner backend's count of writes from outside."""
        return self.inner.version(self.unwrapped(primitive))

    def leaf(self) -> Backend:
        """The leaf under all decorators."""
        return self.inner.leaf()

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restore, (type(self), self.inner, *self._options))


def _restore(kind: type[Decorator], inner: Backend, *options: Any) -> Decorator:
    return kind._intern(inner, *options)


def leaf_primitive(stack: Any, primitive: Primitive) -> Any:
    """The leaf's own primitive under all decorators of a stack; what is pending is computed."""
    while isinstance(stack, Decorator):
        stack, primitive = stack.inner, stack.unwrapped(primitive)
    return primitive


def detached(stack: Any, primitive: Primitive) -> Primitive:
    """The primitive as a constant of every tape in its stack; itself where it is one already."""
    return primitive if stack.inner is None else stack.detached(primitive)
