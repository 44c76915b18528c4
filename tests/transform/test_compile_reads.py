"""Values that a compiled function reads besides its arguments: a change is traced again, an unstable one refused."""

from __future__ import annotations

import array
import collections
import configparser
import contextvars
import datetime
import functools
import io
import itertools
import mmap
import operator
import os
import random
import secrets
import sqlite3
import sys
import threading
import time
import types
import uuid
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import burn_torch
from burn_torch import Device, Module, Tensor, op
from burn_torch.core.checking import checked
from burn_torch.core.errors import TraceError
from burn_torch.ops import TensorSpec

CPU = Device.cpu()
WEIGHT = 1.0
HALF = "ght"
WEIGHT_OF = operator.attrgetter("weight")
SETTINGS: dict[str, Any] = {"kl": 1.0, "inner": {"rates": [1.0]}}
RATES = [1.0, 2.0]
ARRAY = np.array([1.0, 2.0], np.float32)
VARIABLE: contextvars.ContextVar[float] = contextvars.ContextVar("VARIABLE", default=1.0)
HELD: contextvars.ContextVar[dict[str, float]] = contextvars.ContextVar("HELD", default={"by": 1.0})  # noqa: B039
LOCAL = threading.local()


class Schedule:
    rate = 1.0

    def __init__(self) -> None:
        self.weight = 1.0
        self.inner = types.SimpleNamespace(value=1.0)

    def value(self) -> float:
        return self.weight

    @property
    def slope(self) -> float:
        return float(self.inner.value)

    def __getitem__(self, name: str) -> float:
        return float(SETTINGS[name])


class Derived(Schedule):
    pass


class Meta(type):
    level = 1.0


class OfMeta(metaclass=Meta):
    pass


class Answering(dict[str, float]):
    """A dict that answers by an attribute of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = 1.0

    def __getitem__(self, name: str) -> float:
        return self.weight


class Slotted:
    __slots__ = ("weight",)

    def __init__(self) -> None:
        self.weight = 1.0


@dataclass
class Record:
    weight: float = 1.0


class Scaled(Module):
    schedule: Schedule
    level: float = 1.0
    strength = 1.0  # no field: an attribute of the class

    def forward(self, x: Tensor) -> Tensor:
        return x * self.strength * self.schedule.weight


SCHEDULE, DERIVED, ANSWERING = Schedule(), Derived(), Answering()
NUMBERS, MEMORY, BUFFER = array.array("d", [1.0]), mmap.mmap(-1, 8), io.BytesIO(b"\x01")
WEAK = weakref.WeakValueDictionary(derived=DERIVED)
DROPOUT = torch.nn.Dropout(0.25)
DESCENT = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
PARSED = configparser.ConfigParser()
ELSEWHERE = types.ModuleType("burn_test_elsewhere")
CHANGES_BACK: list[tuple[Any, str, Any]] = [
    (Schedule, "value", Schedule.value),
    (ELSEWHERE, "level", 1.0),
    (Meta, "level", 1.0),
]


def imported() -> float:
    from burn_test_elsewhere import level  # type: ignore[import-not-found]  # a module of this test's

    return float(level)


def weight() -> float:
    return WEIGHT


def late_weight() -> float:
    try:
        return LATE  # type: ignore[name-defined, no-any-return]  # it comes
    except NameError:
        return 1.0


def kl() -> float:
    return float(SETTINGS["kl"])


def with_default(x: Tensor, settings: dict[str, float] = {"by": 1.0}) -> Tensor:  # noqa: B006  # the fault to see
    return x * settings["by"]


@functools.lru_cache
def cached_schedule() -> Schedule:
    return SCHEDULE


def enclosed() -> tuple[Callable[[Tensor], Tensor], Callable[[float], None]]:
    factor = 1.0

    def scale(x: Tensor) -> Tensor:
        return x * factor

    def change(value: float) -> None:
        nonlocal factor
        factor = value

    return scale, change


SCALE, CHANGE = enclosed()


@pytest.fixture(autouse=True)
def as_written(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test begins with the same values outside."""
    here = sys.modules[__name__]
    monkeypatch.setattr(here, "SCHEDULE", Schedule())
    monkeypatch.setattr(here, "SETTINGS", {"kl": 1.0, "inner": {"rates": [1.0]}})
    monkeypatch.setattr(here, "RATES", [1.0, 2.0])
    monkeypatch.setattr(here, "ARRAY", np.array([1.0, 2.0], np.float32))
    monkeypatch.setattr(here, "WEIGHT", 1.0)
    monkeypatch.delattr(here, "LATE", raising=False)
    monkeypatch.setattr(Schedule, "rate", 1.0)
    monkeypatch.setattr(Scaled, "strength", 1.0)
    for owner, name, value in CHANGES_BACK:
        monkeypatch.setattr(owner, name, value, raising=False)
    monkeypatch.setitem(sys.modules, ELSEWHERE.__name__, ELSEWHERE)
    PARSED.read_dict({"step": {"weight": "1"}})
    LOCAL.weight = 1.0
    CHANGE(1.0)
    cached_schedule.cache_clear()
    return


def rebind(name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(sys.modules[__name__], name, value)


def rates_of(schedules: list[Schedule]) -> float:
    return sum(schedule.weight for schedule in schedules)


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "a global of a helper": (lambda: weight(), rebind("WEIGHT", 3.0)),
    "a dict of a helper": (lambda: kl(), lambda: SETTINGS.update(kl=4.0)),
    "a nested dict": (lambda: SETTINGS["inner"]["rates"][0], lambda: SETTINGS["inner"]["rates"].insert(0, 2.0)),
    "an item of a list": (lambda: max(RATES), lambda: RATES.append(9.0)),
    "the length of a list": (lambda: len(RATES), lambda: RATES.append(9.0)),
    "a list gone through": (lambda: sum(rate for rate in RATES), lambda: RATES.__setitem__(0, 9.0)),
    "a key that comes": (lambda: 2.0 if "new" in SETTINGS else 1.0, lambda: SETTINGS.update(new=1)),
    "an array in place": (lambda: float(ARRAY[0]), lambda: ARRAY.__setitem__(0, 7.0)),
    "an attribute": (lambda: SCHEDULE.weight, lambda: setattr(SCHEDULE, "weight", 2.5)),
    "an attribute of an attribute": (lambda: SCHEDULE.inner.value, lambda: setattr(SCHEDULE.inner, "value", 2.5)),
    "an attribute read by a method": (lambda: SCHEDULE.value(), lambda: setattr(SCHEDULE, "weight", 2.5)),
    "an attribute read by a property": (lambda: SCHEDULE.slope, lambda: setattr(SCHEDULE.inner, "value", 2.5)),
    "an attribute by getattr": (lambda: getattr(SCHEDULE, "wei" + HALF), lambda: setattr(SCHEDULE, "weight", 2.5)),
    "an attribute by vars": (lambda: vars(SCHEDULE)["weight"], lambda: setattr(SCHEDULE, "weight", 2.5)),
    "an attribute by attrgetter": (lambda: WEIGHT_OF(SCHEDULE), lambda: setattr(SCHEDULE, "weight", 2.5)),
    "an attribute of an argument of a helper": (lambda: rates_of([SCHEDULE]), lambda: setattr(SCHEDULE, "weight", 2.5)),
    "an item by __getitem__": (lambda: SCHEDULE["kl"], lambda: SETTINGS.update(kl=4.0)),
    "an attribute of a class": (lambda: SCHEDULE.rate, lambda: setattr(Schedule, "rate", 2.5)),
    "an attribute that hides the class's": (lambda: SCHEDULE.rate, lambda: setattr(SCHEDULE, "rate", 2.5)),
    "a schedule bound anew": (lambda: SCHEDULE.weight, lambda: rebind("SCHEDULE", types.SimpleNamespace(weight=4.0))()),
    "a global by globals()": (lambda: globals()["WEIGHT"], rebind("WEIGHT", 3.0)),
    "a helper bound anew": (lambda: weight(), rebind("weight", lambda: 3.0)),
    "a variable of a context": (lambda: VARIABLE.get(), lambda: VARIABLE.set(2.0)),
    "what a variable of a context holds": (lambda: HELD.get()["by"], lambda: HELD.get().update(by=2.0)),
    "a byte of a buffer": (lambda: BUFFER.getvalue()[0], lambda: BUFFER.write(b"\x06")),
    "a value of a weak dict": (lambda: WEAK["derived"].weight, lambda: setattr(DERIVED, "weight", 6.0)),
    "an attribute of a class of classes": (lambda: OfMeta.level, lambda: setattr(Meta, "level", 6.0)),
    "a global that comes": (lambda: late_weight(), rebind("LATE", 3.0)),
    "an attribute of a thread": (lambda: LOCAL.weight, lambda: setattr(LOCAL, "weight", 2.0)),
    "the environment": (lambda: float(os.getenv("BURN_TEST_KL", "1")), lambda: os.environ.update(BURN_TEST_KL="5")),
    "a method set anew": (lambda: SCHEDULE.value(), lambda: setattr(Schedule, "value", lambda self: 6.0)),
    "a method that an object hides": (lambda: SCHEDULE.value(), lambda: setattr(SCHEDULE, "value", lambda: 6.0)),
    "an attribute that a derived class hides": (lambda: DERIVED.rate, lambda: setattr(Derived, "rate", 6.0)),
    "an attribute that comes": (lambda: getattr(SCHEDULE, "late", 1.0), lambda: setattr(SCHEDULE, "late", 6.0)),
    "a name imported where it is used": (lambda: imported(), lambda: setattr(ELSEWHERE, "level", 6.0)),
    "an item of a dict of a class of its own": (lambda: ANSWERING["a"], lambda: setattr(ANSWERING, "weight", 6.0)),
    "an item of array.array": (lambda: NUMBERS[0], lambda: NUMBERS.__setitem__(0, 6.0)),
    "a byte of a mapped file": (lambda: MEMORY[0], lambda: MEMORY.__setitem__(0, 6)),
    "a field of a torch module": (lambda: DROPOUT.p, lambda: setattr(DROPOUT, "p", 0.5)),
    "the rate of a torch optimizer": (
        lambda: DESCENT.param_groups[0]["lr"], lambda: DESCENT.param_groups[0].update(lr=0.125)
    ),
    "a value of a parsed file": (
        lambda: PARSED.getfloat("step", "weight"), lambda: PARSED.read_dict({"step": {"weight": "6"}})
    ),
    "what a cached function gave": (lambda: cached_schedule().weight, lambda: setattr(SCHEDULE, "weight", 2.5)),
}  # fmt: skip


@pytest.mark.parametrize("form", CHANGES)
def test_what_a_compiled_function_reads_is_never_stale(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BURN_TEST_KL", raising=False)
    monkeypatch.setattr(sys.modules[__name__], "weight", weight)
    read, change = CHANGES[form]
    x = Tensor.from_floats([1.0, 3.0], CPU)
    function = lambda x: x * read()  # noqa: E731  # its own names say nothing of what `read` reads
    compiled = burn_torch.compile(function)
    before = function(x).tolist()
    assert [compiled(x).tolist() for _ in range(3)] == [before] * 3
    assert compiled.traces == 1
    change()
    after = function(x).tolist()
    assert after != before
    assert [compiled(x).tolist() for _ in range(3)] == [after] * 3
    assert (compiled.traces, compiled.changed_readings) == (2, 1)


class Proxy:
    """A stand-in for a value that is not there yet: it fails to say what it has."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no request, so no {name}")


def test_what_fails_to_say_what_it_has_does_not_end_a_trace() -> None:
    proxy = Proxy()

    def function(x: Tensor) -> Tensor:
        return x * (2.0 if proxy is not None else 1.0)

    assert burn_torch.compile(function)(Tensor.from_floats([1.0], CPU)).tolist() == [2.0]
    assert burn_torch.compile(lambda x: function(x))(Tensor.from_floats([1.0], CPU)).tolist() == [2.0]


def test_attributes_of_slots_records_modules_partials_and_containers() -> None:
    x = Tensor.from_floats([1.0], CPU)
    slotted, record, model = Slotted(), Record(), Scaled(Schedule())
    part = functools.partial(lambda x, by: x * by["by"], by={"by": 1.0})
    ordered, queued, user = collections.OrderedDict(a=1.0), collections.deque([1.0]), collections.UserDict(a=1.0)
    scale = lambda x: SCALE(x)  # noqa: E731
    cases: list[tuple[Callable[[Any], Any], Callable[[], Any]]] = [
        (lambda x: x * slotted.weight, lambda: setattr(slotted, "weight", 2.0)),
        (lambda x: x * record.weight, lambda: setattr(record, "weight", 2.0)),
        (lambda x: model.forward(x), lambda: setattr(model.schedule, "weight", 2.0)),
        (lambda x: model.forward(x), lambda: setattr(Scaled, "strength", 3.0)),
        (part, lambda: part.keywords["by"].update(by=2.0)),
        (lambda x: part(x), lambda: part.keywords["by"].update(by=3.0)),
        (with_default, lambda: with_default.__defaults__[0].update(by=2.0)),
        (lambda x: with_default(x), lambda: with_default.__defaults__[0].update(by=3.0)),
        (lambda x: x * ordered["a"], lambda: ordered.update(a=2.0)),
        (lambda x: x * queued[0], lambda: queued.appendleft(2.0)),
        (lambda x: x * user["a"], lambda: user.update(a=2.0)),
        (scale, lambda: CHANGE(2.0)),
    ]
    for number, (function, change) in enumerate(cases):
        compiled = burn_torch.compile(function)
        compiled(x)
        change()
        assert compiled(x).tolist() == function(x).tolist() != [1.0], number
    with_default.__defaults__[0].update(by=1.0)


def test_a_value_that_comes_back_needs_no_trace_and_an_equal_one_neither() -> None:
    x = Tensor.from_floats([1.0], CPU)
    schedule = Schedule()
    compiled = burn_torch.compile(lambda x: x * schedule.value())
    values = []
    for value in (1.0, 2.0, 1.0, float("2"), float("1")):
        schedule.weight = value
        values.append(compiled(x).item())
    assert values == [1.0, 2.0, 1.0, 2.0, 1.0]
    assert compiled.traces == 2
    schedule.weight = -0.0
    assert np.signbit(compiled(x).item())
    schedule.weight = 0.0
    assert not np.signbit(compiled(x).item())
    assert "weight: 0.0, was 1.0" in str(compiled.explain(x))


GENERATOR, RANDOM, TORCH = np.random.default_rng(0), random.Random(0), torch.Generator()
COUNT, LISTED = itertools.count(), iter([1.0] * 100)


def endless() -> Iterator[float]:
    while True:
        yield 1.0


ENDLESS = endless()


class Holder:
    def __init__(self) -> None:
        self.generator = np.random.default_rng(1)
        self.values = iter(range(1, 100))
        self.draw = np.random.rand
        self.beta = GENERATOR.beta


HOLDER = Holder()
DATABASE = sqlite3.connect(":memory:")
IMPURE: dict[str, Callable[[], Any]] = {
    "random.random": lambda: random.random(),
    "random.gauss": lambda: random.gauss(0, 1),
    "random.shuffle": lambda: random.shuffle([1, 2, 3]) or 1.0,
    "random.Random()": lambda: random.Random().gauss(0, 1),
    "a seed taken back": lambda: [rng := random.Random(3), rng.seed(), rng.random()][-1],
    "random.Random": lambda: RANDOM.uniform(1, 2),
    "np.random.beta": lambda: np.random.beta(0.2, 0.2),
    "np.random.permutation": lambda: np.random.permutation(4)[0],
    "a Generator": lambda: GENERATOR.beta(0.2, 0.2),
    "a Generator in an attribute": lambda: HOLDER.generator.random(),
    "np.random.rand in an attribute": lambda: HOLDER.draw(),
    "a method of a Generator in an attribute": lambda: HOLDER.beta(0.2, 0.2),
    "default_rng()": lambda: np.random.default_rng().beta(0.2, 0.2),
    "torch.rand": lambda: torch.rand(1),
    "torch.rand of a generator": lambda: torch.rand(1, generator=TORCH),
    "uniform_": lambda: torch.empty(1).uniform_(),
    "F.dropout": lambda: torch.nn.functional.dropout(torch.ones(1)),
    "time.time": lambda: time.time(),
    "time.perf_counter": lambda: time.perf_counter(),
    "datetime.now": lambda: datetime.datetime.now().microsecond,
    "date.today": lambda: datetime.date.today().day,
    "uuid4": lambda: uuid.uuid4().int % 7,
    "uuid1": lambda: uuid.uuid1().int % 7,
    "np.fromfile": lambda: np.fromfile(__file__, np.uint8, 1)[0],
    "sqlite3": lambda: DATABASE.execute("select 1").fetchone()[0],
    "scipy.stats": lambda: stats.norm.rvs(),
    "os.urandom": lambda: os.urandom(1)[0],
    "secrets": lambda: secrets.randbelow(9),
    "a file": lambda: len(Path(__file__).read_text("utf-8")),
    "a folder": lambda: len(list(Path(__file__).parent.iterdir())),
    "count": lambda: next(COUNT),
    "an iterator": lambda: next(LISTED),
    "an iterator in an attribute": lambda: next(HOLDER.values),
    "a generator function": lambda: next(ENDLESS),
    "a loop over an iterator": lambda: next(value for value, _ in zip(LISTED, range(2), strict=False)),
}


@pytest.mark.parametrize("form", IMPURE)
def test_what_is_another_value_each_time_refuses_the_trace_with_its_line(form: str) -> None:
    read = IMPURE[form]
    x = Tensor.from_floats([1.0], CPU)
    with pytest.raises(
        TraceError,
        match=r"(?s)reads what is another value in each call.*given: .*test_compile_reads\.py:\d+ in <lambda>"
        r".*expected: values that come in as arguments.*mend: .*read it outside and pass the value",
    ):
        burn_torch.compile(lambda x: x * float(read()))(x)


def test_gauss_that_takes_what_the_last_call_kept_refuses_the_trace() -> None:
    random.gauss(0, 1)  # draws two: the next call draws nothing
    x = Tensor.from_floats([1.0], CPU)
    with pytest.raises(TraceError, match=r"random\.gauss at .*test_compile_reads\.py"):
        burn_torch.compile(lambda x: x * random.gauss(0, 1))(x)


def count_in_an_object() -> float:
    SCHEDULE.steps = getattr(SCHEDULE, "steps", 0) + 1  # type: ignore[attr-defined]
    return float(SCHEDULE.steps)  # type: ignore[attr-defined]


def count_in_a_function() -> float:
    count_in_a_function.steps = getattr(count_in_a_function, "steps", 0) + 1  # type: ignore[attr-defined]
    return float(count_in_a_function.steps)  # type: ignore[attr-defined]


def count_in_the_environment() -> float:
    os.environ["BURN_TEST_KL"] = str(int(os.environ.get("BURN_TEST_KL", "0")) + 1)
    return float(os.environ["BURN_TEST_KL"])


def count_in_a_dict_that_comes() -> float:
    SCHEDULE.inner.value = SCHEDULE.inner.value if isinstance(SCHEDULE.inner.value, dict) else {"steps": 0}
    SCHEDULE.inner.value["steps"] += 1
    return float(SCHEDULE.inner.value["steps"])


@pytest.mark.parametrize(
    "count", [count_in_an_object, count_in_a_function, count_in_the_environment, count_in_a_dict_that_comes]
)
def test_a_count_that_the_first_call_begins_is_not_taken_for_a_cache(
    count: Callable[[], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BURN_TEST_KL", "0")
    monkeypatch.delenv("BURN_TEST_KL")
    vars(count).clear()
    monkeypatch.setattr(SCHEDULE.inner, "value", None)
    compiled = burn_torch.compile(lambda x: x * count())
    x = Tensor.from_floats([1.0], CPU)
    assert compiled(x).tolist() == [1.0]
    with pytest.raises(TraceError, match="changed something that it did not make"):
        compiled(x)


def test_a_refused_trace_gives_generators_back_what_it_drew() -> None:
    def draws() -> list[float]:
        return [random.random(), float(np.random.rand()), float(GENERATOR.random()), float(torch.rand(1))]

    for state in (random.seed, np.random.seed, torch.manual_seed):
        state(3)
    before = GENERATOR.bit_generator.state
    wanted = draws()
    GENERATOR.bit_generator.state = before
    for state in (random.seed, np.random.seed, torch.manual_seed):
        state(3)
    with pytest.raises(TraceError, match="reads what is another value in each call"):
        burn_torch.compile(lambda x: x * sum(draws()))(Tensor.from_floats([1.0], CPU))
    assert draws() == wanted


def test_what_the_function_makes_itself_is_no_reading() -> None:
    def own(x: Tensor) -> Tensor:
        rng, shuffled = np.random.default_rng(3), random.Random(3)
        rates = [1.0]
        rates.append(float(rng.random()) + shuffled.gauss(0, 1) + random.Random("a").choice([1, 2, 3]))
        shuffled.shuffle(rates[:0])
        record = Record()
        record.weight = 2.0
        values = iter(rates)
        seen: dict[str, float] = {}
        for name in "ab":
            seen[name] = next(values)
        return x * record.weight * seen["b"] * sum(map(len, zip(rates, rates, strict=True)))

    x = Tensor.from_floats([1.0], CPU)
    compiled = burn_torch.compile(own)
    assert compiled(x).tolist() == own(x).tolist()
    program = next(iter(compiled._programs.values()))
    assert len(program.guard or ()) <= 2  # the class Record and its default


def test_a_cache_that_the_first_call_fills_is_traced_once() -> None:
    holder = types.SimpleNamespace(table=None)

    def cached(x: Tensor) -> Tensor:
        if holder.table is None:
            holder.table = np.arange(2.0, dtype=np.float32)
        return x * Tensor.from_data(holder.table, x.device)

    x = Tensor.from_floats([1.0, 2.0], CPU)
    compiled = burn_torch.compile(cached)
    assert [compiled(x).tolist() for _ in range(3)] == [[0.0, 2.0]] * 3
    assert compiled.traces == 1


def test_a_list_that_is_too_long_to_compare_is_refused_unless_it_cannot_change() -> None:
    table = [1.0] * 20_000
    x = Tensor.from_floats([1.0], CPU)
    with pytest.raises(
        TraceError,
        match=r"(?s)too long to be compared.*given: +table, a list of 20000 items.*expected: at most 16384"
        r".*mend: +make a tuple",
    ):
        burn_torch.compile(lambda x: x * table[3])(x)
    fixed = tuple(table)
    assert burn_torch.compile(lambda x: x * fixed[3])(x).tolist() == [1.0]


def test_profilers_go_on_beside_a_trace() -> None:
    events: list[str] = []
    before = sys.getprofile()
    mine = lambda frame, event, arg: events.append(event)  # noqa: E731
    sys.setprofile(mine)
    try:
        burn_torch.compile(lambda x: x * 2.0)(Tensor.from_floats([1.0], CPU))
        assert sys.getprofile() is mine
    finally:
        sys.setprofile(before)
    assert events


@op(torch=lambda x: 2 * x, numpy=lambda x: 2 * x, namespace="test_compile_reads")
def doubled(x: TensorSpec) -> TensorSpec:
    """2 x.  Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out."""
    return x


@doubled.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    return g * time.time()


def test_the_gradient_rule_of_a_row_of_the_user_is_watched() -> None:
    first = burn_torch.compile(burn_torch.grad(lambda x: doubled(x).sum()))
    with pytest.raises(TraceError, match=r"time\.time at .*test_compile_reads\.py"):
        first(Tensor.from_data(np.ones(2), CPU))


numbers = itertools.count()


@checked
def shifted(x: Tensor, by: float) -> Tensor:
    return x + by


def test_arguments_that_are_checked_for_the_first_time_read_nothing() -> None:
    """Their annotations were evaluated in the trace, among all globals beside the function: a count was refused."""
    assert burn_torch.compile(lambda x: shifted(x, 1.0))(Tensor.from_data(np.ones(2), CPU)).tolist() == [2.0, 2.0]
