"""Defines what a function reads while it is traced, besides its arguments.

The Python of a trace runs once.  The globals, enclosing variables, attributes, lists and arrays that it reads become a
part of the program, so these are the places of the program's `Guard`.  A reading that differs in each call, as a random
number or the clock, refuses the trace.

The watcher is a profile function: it sees each frame of the user's code, and each function of C that this calls.
"""

from __future__ import annotations

import builtins
import gc
import os
import random
import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from types import CodeType, FrameType, FunctionType
from typing import Any, Final, NamedTuple, Self, final

from burn_torch.core.errors import TraceError
from burn_torch.core.frames import is_users
from burn_torch.transform.closed_over import changed
from burn_torch.transform.guard import ABSENT, Contents, Fields, Guard, Long, Place, Probe, Used
from burn_torch.transform.impure import PYTHON_CALLS, generator_state, global_generators, impure_call, restoring
from burn_torch.transform.names import codes_in, contents_of, is_library, is_standard, line_of, names_of, place_of
from burn_torch.transform.places import IMMUTABLE, LONGEST, Places
from burn_torch.transform.settings import Setting, setting_of, setting_of_code
from burn_torch.transform.structure import Function
from burn_torch.transform.surroundings import plain_function

__all__ = ["Readings"]

_USERS, _OTHERS, _OURS = 1, 2, 3
_WILD: Final = frozenset((getattr, vars, hasattr, globals, locals, eval, exec, dir))
"""Functions with which code reads names that it does not load."""
_SEEN: Final = frozenset((print, *_WILD))
_QUIET: Final = (
    "importlib", "logging", "warnings", "linecache", "tokenize", "traceback", "inspect", "threading", "concurrent",
    "asyncio", "triton", "torch._dynamo", "torch._inductor", "burn_torch", "burn_kernels",
)  # fmt: skip
"""Packages that read the clock and files for themselves."""
_ENVIRON: Final = type(os.environ).__getitem__.__code__
_SEEDING: Final = (random.Random.__init__.__code__, random.Random.seed.__code__)


class _Reading(NamedTuple):
    what: str
    where: str

    def __str__(self) -> str:
        return f"{self.what} at {self.where}" if self.where else self.what


@final
class Readings:
    """Watches the Python of one trace, as a block; `guard` gives what it read.

    function   the traced function
    arguments  what it is called with, which the trace made
    """

    def __init__(self, function: Function, arguments: Any = ()) -> None:
        self._function: Final = function
        self._root: Final[CodeType | None] = getattr(plain_function(function), "__code__", None)
        self._codes: Final[dict[CodeType, None]] = {}
        self._parts: Final[set[CodeType]] = set()
        """Codes of functions that were defined inside of those that ran."""
        self._wild: Final[set[CodeType]] = set()
        self._places: Final = Places(arguments)
        self._places.on_generator = self._meet_generator
        self._generators: Final[dict[int, tuple[str, object, object, Callable[[], object]]]] = {}
        self._met: Final[set[int]] = set()
        """Generators that the code reaches."""
        self._impure: Final[list[_Reading]] = []
        self._collecting: Final = {getattr(callback, "__code__", None) for callback in gc.callbacks}
        self._seeded: Final[set[object]] = set()
        """Generators of `random` that the function made with a seed."""
        self._aside: FrameType | None = None
        """A frame that runs when memory is freed, whenever that is: it is no part of the function."""
        self.prints: str | None = None
        """The line of the user's that prints, if there is one: a program prints nothing."""
        self._other: object = None

    def __enter__(self) -> Self:
        for name, generator in global_generators().items():
            self._meet_generator(name, generator)
        self._met.clear()  # not before its code names them
        self._other = sys.getprofile()
        sys.setprofile(self._event)
        return self

    def __exit__(self, *exc_info: object) -> None:
        sys.setprofile(None)
        if callable(self._other):
            sys.setprofile(self._other)
        elif hasattr(self._other, "enable"):  # a profiler in C
            self._other.enable()

    # -- events ------------------------------------------------------------------------------------------------
    def _event(self, frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        kind = _kinds.get(code.co_filename) or _kind_of(frame)
        if kind == _OURS or self._aside is not None:
            if frame is self._aside and event == "return":
                self._aside = None
            return
        if event == "c_call":
            if kind == _USERS and arg in _SEEN:
                self._note_builtin(arg, frame)
            elif (what := impure_call(arg)) is not None and getattr(arg, "__self__", None) not in self._seeded:
                self._note(what, frame)
            elif (setting := setting_of(arg)) is not None:
                self._note_setting(setting, frame)
        elif kind == _USERS:
            if event == "call":
                if code.co_name == "__del__" or code in self._collecting:
                    self._aside = frame
                else:
                    self._enter(frame, code)
            elif event == "return":
                self._leave(frame, code, arg)
        elif event == "call":
            if code is _ENVIRON:
                self._note_variable(frame)
            elif code in PYTHON_CALLS and frame.f_locals.get("self") not in self._seeded:
                self._note(PYTHON_CALLS[code], frame.f_back)
            elif code in _SEEDING:
                self._note_seed(frame)
            elif (setting := setting_of_code(code, frame.f_locals.get("self"))) is not None:
                self._note_setting(setting, frame)

    _event.watches_trace = True  # type: ignore[attr-defined]  # see `core.frames.unwatched`

    def _note_builtin(self, function: object, frame: FrameType) -> None:
        if function is builtins.print:
            self.prints = self.prints or place_of(frame.f_code, frame.f_lineno)
        elif frame.f_code not in self._wild:
            self._wild.add(frame.f_code)
            self._look_everywhere(frame)  # before it sets what it asks for

    def _note_setting(self, setting: Setting, frame: FrameType) -> None:
        if _users_line(frame) is not None:
            self._places.add(setting.read, setting.name, lambda: Probe(*setting))

    def _note(self, what: str, frame: FrameType | None) -> None:
        line = _users_line(frame)
        if line is not None:
            self._impure.append(_Reading(what, line))

    def _note_variable(self, frame: FrameType) -> None:
        key = frame.f_locals.get("key")
        if frame.f_locals.get("self") is os.environ and isinstance(key, str) and _users_line(frame) is not None:
            self._places.add(os.environ, key, lambda: Probe(f"os.environ[{key!r}]", partial(os.environ.get, key)))

    def _note_seed(self, frame: FrameType) -> None:
        """A generator that the function makes with a seed of its own draws the same in each call."""
        generator, seed = (frame.f_locals.get(name) for name in frame.f_code.co_varnames[:2])
        if seed is None:
            self._seeded.discard(generator)
        elif frame.f_code is _SEEDING[0]:
            self._seeded.add(generator)

    def _enter(self, frame: FrameType, code: CodeType) -> None:
        names = names_of(code)
        if "AttributeError" in names.outside:
            self._wild.add(code)
        if "rvs" in names.inside:  # scipy's distributions draw from numpy's generator without naming it
            self._meet_generator("numpy.random", global_generators()["numpy.random"])
        if code not in self._codes:
            self._look_outside(frame, code)
            self._codes[code] = None
            self._parts.update(codes_in(code))
        for name, value in frame.f_locals.items():
            if isinstance(value, attrgetter):
                self._wild.add(code)
            self._places.look(value, name, None if code in self._wild else names.inside)

    def _leave(self, frame: FrameType, code: CodeType, result: object) -> None:
        names = names_of(code)
        of_caller = frozenset() if frame.f_back is None else names_of(frame.f_back.f_code).inside
        self._places.look(result, f"{code.co_name}()", names.inside | of_caller)
        for name in names.imported & sys.modules.keys():
            self._places.look(sys.modules[name], name, names.inside)
        if code in self._wild:
            self._look_everywhere(frame)
            return
        for name, value in frame.f_locals.items():
            self._places.look(value, name, names.inside)

    def _look_everywhere(self, frame: FrameType) -> None:
        """Notes all that code may read which asks for attributes by a text, or for some that may not be there."""
        for name in names_of(frame.f_code).inside & frame.f_globals.keys():
            self._places.outside(name, frame.f_globals, name, None)
        for name, value in frame.f_locals.items():
            self._places.look(value, name, None)

    def _look_outside(self, frame: FrameType, code: CodeType) -> None:
        names = names_of(code)
        for name in names.outside:
            value = frame.f_globals.get(name)
            if value is None and name not in frame.f_globals and name in vars(builtins):
                continue  # any other name that is not there may come
            if isinstance(value, attrgetter):
                self._wild.add(code)
            if code is not self._root or not isinstance(value, IMMUTABLE):  # those are in the key
                self._places.outside(name, frame.f_globals, name, names.inside)
        if code is not self._root and code not in self._parts and set(code.co_freevars) - {"__class__"}:
            known = self._places.functions.get(code)
            for function in _functions_of(code, frame) if known is None or not _sees(known, frame) else [known]:
                self._places.enclosed(function, names.inside)

    def _meet_generator(self, path: str, generator: object) -> None:
        known = self._generators.get(id(generator))
        if known is None:
            self._generators[id(generator)] = (path, generator, generator_state(generator), restoring(generator))
        elif id(generator) not in self._met:  # one that is shared, by the name that the code has for it
            self._generators[id(generator)] = (path, *known[1:])
        self._met.add(id(generator))

    # -- afterwards --------------------------------------------------------------------------------------------
    def guard(self) -> Guard | None:
        """Returns what the trace read, if it read anything.

        Raises: TraceError for what is another value in each call, what the function changed, and lists and dicts that
            are too long to be compared.
        """
        taken = list(self._places.take())
        self._refuse_impure([place for place, _ in taken if isinstance(place, Used)])
        places: list[Place] = []
        for place, owner in taken:
            if isinstance(place, Long):
                raise _too_long(place)
            now = place.now()
            if now is not place.before:
                filled = _added(place, now)
                if filled is None:
                    raise changed(self._function, place.name, owner if isinstance(place, Contents) else place.before)
                if not any(isinstance(value, _COUNTED) for value in filled):
                    place.renew()  # a cache was filled
            places.append(place)
        return Guard(places) if places else None

    def _refuse_impure(self, iterators: Sequence[Used]) -> None:
        impure = {reading.where: reading for reading in reversed(self._impure)}
        called = {reading.what.partition(".")[0] for reading in self._impure}
        drawn = []
        for ident, (path, generator, state, restore) in self._generators.items():
            if (ident in self._met or path in called) and generator_state(generator) != state:
                drawn.append(restore)
                if path not in called:
                    where = line_of(self._codes, path.rpartition(".")[2]) or line_of(self._codes, "rvs")
                    impure.setdefault(where or path, _Reading(f"{path}, a {type(generator).__name__}", where))
        for place in iterators:
            where = line_of(self._codes, place.name.rpartition(".")[2])
            kind = type(place.before).__name__
            impure[where or place.name] = _Reading(f"{place.name}, a {kind}, which reading moves on", where)
        if not impure:
            return
        for restore in drawn:  # what runs instead draws what it would have drawn
            restore()
        shown = [str(one) for one in impure.values()]
        raise TraceError(
            "a traced function reads what is another value in each call",
            given="; ".join(shown[:4]) + ("; and more" if len(shown) > 4 else ""),
            expected="values that come in as arguments: the Python of a compiled function runs once",
            mend="read it outside and pass the value; Tensor.random draws anew in each call",
        )


def _added(place: Place, now: object) -> Sequence[object] | None:
    """The values that came where there were none; None where a value has been replaced."""
    if isinstance(place, Contents | Fields):
        return place.added()
    return [now] if place.before is None or place.before is ABSENT else None


_COUNTED: Final = (int, float, complex, str, bytes, bytearray, list, tuple, dict, set, deque)
"""Holds what the next call may make more of: a first value of this kind is no cache, so the next call is traced
again.
"""

_kinds: Final[dict[str, int]] = {}


def _kind_of(frame: FrameType) -> int:
    """Tells if a frame runs our code, a library's or the user's."""
    filename, module = frame.f_code.co_filename, frame.f_globals.get("__name__", "")
    if filename.startswith("<burn_torch"):
        kind = _OURS
    elif filename.startswith("<"):  # of no file: typed in, or generated
        kind = _OTHERS if filename.startswith("<frozen") or is_library(module) else _USERS
        return _OURS if str(module).startswith(("burn_torch", "burn_kernels")) else kind
    elif not is_users(filename) or str(module).startswith("burn_kernels"):
        kind = _OURS
    else:
        kind = _OTHERS if is_standard(filename) or is_library(module) else _USERS
    _kinds[filename] = kind
    return kind


def _users_line(frame: FrameType | None) -> str | None:
    """The line of the user's code that a frame serves; None where a library reads something for itself."""
    while frame is not None:
        kind = _kinds.get(frame.f_code.co_filename) or _kind_of(frame)
        if kind == _USERS:
            return place_of(frame.f_code, frame.f_lineno)
        if str(frame.f_globals.get("__name__")).startswith(_QUIET):
            return None
        frame = frame.f_back
    return None


def _functions_of(code: CodeType, frame: FrameType) -> list[FunctionType]:
    """The functions with this code and the enclosing variables that the frame sees."""
    caller = frame.f_back
    near = [frame.f_globals.get(code.co_name), *(() if caller is None else caller.f_locals.values())]
    first = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    near += [base.__dict__.get(code.co_name) for base in type(first).__mro__]
    functions = [one for one in near if isinstance(one, FunctionType) and one.__code__ is code]
    if not functions and caller is not None:
        functions = _functions_within(code, frame, [*caller.f_locals.values(), *caller.f_globals.values()])
    if not functions:  # looks at all objects of the process: 0.2 s where there are two million
        functions = [one for one in gc.get_referrers(code) if isinstance(one, FunctionType)]
    return [one for one in functions if _sees(one, frame)]


_NEAR: Final = 4096


def _functions_within(code: CodeType, frame: FrameType, values: list[object]) -> list[FunctionType]:
    """The first function with this code, and the frame's enclosing variables, in containers of the caller's."""
    for _ in range(4):
        inner: list[Any] = []
        for value in values[:_NEAR]:
            if isinstance(value, FunctionType):
                if value.__code__ is code and _sees(value, frame):
                    return [value]
            elif isinstance(value, dict):
                inner += value.values()
            elif isinstance(value, list | tuple):
                inner += value
            elif isinstance(value, partial):
                inner += (value.func, *value.args, *value.keywords.values())
        values = inner
    return []


def _sees(function: FunctionType, frame: FrameType) -> bool:
    """Returns whether a function has the enclosing variables of a frame."""
    pairs = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return all(frame.f_locals.get(name, ABSENT) is contents_of(cell, ABSENT) for name, cell in pairs)


def _too_long(place: Long) -> TraceError:
    return TraceError(
        "a traced function reads something that is too long to be compared in each call",
        given=f"{place.name}, a {type(place.before).__name__} of {len(place.before)} items",
        expected=f"at most {LONGEST} items, or a tuple, which cannot change",
        mend="make a tuple or a read-only array of it, or pass what the function needs of it",
    )
