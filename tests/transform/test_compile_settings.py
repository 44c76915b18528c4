"""Settings that are kept in C, or by the standard library for itself, as a compiled function reads them.

Each is read, changed and read again: the second call gives what the function itself gives, or there is no program.
"""

from __future__ import annotations

import csv
import datetime
import decimal
import faulthandler
import gc
import locale
import logging
import os
import queue
import random
import resource
import signal
import socket
import sys
import threading
import time
import tracemalloc
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import Device, Tensor, TraceError, compile

_LOCALE = locale.setlocale(locale.LC_ALL)

LOGGER = logging.getLogger("burn_torch.tests.settings")
LOCK, QUEUE = threading.Lock(), queue.SimpleQueue()  # type: ignore[var-annotated]
ITEMS = {"a": 1.0}
VALUES = ITEMS.values()
D = decimal.Decimal


class Held:
    pass


HELD = [Held()]
REFERENCE = weakref.ref(HELD[0])


def zone(name: str | None) -> None:
    os.environ.pop("TZ", None)
    os.environ.update({} if name is None else {"TZ": name})
    time.tzset()


def third() -> float:
    return float(D(1) / D(3))


SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]] = {
    "precision of decimals": (third, lambda: setattr(decimal.getcontext(), "prec", 4),
                              lambda: setattr(decimal.getcontext(), "prec", 28)),
    "context of decimals": (third, lambda: decimal.setcontext(decimal.Context(prec=3)),
                            lambda: decimal.setcontext(decimal.Context())),
    "rounding of decimals": (lambda: float(D("2.5").quantize(D(1))),
                             lambda: setattr(decimal.getcontext(), "rounding", decimal.ROUND_UP),
                             lambda: setattr(decimal.getcontext(), "rounding", decimal.ROUND_HALF_EVEN)),
    "decimal.getcontext": (lambda: decimal.getcontext().prec, lambda: setattr(decimal.getcontext(), "prec", 5),
                           lambda: setattr(decimal.getcontext(), "prec", 28)),
    "level": (lambda: LOGGER.level, lambda: LOGGER.setLevel(30), lambda: LOGGER.setLevel(0)),
    "isEnabledFor": (lambda: 1 + LOGGER.isEnabledFor(10), lambda: LOGGER.setLevel(10), lambda: LOGGER.setLevel(0)),
    "getEffectiveLevel": (lambda: logging.getLogger("burn_torch.tests.settings.more").getEffectiveLevel(),
                          lambda: LOGGER.setLevel(17), lambda: LOGGER.setLevel(0)),
    "logging.disable": (lambda: 1 + LOGGER.isEnabledFor(40), lambda: logging.disable(50), lambda: logging.disable(0)),
    "geterr": (lambda: len(np.geterr()["divide"]), lambda: np.seterr(divide="ignore"),
               lambda: np.seterr(divide="warn")),
    "get_printoptions": (lambda: np.get_printoptions()["precision"], lambda: np.set_printoptions(precision=3),
                         lambda: np.set_printoptions(precision=8)),
    "warnings.filters": (lambda: len(warnings.filters), lambda: warnings.simplefilter("error", ImportWarning),
                         lambda: None),
    "threads": (torch.get_num_threads, lambda: torch.set_num_threads(2), lambda: torch.set_num_threads(1)),
    "get_default_dtype": (lambda: torch.finfo(torch.get_default_dtype()).bits,
                          lambda: torch.set_default_dtype(torch.float64),
                          lambda: torch.set_default_dtype(torch.float32)),
    "default dtype": (lambda: torch.tensor(1.5).element_size(), lambda: torch.set_default_dtype(torch.float64),
                      lambda: torch.set_default_dtype(torch.float32)),
    "grad mode": (lambda: 1 + torch.is_grad_enabled(), lambda: torch.set_grad_enabled(False),
                  lambda: torch.set_grad_enabled(True)),
    "deterministic": (lambda: 1 + torch.are_deterministic_algorithms_enabled(),
                      lambda: torch.use_deterministic_algorithms(True),
                      lambda: torch.use_deterministic_algorithms(False)),
    "cudnn.benchmark": (lambda: 1 + torch.backends.cudnn.benchmark,
                        lambda: setattr(torch.backends.cudnn, "benchmark", True),
                        lambda: setattr(torch.backends.cudnn, "benchmark", False)),
    "autocast": (lambda: 1 + torch.is_autocast_enabled("cpu"), lambda: torch.set_autocast_enabled("cpu", True),
                 lambda: torch.set_autocast_enabled("cpu", False)),
    "default device": (lambda: len(str(torch.get_default_device())), lambda: torch.set_default_device("meta"),
                       lambda: torch.set_default_device(None)),
    "recursion limit": (sys.getrecursionlimit, lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 7),
                        lambda: sys.setrecursionlimit(sys.getrecursionlimit() - 7)),
    "switch interval": (sys.getswitchinterval, lambda: sys.setswitchinterval(0.01),
                        lambda: sys.setswitchinterval(0.005)),
    "digits": (sys.get_int_max_str_digits, lambda: sys.set_int_max_str_digits(5000),
               lambda: sys.set_int_max_str_digits(4300)),
    "environ": (lambda: len(os.environ), lambda: os.environ.update(BURN_TORCH_TEST_X="2"),
                lambda: os.environ.pop("BURN_TORCH_TEST_X")),
    "mktime": (lambda: time.mktime((2020, 1, 1, 0, 0, 0, 0, 0, 0)), lambda: zone("EST5"), lambda: zone(None)),
    "fromtimestamp": (lambda: 1 + datetime.datetime.fromtimestamp(0).hour,  # that is what it reads
                      lambda: zone("EST5"), lambda: zone(None)),
    "gc": (lambda: 1 + gc.isenabled(), gc.disable, gc.enable),
    "gc thresholds": (lambda: gc.get_threshold()[1], lambda: gc.set_threshold(gc.get_threshold()[0], 17),
                      lambda: gc.set_threshold(gc.get_threshold()[0], 10)),
    "tracemalloc": (lambda: 1 + tracemalloc.is_tracing(), tracemalloc.start, tracemalloc.stop),
    "signal": (lambda: 1 + (signal.getsignal(signal.SIGUSR2) == signal.SIG_IGN),
               lambda: signal.signal(signal.SIGUSR2, signal.SIG_IGN),
               lambda: signal.signal(signal.SIGUSR2, signal.SIG_DFL)),
    "socket": (lambda: socket.getdefaulttimeout() or 1.0, lambda: socket.setdefaulttimeout(3.0),
               lambda: socket.setdefaulttimeout(None)),
    "csv": (csv.field_size_limit, lambda: csv.field_size_limit(1000), lambda: csv.field_size_limit(131072)),
    "faulthandler": (lambda: 1 + faulthandler.is_enabled(),
                     lambda: faulthandler.disable() if faulthandler.is_enabled() else faulthandler.enable(),
                     lambda: None),
    "state of random": (lambda: random.getstate()[1][5], lambda: random.seed(5), lambda: None),
    "state of numpy": (lambda: np.random.get_state()[1][5], lambda: np.random.seed(5), lambda: None),
    "state of torch": (lambda: torch.get_rng_state()[8], lambda: torch.manual_seed(77), lambda: None),
    "locale": (lambda: len(repr(locale.localeconv())), lambda: locale.setlocale(locale.LC_ALL, "C.UTF-8"),
               lambda: locale.setlocale(locale.LC_ALL, _LOCALE)),
    "views of dicts": (lambda: next(iter(VALUES)), lambda: ITEMS.update(a=3.0), lambda: ITEMS.update(a=1.0)),
    "weak references": (lambda: 1 + (REFERENCE() is None), HELD.clear, lambda: None),
}  # fmt: skip


def check(read: Callable[[], Any], change: Callable[[], Any]) -> None:
    x = Tensor.from_data([1.0, 2.0], Device.cpu()).cast("f64")
    times = compile(lambda x: x * float(READ()))
    global READ
    READ = read
    first, *_ = [times(x).tolist() for _ in range(3)]
    assert times.traces == 1
    before = float(read())
    assert first == [before, 2.0 * before]
    change()
    after = float(read())
    assert times(x).tolist() == [after, 2.0 * after]


READ: Callable[[], Any] = float


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_kept_in_c_is_read_anew(name: str) -> None:
    read, change, undo = SETTINGS[name]
    try:
        with warnings.catch_warnings():
            check(read, change)
    finally:
        undo()


@pytest.mark.parametrize(
    "read",
    [
        lambda: resource.getrusage(resource.RUSAGE_SELF).ru_utime,
        lambda: os.access("/", os.R_OK),
        lambda: os.statvfs("/").f_bavail,
        lambda: os.getpriority(os.PRIO_PROCESS, 0),
        threading.active_count,
        threading.stack_size,
        lambda: gc.get_count()[0],
        lambda: LOCK.locked(),
        lambda: QUEUE.qsize(),
    ],
    ids=["getrusage", "access", "statvfs", "getpriority", "active_count", "stack_size", "get_count", "locked", "qsize"],
)
def test_what_the_system_answers_anew_is_refused(read: Callable[[], Any]) -> None:
    def times(x: Tensor) -> Tensor:
        return x * float(read())

    with pytest.raises(TraceError, match="reads what is another value in each call"):
        compile(times)(Tensor.ones((2,), Device.cpu()))
