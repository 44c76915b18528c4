"""Settings that Python, numpy and torch keep in C, where no attribute of theirs can be watched.

A function that asks for one by its getter, or computes with decimals, is traced again once the setting is another: the
getter is asked at each call, some 50 ns.  A setting that only changes how something behaves (whether a division raises,
how an array is printed) is named in `docs/building-blocks/compile.md`.
"""

from __future__ import annotations

import csv
import datetime
import decimal
import faulthandler
import gc
import importlib.util
import locale
import logging
import os
import random
import signal
import socket
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType, ModuleType
from typing import Any, Final, NamedTuple

import numpy as np
import torch

from burn_torch.transform.impure import GENERATORS, generator_state

__all__ = ["Setting", "setting_of", "setting_of_code", "setting_of_value"]


class Setting(NamedTuple):
    """A setting: its name, and what it is now, as something that can be compared."""

    name: str
    read: Callable[[], Any]


# -- what is asked for by getters -------------------------------------------------------------------------------
_OF_TORCH: Final = ("get_default_dtype", "get_num_threads", "get_num_interop_threads", "is_grad_enabled",
                    "is_inference_mode_enabled")  # fmt: skip
_OF_TORCH_C: Final = (
    "_get_deterministic_algorithms", "_get_deterministic_algorithms_warn_only", "_get_float32_matmul_precision",
    "_get_cudnn_enabled", "_get_cudnn_benchmark", "_get_cudnn_deterministic", "_get_cudnn_allow_tf32",
    "_get_cublas_allow_tf32", "_get_mkldnn_enabled", "_get_nnpack_enabled", "_get_flash_sdp_enabled",
    "_get_math_sdp_enabled", "_get_mem_efficient_sdp_enabled",
)  # fmt: skip
_OF_SYSTEM: Final = ("getrecursionlimit", "getswitchinterval", "get_int_max_str_digits", "getdlopenflags", "gettrace")
_GETTERS: Final[tuple[tuple[ModuleType, tuple[str, ...]], ...]] = (
    (torch, _OF_TORCH), (torch._C, _OF_TORCH_C), (sys, _OF_SYSTEM), (gc, ("isenabled", "get_threshold", "get_debug")),
    (tracemalloc, ("is_tracing",)), (faulthandler, ("is_enabled",)), (socket, ("getdefaulttimeout",)),
    (csv, ("field_size_limit",)),
)  # fmt: skip


def _decimals() -> object:
    context = decimal.getcontext()
    return context.prec, context.rounding, context.Emin, context.Emax, context.clamp, repr(context.traps)


def _zone() -> object:
    return time.timezone, time.altzone, time.tzname


def _autocast() -> object:
    return tuple([(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")])


def _handlers() -> object:
    return tuple([signal.getsignal(number) for number in sorted(signal.valid_signals())])


def _limits() -> object:
    resource = sys.modules["resource"]
    return tuple([resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")])


def _environment() -> object:
    return tuple(os.environ.items())


def _getters() -> Iterator[tuple[object, Setting]]:
    for module, names in _GETTERS:
        for name in names:
            function = getattr(module, name, None)
            if function is not None:
                yield function, Setting(f"{module.__name__}.{name}()", function)
    zone, place = Setting("the time zone", _zone), Setting("the locale", partial(locale.setlocale, locale.LC_ALL))
    yield time.mktime, zone
    yield from ((getattr(sys.modules["_locale"], name), place) for name in ("setlocale", "localeconv", "nl_langinfo"))
    yield locale.strcoll, place
    yield torch.is_autocast_enabled, Setting("torch's autocast", _autocast)
    yield torch.get_autocast_dtype, Setting("torch's autocast", _autocast)
    yield decimal.getcontext, _DECIMALS
    yield decimal.localcontext, _DECIMALS
    yield sys.modules["_signal"].getsignal, Setting("signal handlers", _handlers)
    if importlib.util.find_spec("resource") is not None:  # Windows has none
        yield importlib.import_module("resource").getrlimit, Setting("limits of the process", _limits)
    yield sys.modules["numpy._core.umath"]._get_extobj_dict, Setting("np.geterr()", lambda: tuple(np.geterr().items()))


_DECIMALS: Final = Setting("the context of decimals", _decimals)
_BY_CALL: Final[dict[object, Setting]] = dict(_getters())
_BY_CODE: Final[dict[CodeType, Setting]] = {
    np.get_printoptions.__code__: Setting("np.get_printoptions()", lambda: repr(np.get_printoptions())),
    torch.get_default_device.__code__: Setting("torch.get_default_device()", lambda: str(torch.get_default_device())),
    type(os.environ).__iter__.__code__: Setting("os.environ", _environment),
    type(os.environ).__len__.__code__: Setting("os.environ", _environment),
}
_OF_DATES: Final = frozenset(("fromtimestamp", "timestamp", "astimezone"))


def setting_of(function: object) -> Setting | None:
    """The setting that a function of C is asked for, or computes with; None for any other function."""
    try:
        setting = _BY_CALL.get(function)
    except TypeError:  # a method of something unhashable
        return None
    if setting is not None:
        return setting
    name, owner = getattr(function, "__name__", ""), getattr(function, "__self__", None)
    if name in _OF_DATES and (isinstance(owner, datetime.date) or owner in (datetime.date, datetime.datetime)):
        return Setting("the time zone", _zone)
    if name == "get_state" and isinstance(owner, GENERATORS):
        return Setting(f"the state of a {type(owner).__name__}", partial(generator_state, owner))
    return None


def setting_of_code(code: CodeType, first: object) -> Setting | None:
    """The same for a function of a library in Python, by its code and its first argument."""
    if code is _GETSTATE and not isinstance(first, random.SystemRandom):
        return Setting("the state of random", partial(generator_state, first))
    return _BY_CODE.get(code)


_GETSTATE: Final = random.Random.getstate.__code__


# -- what is read of objects ---------------------------------------------------------------------------------------
_DEFAULT_DTYPE: Final = Setting("torch.get_default_dtype()", torch.get_default_dtype)
_LEVELS: Final = frozenset(("level", "disabled", "disable", "isEnabledFor", "getEffectiveLevel"))


def setting_of_value(value: object, names: frozenset[str] | None) -> Setting | None:
    """The setting on which a value depends for code with these names (None: any): decimals, loggers, filters."""
    if value is decimal or value is decimal.Decimal or isinstance(value, decimal.Decimal):
        return _DECIMALS
    if (isinstance(value, logging.Logger) or value is logging) and (names is None or names & _LEVELS):
        return Setting("levels of logging", _levels)
    if names is not None and "get_state" in names and (value is np or isinstance(value, np.random.RandomState)):
        generator = np.random.mtrand._rand if value is np else value
        return Setting("the state of numpy.random", partial(generator_state, generator))
    if value is torch:
        return _DEFAULT_DTYPE
    if value is warnings and (names is None or "filters" in names):
        return Setting("warnings.filters", lambda: tuple(warnings.filters))
    return None


def _levels() -> object:
    manager = logging.root.manager
    loggers = [logging.root, *(x for x in manager.loggerDict.values() if isinstance(x, logging.Logger))]
    changed = [(logger.name, logger.level, logger.disabled) for logger in loggers if logger.level or logger.disabled]
    return manager.disable, *changed
