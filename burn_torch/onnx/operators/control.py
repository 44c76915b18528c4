"""If, Loop, Scan, and sequences and optional values: Python's own, so conditions are read on the host."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Many
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, DTypeError, OnnxError, ShapeError, TraceError
from burn_torch.onnx.operators.axes import Ints, axis_of, ints, malformed
from burn_torch.onnx.operators.registry import HOST, Condition, Host, Outputs, Sequence, on_host, operator, read
from burn_torch.onnx.operators.shape import concat, slice_of, split, squeeze, unsqueeze
from burn_torch.tensor import Tensor
from burn_torch.transform.rolling import roller_of

__all__ = [
    "concat_from_sequence", "if_", "loop", "optional", "optional_get_element", "optional_has_element", "scan",
    "sequence_at", "sequence_construct", "sequence_empty", "sequence_erase", "sequence_insert", "sequence_length",
    "split_to_sequence",
]  # fmt: skip

Values: TypeAlias = tuple[Outputs, ...]
"""A body takes and gives these: tensors, arrays that the host knows, sequences, or None."""

Body: TypeAlias = Callable[..., Values]


def _pack(values: tuple[object, ...], outputs: int = 1) -> Outputs:
    return values[0] if outputs == 1 else values[:outputs]


Stacks = tuple[tuple[str, Ints] | None, ...]


def _stack(values: Sequence, axis: int = 0, declared: tuple[str, Ints] | None = None) -> Outputs:
    """Values side by side along a new axis; without values, none of the shape that the file declares."""
    if not values and declared is not None:
        dtype, shape = DType.of(declared[0]), declared[1]
        at = axis_of(axis, len(shape) + 1)
        return on_host(TensorData(np.zeros((*shape[:at], 0, *shape[at:]), dtype.numpy), dtype))
    if not values:
        raise OnnxError(
            "a loop that never ran has nothing to stack",
            given="a scan output of 0 iterations, whose shape the file does not declare",
            expected="1 iteration or more, or a declared shape",
            mend="give the model an input for which the loop runs, or declare the shape of the body's output",
        )
    at = axis_of(axis, len(values[0].shape) + 1)
    return concat(*[unsqueeze(value, np.array([at], np.int64)) for value in values], axis=at)


@operator("If")
def if_(condition: Condition, *, then_branch: Body, else_branch: Body, outputs: int = 1) -> Outputs:
    """One of two branches; both where what is traced is exported again."""
    roller = roller_of(condition)
    if roller is None:
        return _pack(then_branch() if read(condition).reshape(-1)[0] else else_branch(), outputs)
    assert isinstance(condition, Tensor), "a roller takes tensors"
    chosen, other = (partial(_run, body, condition) for body in (then_branch, else_branch))
    return _pack(roller.cond(condition, chosen, other, ()), outputs)


def _run(body: Body, like: Tensor) -> Values:
    return _tensors(body(), like)


def _tensors(values: Many[Outputs], like: Tensor) -> Values:
    """Values on the device of a tensor, as the body of a node hands them on."""
    return tuple(Tensor.from_data(value, like.device) if isinstance(value, HOST) else value for value in values)


@operator("Loop")
def loop(
    trips: Condition | None = None,
    condition: Condition | None = None,
    *carried: object,
    body: Body,
    outputs: int = 1,
    stacks: Stacks = (),
) -> Outputs:
    """body(iteration, condition, *carried) again and again: gives the condition, what is carried and stacked.

    If a loop never ran, its stacks have length 0, and so have sizes that the file does not fix, as in onnxruntime.
    """
    rolled = _roll_loop(trips, condition, carried, body, outputs)
    if rolled is not None:
        return _pack(rolled, outputs)
    limit = None if trips is None else int(read(trips).reshape(-1)[0])
    going = condition is None or bool(read(condition).reshape(-1)[0])
    state: Values = carried
    series: list[Sequence] = [[] for _ in range(outputs - len(carried))]
    declared = (*stacks[1 + len(carried) :], *[None] * len(series))
    i = 0
    while going and (limit is None or i < limit):
        results = body(np.array(i, np.int64), np.array(going), *state)
        going = results[0] is None or bool(read(results[0]).reshape(-1)[0])
        state = results[1 : 1 + len(carried)]
        for values, value in zip(series, results[1 + len(carried) :], strict=False):
            values.append(value)
        i += 1
    joined = [_stack(values, 0, kind) for values, kind in zip(series, declared, strict=False)]
    return _pack((*state, *joined), outputs)


def _roll_loop(
    trips: Condition | None, condition: Condition | None, carried: Values, body: Body, outputs: int
) -> Values | None:
    """The loop as one node, where what is traced is exported again; None where Python runs it.

    A body that reads what is carried on the host runs in Python, and so does one that stacks and may end early.
    """
    like = next((x for x in (*carried, condition, trips) if isinstance(x, Tensor)), None)
    roller = None if like is None or any(isinstance(x, list) for x in carried) else roller_of(*_tensors(carried, like))
    if like is None or roller is None:
        return None
    device, stacks = like.device, outputs - len(carried)
    start = _tensors(carried, like)
    with suppress(ArgumentError, DTypeError, ShapeError, TraceError):
        if stacks:
            if isinstance(trips, Tensor) or trips is None or not (condition is None or _always(condition)):
                return None
            places = Tensor.from_data(np.arange(int(trips.reshape(-1)[0])), device)

            def slice_body(state: Values, i: Tensor) -> tuple[Values, Values]:
                going, *results = body(i, np.array(True), *state)
                if not (going is None or _always(going)):
                    raise TraceError("a loop that stacks may end early", given="", expected="", mend="")
                after = _tensors(results, like)
                return after[: len(state)], after[len(state) :]

            last, series = roller.scan(slice_body, start, places, 0, places.shape[0], False)
            return (*last, *series)
        first = np.array(True) if condition is None else condition
        limit = None if isinstance(trips, Tensor) or trips is None else int(trips.reshape(-1)[0])
        zero, (begun,) = Tensor.from_data(np.array(0, np.int64), device), _tensors([first], like)

        def holds(state: Values) -> Tensor:
            going: Tensor = state[1].bool().reshape((1,))
            return going.bool_and(state[0].lower(trips).reshape((1,))) if isinstance(trips, Tensor) else going

        def step(state: Values) -> Values:
            going, *results = body(state[0], state[1], *state[2:])
            going = np.array(True) if going is None else going
            return (state[0] + 1, *_tensors([going, *results], like))

        return tuple(roller.while_loop(holds, step, (zero, begun, *start), limit)[2:])
    return None


def _always(condition: object) -> bool:
    """Says whether a condition is known on the host, and holds."""
    return isinstance(condition, np.ndarray) and bool(condition.reshape(-1)[0])


@operator("Scan", 9)
def scan(
    *inputs: Any,
    body: Body,
    num_scan_inputs: int,
    scan_input_axes: Ints | None = None,
    scan_input_directions: Ints | None = None,
    scan_output_axes: Ints | None = None,
    scan_output_directions: Ints | None = None,
    outputs: int = 1,
    stacks: Stacks = (),
) -> Outputs:
    """body(*state, *slices) along an axis: gives the state, and what is stacked."""
    count = len(inputs) - num_scan_inputs
    state, scanned = tuple(inputs[:count]), inputs[count:]
    axes = [axis_of(axis, x.ndim) for axis, x in zip(scan_input_axes or (0,) * num_scan_inputs, scanned, strict=True)]
    backwards = scan_input_directions or (0,) * num_scan_inputs
    steps = {x.shape[axis] for x, axis in zip(scanned, axes, strict=True)}
    if len(steps) != 1:
        raise OnnxError(
            "Scan: the inputs have different lengths",
            given=str(sorted(steps)),
            expected="one length",
            mend="the inputs have other shapes than the model was exported for",
        )
    (length,) = steps
    ways = _each("scan_output_directions", scan_output_directions, outputs - count)
    places = _each("scan_output_axes", scan_output_axes, outputs - count)
    rolled = _roll_scan(state, scanned, axes, backwards, body, ways, places)
    if rolled is not None:
        return _pack(rolled, outputs)
    series: list[Sequence] = [[] for _ in range(outputs - count)]
    declared = (*stacks[count:], *[None] * len(series))
    for t in range(length):
        parts = [
            _slice(x, axis, length - 1 - t if back else t)
            for x, axis, back in zip(scanned, axes, backwards, strict=True)
        ]
        results = body(*state, *parts)
        state = results[:count]
        for values, value in zip(series, results[count:], strict=False):
            values.append(value)
    joined = [
        _stack(values[::-1] if back else values, axis, kind)
        for values, back, axis, kind in zip(series, ways, places, declared, strict=False)
    ]
    return _pack((*state, *joined), outputs)


def _roll_scan(
    state: Values,
    scanned: Values,
    axes: Many[int],
    backwards: Many[int],
    body: Body,
    ways: Ints,
    places: Ints,
) -> Values | None:
    """The loop as one node, where what is traced is exported again; None where Python runs it."""
    like = next((x for x in scanned if isinstance(x, Tensor)), None)
    roller = None if like is None else roller_of(*_tensors((*state, *scanned), like))
    if like is None or roller is None:
        return None
    columns = [x.movedim(axis, 0) for x, axis in zip(_tensors(scanned, like), axes, strict=True)]
    columns = [x.flip([0]) if back else x for x, back in zip(columns, backwards, strict=True)]

    def step(before: Values, parts: list[Tensor]) -> tuple[Values, Values]:
        results = _tensors(body(*before, *parts), like)
        return results[: len(before)], results[len(before) : len(before) + len(ways)]

    with suppress(ArgumentError, DTypeError, ShapeError, TraceError):
        last, series = roller.scan(step, _tensors(state, like), columns, 0, columns[0].shape[0], False)
        turned = [y.flip([0]) if back else y for y, back in zip(series, ways, strict=True)]
        return (*last, *(y.movedim(0, axis_of(at, y.ndim)) for y, at in zip(turned, places, strict=True)))
    return None


def _each(name: str, values: Ints | None, count: int) -> Ints:
    """A number for each stacked output; 0 where the attribute is left out."""
    if values is not None and len(values) < count:
        raise malformed(
            f"Scan: {name} has too few numbers",
            given=f"{len(values)} for {count} stacked outputs",
            expected="one for each",
        )
    return values or (0,) * count


def _slice(x: object, axis: int, index: int) -> Outputs:
    at = np.array([axis], np.int64)
    return squeeze(slice_of(x, np.array([index]), np.array([index + 1]), at), at)


# -- sequences --------------------------------------------------------------------------------------------------
@operator("SequenceConstruct", 11)
def sequence_construct(*xs: object) -> Outputs:
    """A sequence of values."""
    return list(xs)


@operator("SequenceEmpty", 11)
def sequence_empty(*, dtype: int = 1) -> Outputs:
    """A sequence without values."""
    return []


@operator("SequenceLength", 11)
def sequence_length(sequence: Sequence) -> Outputs:
    """How many values a sequence has."""
    return np.array(len(sequence), np.int64)


def _index(position: Host | None, length: int, extra: int = 0) -> int:
    if position is None:
        return length - 1 + extra
    index = int(position.reshape(-1)[0])
    if not -length <= index < length + extra:
        raise malformed(
            "there is no such place in the sequence",
            given=f"position {index} of {length}",
            expected=f"-{length} to {length + extra - 1}",
        )
    return index + length if index < 0 else index


@operator("SequenceAt", 11)
def sequence_at(sequence: Sequence, position: Host) -> Outputs:
    """The value at a place; negative ones count from the end."""
    return sequence[_index(position, len(sequence))]


@operator("SequenceInsert", 11)
def sequence_insert(sequence: Sequence, value: object, position: Host | None = None) -> Outputs:
    """The sequence with a value put before a place, or at the end."""
    at = _index(position, len(sequence), 1)
    return [*sequence[:at], value, *sequence[at:]]


@operator("SequenceErase", 11)
def sequence_erase(sequence: Sequence, position: Host | None = None) -> Outputs:
    """The sequence without the value at a place, or without the last."""
    at = _index(position, len(sequence))
    return [*sequence[:at], *sequence[at + 1 :]]


@operator("ConcatFromSequence", 11)
def concat_from_sequence(sequence: Sequence, *, axis: int, new_axis: int = 0) -> Outputs:
    """The values of a sequence one after the other along an axis, or along a new one."""
    if new_axis:
        return _stack(sequence, axis)
    return concat(*sequence, axis=axis)


@operator("SplitToSequence", 11)
def split_to_sequence(x: Any, split_sizes: Host | None = None, *, axis: int = 0, keepdims: int = 1) -> Outputs:
    """Parts of a tensor along an axis as a sequence."""
    at = axis_of(axis, x.ndim)
    size = x.shape[at]
    if split_sizes is None:
        parts = _parts(x, (1,) * size, at)
        return parts if keepdims else [squeeze(part, np.array([at])) for part in parts]
    if split_sizes.ndim == 0:
        each = int(split_sizes)
        return _parts(x, tuple(min(each, size - start) for start in range(0, size, each)), at)
    return _parts(x, ints(split_sizes), at)


def _parts(x: Condition, sizes: Ints, axis: int) -> Sequence:
    if not sizes and not x.shape[axis]:
        return []  # no part of nothing
    return list(split(x, np.array(sizes, np.int64), axis=axis, outputs=len(sizes)))


# -- values that may be absent ---------------------------------------------------------------------------------------
@operator("Optional", 15)
def optional(x: object = None, *, type: object = None) -> Outputs:
    """A value that may be absent."""
    return x


@operator("OptionalHasElement", 15)
def optional_has_element(x: object = None) -> Outputs:
    """Returns whether the value is there."""
    return np.array(x is not None)


@operator("OptionalGetElement", 15)
def optional_get_element(x: object) -> Outputs:
    """The value.  Raises: OnnxError where it is absent."""
    if x is None:
        raise OnnxError(
            "OptionalGetElement: there is no value",
            given="an optional value that is absent",
            expected="one that is there",
            mend="give the model this input",
        )
    return x
