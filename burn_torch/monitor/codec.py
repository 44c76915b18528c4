"""One event is one line of JSON:

    {"v":1,"n":41,"t":1764000000.123,"kind":"step","split":"train","epoch":1,"iteration":40,...}

`v` is the version of the layout, `n` the number of the event in its run, `t` seconds since 1970.  NaN and infinities
are the strings "nan", "inf" and "-inf".  A reader skips kinds and fields that it does not know, so a later version
that only adds some keeps `v`; a greater `v` is refused, because what the reader knows may mean something else in it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Any, Final, get_args, get_origin, get_type_hints

from burn_torch.core.checking import checked_late
from burn_torch.core.errors import DataError
from burn_torch.monitor import event as events
from burn_torch.monitor.event import Event, MetricValue, Split, Stamped, StepDone

__all__ = ["VERSION", "DamagedLine", "decode", "encode"]

VERSION: Final = 1
"""The version of the layout."""
_MOST: Final = 2**63
"""Holds what counts stay below; Python writes no number of 4,300 digits."""
_LATEST: Final = 253_402_300_799.0
"""The end of the year 9999, in seconds since 1970: no calendar has what is later."""

_NOT_FINITE: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class DamagedLine(ValueError):
    """A line that holds no event: half of one, other text, or fields of the wrong type."""


# -- what a field may be ---------------------------------------------------------------------------
def _whole(value: object) -> int:
    if type(value) is not int or not -_MOST <= value < _MOST:
        raise DamagedLine("a count is no whole number of 64 bits")
    return value


def _number(value: object) -> float:
    if type(value) is float or type(value) is int:
        return float(value)
    number = _NOT_FINITE.get(value) if isinstance(value, str) else None
    if number is None:
        raise DamagedLine(f"{value!r} is no number")
    return number


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise DamagedLine(f"{value!r} is no text")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise DamagedLine(f"{value!r} is neither true nor false")
    return value


def _optional(inner: Callable[[object], object]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else inner(value)


def _many(inner: Callable[[object], object]) -> Callable[[Any], Any]:
    def many(value: object) -> Any:
        if not isinstance(value, list):
            raise DamagedLine(f"{value!r} is no list")
        return tuple([inner(one) for one in value])

    return many


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise DamagedLine(f"{value!r} is no object")
    return {name: _text(text) for name, text in value.items()}


def _metric_value(value: object) -> MetricValue:
    if not isinstance(value, list) or len(value) < 3:
        raise DamagedLine(f"{value!r} is no [name, value, count]")
    return MetricValue(_text(value[0]), _number(value[1]), _number(value[2]))


def _split(value: object) -> Split:
    return Split(_text(value))


def _reader(kind: Any) -> Callable[[Any], Any]:
    """Reads a field of this type, as the class of an event declares it."""
    if kind in _READERS:
        return _READERS[kind]
    first, *rest = get_args(kind) or (kind,)
    if get_origin(kind) is tuple:
        return _many(_reader(first))
    return _optional(_reader(first)) if rest == [NoneType] else _object(kind)


def _object(cls: type[object]) -> Callable[[Any], Any]:
    """Reads an instance of a class; a field that is absent has the default of the class, else the line is damaged."""
    readers = {name: _reader(kind) for name, kind in get_type_hints(cls).items()}

    def read(value: object) -> Any:
        if not isinstance(value, dict):
            raise DamagedLine(f"{value!r} is no object")
        try:
            return cls(**{name: read(value[name]) for name, read in readers.items() if name in value})
        except TypeError as err:  # a field without a default is absent
            raise DamagedLine(str(err)) from err

    return read


_READERS: Final[dict[Any, Callable[[Any], Any]]] = {
    int: _whole,
    float: _number,
    str: _text,
    bool: _flag,
    Split: _split,
    MetricValue: _metric_value,
    Mapping[str, str]: _texts,
}
_KINDS: Final[dict[type[Any], str]] = {
    events.RunStarted: "run_started",
    events.SplitStarted: "split_started",
    events.SplitDone: "split_done",
    events.EpochDone: "epoch_done",
    events.CheckpointSaved: "checkpoint",
    events.Notice: "notice",
    events.LogLine: "log",
    events.Resources: "resources",
    events.StopRequested: "stop_requested",
    events.RunEnded: "run_ended",
}
"""Holds what a line calls the event.  A step has a line of its own, being one of many."""
_summary = _object(events.EpochSummary)
_EVENTS: Final[dict[str, Callable[[Any], Event]]] = {
    **{name: _object(cls) for cls, name in _KINDS.items()},
    "split_done": lambda line: events.SplitDone(_summary(line)),
}


# -- writing ---------------------------------------------------------------------------------------------
_NAMES: Final[dict[str, str]] = {}
"""Names of metrics as JSON: each step writes the same few."""


def encode(event: Event, number: int, time: float) -> bytes:
    """The line of an event, with its newline."""
    if type(event) is StepDone:
        line = (
            f'{{"v":{VERSION},"n":{number},"t":{time:.3f},"kind":"step","split":"{event.split._value_}",'
            f'"epoch":{event.epoch},"iteration":{event.iteration},"batches_done":{event.batches_done},'
            f'"items_done":{event.items_done},"values":{_values(event.values)}}}\n'
        )
        return line.encode() if line.isascii() else line.encode("utf-8", "replace")
    if isinstance(event, events.SplitDone):
        summary = event.summary
        values = _values(summary.values)
        rest = f'"kind":"split_done","split":"{summary.split}","epoch":{summary.epoch},"values":{values}}}'
    else:
        contents = {"kind": _KINDS[type(event)], **_plain(event)}
        rest = json.dumps(contents, ensure_ascii=False, allow_nan=False, separators=(",", ":"))[1:]
    # half of a surrogate pair, as in a file name that is not UTF-8, becomes a question mark
    return f'{{"v":{VERSION},"n":{number},"t":{time:.3f},{rest}\n'.encode("utf-8", "replace")


def _values(values: tuple[MetricValue, ...]) -> str:
    parts = []
    for one in values:
        name = _NAMES.get(one.name)
        if name is None:
            name = _name(one.name)
        parts.append(f"[{name},{_float(one.value)},{_float(one.count)}]")
    return f"[{','.join(parts)}]"


def _name(name: str) -> str:
    written = json.dumps(name, ensure_ascii=False)
    if len(_NAMES) < 1000:  # somebody may count in the names
        _NAMES[name] = written
    return written


def _float(value: float) -> str:
    text = repr(float(value))
    return f'"{text}"' if text[-1] in "nf" else text  # nan, inf, -inf


def _plain(value: object) -> Any:
    """A field as JSON has it."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(float(value))
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): str(one) for name, one in value.items()}
    return value


# -- reading ---------------------------------------------------------------------------------------------
_READ: Final = json.JSONDecoder().raw_decode
"""As json.loads without its looks at the encoding and at blanks, which take as long: a run has many lines."""
_SPLITS: Final = {split.value: split for split in Split}


@checked_late
def decode(line: bytes | str) -> Stamped | None:
    """The event of a line; None for a kind that this version does not know.

    Raises: DamagedLine for a line that holds no event; DataError for one of a newer version of the layout.
    """
    try:
        text = line.decode() if isinstance(line, bytes) else line
        fields, end = _READ(text)
        if end != len(text) and text[end:].strip():
            raise DamagedLine("there is more behind the object")
        version = fields["v"]
        if version != VERSION:
            raise _other_version(version)
        number, time, kind = fields["n"], fields["t"], fields["kind"]
        if kind == "step":
            event: Event = _step(fields)
        else:
            read = _EVENTS.get(kind)
            if read is None:
                return None
            event = read(fields)
        stamped = Stamped(_whole(number), _number(time), event)
        if not 0.0 <= stamped.time <= _LATEST:
            raise DamagedLine(f"{stamped.time} is no time")
        return stamped
    except (DataError, DamagedLine):
        raise
    except (ValueError, TypeError, KeyError, RecursionError, ArithmeticError) as err:
        raise DamagedLine(f"{type(err).__name__}: {err}") from err


def _step(fields: Mapping[str, Any]) -> StepDone:
    epoch, iteration = fields["epoch"], fields["iteration"]
    batches, items = fields["batches_done"], fields["items_done"]
    if not (type(epoch) is type(iteration) is type(batches) is type(items) is int):
        raise DamagedLine("a step counts with whole numbers")
    if not all(-_MOST <= count < _MOST for count in (epoch, iteration, batches, items)):
        raise DamagedLine("a step counts with numbers of 64 bits")
    values = fields["values"]
    if type(values) is not list:
        raise DamagedLine(f"{values!r} is no list")
    read = [
        MetricValue(*one)
        if len(one) == 3 and type(one[0]) is str and type(one[1]) is float and type(one[2]) is float
        else _metric_value(one)
        for one in values
    ]
    return StepDone(_SPLITS[fields["split"]], epoch, iteration, batches, items, tuple(read))


def _other_version(version: object) -> Exception:
    if type(version) is not int or version < 1:
        return DamagedLine(f"{version!r} is no version")
    return DataError(
        "these events are of a newer version of burn_torch",
        given=f"events of layout {version}",
        expected=f"layout {VERSION} or older",
        mend="look at the run with the version of burn_torch that trained it, or a newer one",
    )
