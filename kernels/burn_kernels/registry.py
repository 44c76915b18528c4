"""Registries of what kernel families say about themselves: the families are imported when one is first read."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, ParamSpec, TypeVar

__all__ = ["FAMILIES", "Registry", "load_families", "registering"]

FAMILIES: Final = (
    "activation",
    "attention",
    "batch_norm",
    "convolution",
    "cross_entropy",
    "dropout",
    "embedding",
    "glu",
    "group_norm",
    "grouped_matmul",
    "lattice",
    "linear_cross_entropy",
    "lion",
    "matmul",
    "norm",
    "optimizer",
    "quantized_linear",
    "random",
    "reduce",
    "residual_norm",
    "rope",
    "softmax",
    "tensor_norm",
)
"""The kernel families, each a module or a folder of this package: a new one is its folder and a line here."""

P = ParamSpec("P")
V = TypeVar("V")
_lock = threading.RLock()
_started = [False]


def load_families() -> None:
    """Imports every family once; a family that reads a registry while it is imported sees those before it."""
    with _lock:
        if not _started[0]:
            _started[0] = True
            try:
                for name in FAMILIES:
                    importlib.import_module(f"burn_kernels.{name}")
            except BaseException:
                _started[0] = False
                raise


def registering(make: Callable[P, V], register: Callable[[V], V]) -> Callable[P, V]:
    """The function that makes an entry of a registry and adds it there."""
    return lambda *args, **parts: register(make(*args, **parts))


class Registry(dict[str, V]):
    """A dictionary by name to which families add what they have; reading it first imports them all."""

    def holds(self, name: str) -> bool:
        """Tells if one of the imported families has added this name."""
        return dict.__contains__(self, name)

    def __missing__(self, name: str) -> V:
        load_families()
        if not self.holds(name):
            raise KeyError(name)
        return dict.__getitem__(self, name)

    def __contains__(self, name: object) -> bool:
        load_families()
        return dict.__contains__(self, name)

    def __iter__(self) -> Iterator[str]:
        load_families()
        return dict.__iter__(self)

    def __len__(self) -> int:
        load_families()
        return dict.__len__(self)

    def get(self, name: str, default: object = None) -> Any:
        """As of a dictionary."""
        load_families()
        return dict.get(self, name, default)

    def keys(self) -> Any:
        """As of a dictionary."""
        load_families()
        return dict.keys(self)

    def values(self) -> Any:
        """As of a dictionary."""
        load_families()
        return dict.values(self)

    def items(self) -> Any:
        """As of a dictionary."""
        load_families()
        return dict.items(self)
