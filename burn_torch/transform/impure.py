"""Defines what gives another value in each call: generators of random numbers, the clock, files, the operating system.

A trace reads such a value once.  So the trace is refused rather than the value compiled in.
"""

from __future__ import annotations

import builtins
import datetime
import gc
import importlib.util
import io
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType
from typing import Any, Final

import numpy as np
import torch

from burn_torch.transform.structure import Argument

__all__ = ["GENERATORS", "PYTHON_CALLS", "generator_state", "global_generators", "impure_call", "restoring"]

_CLOCK: Final = (
    "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time",
    "process_time_ns", "thread_time", "thread_time_ns", "localtime", "gmtime", "ctime", "asctime", "strftime",
    "clock_gettime", "clock_gettime_ns",
)  # fmt: skip
_SYSTEM: Final = (
    "urandom", "getrandom", "listdir", "scandir", "stat", "lstat", "open", "read", "times", "getloadavg", "cpu_count",
    "sched_getaffinity", "getcwd", "access", "statvfs", "fstatvfs", "getpriority", "nice", "umask", "get_terminal_size",
)  # fmt: skip
_TORCH: Final = (
    "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal", "bernoulli",
    "multinomial", "poisson", "dropout", "alpha_dropout", "feature_dropout", "rrelu", "seed", "initial_seed",
)  # fmt: skip
_TORCH_METHODS: Final = frozenset(
    ("uniform_", "normal_", "random_", "bernoulli_", "bernoulli", "multinomial", "exponential_", "geometric_",
     "cauchy_", "log_normal_")
)  # fmt: skip


def _calls() -> Iterator[tuple[object, str]]:
    for module, names in ((time, _CLOCK), (os, _SYSTEM)):
        for name in names:
            if hasattr(module, name):
                yield getattr(module, name), f"{module.__name__}.{name}"
    for name in _TORCH:
        function = getattr(torch, name, None)
        if type(function).__name__ == "builtin_function_or_method":
            yield function, f"torch.{name}"
    for name in ("get_count", "get_stats", "get_objects"):
        yield getattr(gc, name), f"gc.{name}"
    if importlib.util.find_spec("resource") is not None:  # Windows has none
        yield importlib.import_module("resource").getrusage, "resource.getrusage"
    yield threading.stack_size, "threading.stack_size"  # it sets what it reads
    yield io.open, "open"
    yield builtins.input, "input"
    yield np.fromfile, "numpy.fromfile"
    yield torch.from_file, "torch.from_file"


_CALLS: Final[dict[object, str]] = dict(_calls())
PYTHON_CALLS: Final[dict[CodeType, str]] = {
    random.Random.gauss.__code__: "random.gauss",  # draws two and keeps one, which the next call takes without a draw
    uuid.uuid1.__code__: "uuid.uuid1",
    threading.active_count.__code__: "threading.active_count",
    threading.enumerate.__code__: "threading.enumerate",
}
"""Functions of Python's own library that give another value in each call, by their code."""

_DRAWS: Final = frozenset(("random", "getrandbits"))
_POLLS: Final = frozenset(("locked", "qsize", "empty", "get", "get_nowait"))
_READS: Final = frozenset(("tell", "read", "readline", "readlines", "readinto", "read1", "__next__"))
_QUERIES: Final = frozenset(("execute", "fetchone", "fetchmany", "fetchall"))
_NOW: Final = frozenset(("now", "today", "utcnow"))

GENERATORS: Final[tuple[type[Any], ...]] = (
    np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random, torch.Generator,
)  # fmt: skip


def impure_call(function: object) -> str | None:
    """Returns what a function of C gives that is another value each time, by its name; None for what does not."""
    try:
        name = _CALLS.get(function)
    except TypeError:  # a method of something unhashable
        name = None
    if name is not None:
        return name
    owner = getattr(function, "__self__", None)
    called = getattr(function, "__name__", "")
    if called in _DRAWS and isinstance(owner, random.Random):
        return f"random.{called}"
    if called in _NOW and isinstance(owner, type) and issubclass(owner, datetime.date):
        return f"{owner.__name__}.{called}"
    if called in _READS and isinstance(owner, io.IOBase):
        return f"{called} of a file"
    if called in _POLLS and type(owner).__module__ in ("_thread", "_queue"):
        return f"{called} of a {type(owner).__name__}"
    if called in _QUERIES and type(owner).__module__ == "sqlite3":
        return f"{called} of a database"
    if called in _TORCH_METHODS and isinstance(owner, torch.Tensor):
        return f"torch.Tensor.{called}"
    return None


def generator_state(generator: Any) -> Any:
    """The state of a generator as something that can be compared with ==."""
    if isinstance(generator, random.Random):
        return None if isinstance(generator, random.SystemRandom) else generator.getstate()
    if isinstance(generator, torch.Generator):
        return generator.get_state().numpy().tobytes()
    if isinstance(generator, np.random.RandomState):
        return repr(_text_of(generator.get_state(legacy=False)))
    bits = generator.bit_generator if isinstance(generator, np.random.Generator) else generator
    return repr(_text_of(bits.state))


def _text_of(value: Argument) -> object:
    if isinstance(value, dict):
        return {name: _text_of(item) for name, item in value.items()}
    return value.tobytes() if isinstance(value, np.ndarray) else value


def restoring(generator: Any) -> Callable[[], object]:
    """A function that gives a generator the state back that it has now."""
    if isinstance(generator, random.SystemRandom):
        return lambda: None
    if isinstance(generator, random.Random):
        return partial(generator.setstate, generator.getstate())
    if isinstance(generator, torch.Generator):
        return partial(generator.set_state, generator.get_state())
    if isinstance(generator, np.random.RandomState):
        return partial(generator.set_state, generator.get_state(legacy=True))
    bits = generator.bit_generator if isinstance(generator, np.random.Generator) else generator
    return partial(setattr, bits, "state", bits.state)


def global_generators() -> dict[str, Any]:
    """The generators that everybody shares, by what draws from them."""
    return {"random": random._inst, "torch": torch.default_generator, "numpy.random": np.random.mtrand._rand}
