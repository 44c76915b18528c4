"""Defines what recurrent layers share: all input products in one matrix product, and the loop over the steps of time.

Inside, time is the first axis: the products of one step then lie side by side in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, DTypeError, ShapeError
from burn_torch.core.spec import Shape
from burn_torch.module import Content, Module
from burn_torch.nn._layer import range_on_host, require_ndim
from burn_torch.nn.gate_controller import GateController
from burn_torch.nn.linear import Linear
from burn_torch.tensor import Tensor, functional
from burn_torch.tensor.apply import apply
from burn_torch.transform import scan
from burn_torch.transform.rolling import Recurrence, roller_of

__all__ = [
    "S",
    "as_operator",
    "batch_of",
    "cell_step",
    "gate_sizes",
    "hidden_start",
    "input_products",
    "joined",
    "parts",
    "require_state",
    "unroll",
]

S = TypeVar("S", Tensor, tuple[Tensor, Tensor])


def joined(layers: Sequence[Linear]) -> tuple[Tensor, Tensor | None]:
    """Weights and biases of layers of one input side by side: one product computes them all."""
    weights = [layer.weight.val() for layer in layers]
    biases = [layer.bias.val() for layer in layers if layer.bias is not None]
    if len(layers) == 1:
        return weights[0], biases[0] if biases else None
    return Tensor.cat(weights, 1), Tensor.cat(biases, 0) if biases else None


def batch_of(layer: Module, x: Tensor, batch_first: bool) -> int:
    """The size of the batch.  Raises: ShapeError unless x has three axes."""
    require_ndim(x, layer, "(batch, seq, d_input)" if batch_first else "(seq, batch, d_input)")
    return x.shape[0 if batch_first else 1]


def parts(x: Tensor, sizes: tuple[int, ...], dim: int) -> tuple[Tensor, ...]:
    """Consecutive parts along an axis, with one `cat` as their common gradient."""
    pieces: tuple[Tensor, ...] = apply(ops.split, (x,), sizes, dim)
    return pieces


def input_products(layer: Module, x: Tensor, gates: Sequence[GateController], batch_first: bool) -> list[Tensor]:
    """For each step of time what all gates make of its input.

    Shapes: x (batch, seq, d_input), or (seq, batch, d_input) -> seq times (batch, gates * d_hidden).
    """
    batch = batch_of(layer, x, batch_first)
    timed = x.swap_dims(0, 1) if batch_first else x
    seq, _, d_input = timed.shape
    weight, bias = joined([gate.input_transform for gate in gates])
    return _steps(functional.linear(timed.reshape((seq * batch, d_input)), weight, bias), seq, batch)


def _steps(products: Tensor, seq: int, batch: int) -> list[Tensor]:
    # in two levels: the gradient of a split is derived for each of its parts, so seq parts at once cost seq * seq
    if seq == 0:
        return []
    group = math.isqrt(seq)
    whole, rest = divmod(seq, group)
    counts = (group,) * whole + ((rest,) if rest else ())
    blocks = parts(products, tuple([count * batch for count in counts]), 0)
    return [step for block, count in zip(blocks, counts, strict=True) for step in parts(block, (batch,) * count, 0)]


def unroll(
    layer: Any,
    x: Tensor,
    gates: Sequence[GateController],
    step: Callable[[Tensor, S], tuple[Tensor, S]],
    start: Callable[[tuple[int, int]], S],
    lengths: Tensor | None = None,
) -> tuple[Tensor, S]:
    """Runs `step` over the steps of time: (products, state) -> (output, state), from `start((batch, d_hidden))` on.

    lengths     how many steps each sequence has: the others give zeros and leave the state as it is

    Returns: the outputs in the order of the inputs, (batch, seq, d_hidden) or (seq, batch, d_hidden), and the state
    after the step that was computed last.  No steps give an empty output.
    """
    sizes: tuple[int, int] = (batch_of(layer, x, layer.batch_first), layer.d_hidden)
    if roller_of(x) is not None:
        return _roll(layer, x, gates, step, start(sizes), lengths)
    products = input_products(layer, x, gates, layer.batch_first)
    padded = [None] * len(products) if lengths is None else _padding(layer, lengths, len(products), sizes[0])
    state, outputs = start(sizes), []
    for product, mask in zip(
        *(map(reversed, (products, padded)) if layer.reverse else (products, padded)), strict=True
    ):
        output, after = step(product, state)
        outputs.append(output if mask is None else output.mask_fill(mask, 0.0))
        state = after if mask is None else _hold_padded(after, state, mask)
    if layer.reverse:
        outputs.reverse()
    joint = Tensor.cat(outputs, 0).reshape((len(outputs), *sizes)) if outputs else x.new_full((0, *sizes), 0.0)
    return joint.swap_dims(0, 1) if layer.batch_first else joint, state


def _padding(layer: Module, lengths: Tensor, seq: int, batch: int) -> list[Tensor]:
    """For each step of time where it is beyond the length of a sequence, (batch, 1)."""
    _require_lengths(layer, lengths, seq, batch)
    return _steps(_beyond(lengths, seq, batch), seq, batch) if seq else []


def _beyond(lengths: Tensor, seq: int, batch: int) -> Tensor:
    steps = Tensor.arange(seq, lengths.device.no_grad()).cast(lengths.dtype).reshape((seq, 1))
    return steps.greater_equal(lengths.reshape((1, batch))).reshape((seq * batch, 1))


def _require_lengths(layer: Module, lengths: Tensor, seq: int, batch: int) -> None:
    """Raises: DTypeError, ShapeError, ArgumentError unless lengths are numbers of steps, one a sequence."""
    name = type(layer).__name__
    if not lengths.dtype.is_int:
        raise DTypeError(
            f"{name}: the lengths are no whole numbers",
            given=f"lengths {lengths.spec}",
            expected="integers, one number of steps for each sequence",
            mend="cast them with lengths.int()",
        )
    if lengths.shape != (batch,):
        raise ShapeError(
            f"{name}: the lengths do not fit the batch",
            given=f"lengths {lengths.spec}",
            expected=f"({batch},), one number of steps for each sequence",
            mend="count the steps of each sequence before they are padded",
        )
    bounds = range_on_host(lengths)
    if bounds is not None and (bounds[0] < 0 or bounds[1] > seq):
        raise ArgumentError(
            f"{name}: a length is no number of steps",
            given=f"lengths from {bounds[0]:g} to {bounds[1]:g}, {seq} steps",
            expected=f"0 to {seq}",
            mend="count the steps of each sequence before they are padded",
        )


def _hold_padded(after: S, before: S, mask: Tensor) -> S:
    """The state after a step, and that before it where the mask is true."""
    if isinstance(after, tuple):
        return after[0].mask_where(mask, before[0]), after[1].mask_where(mask, before[1])
    return after.mask_where(mask, before)


def _roll(
    layer: Any,
    x: Tensor,
    gates: Sequence[GateController],
    step: Callable[[Tensor, S], tuple[Tensor, S]],
    start: S,
    lengths: Tensor | None,
) -> tuple[Tensor, S]:
    """The same as one loop over the products of all steps."""

    def one(state: S, parts: tuple[Tensor, Tensor | None]) -> tuple[S, Tensor]:
        product, mask = parts
        output, after = step(product, state)
        return (after, output) if mask is None else (_hold_padded(after, state, mask), output.mask_fill(mask, 0.0))

    timed = x.swap_dims(0, 1) if layer.batch_first else x
    seq, batch, _ = timed.shape
    weight, bias = joined([gate.input_transform for gate in gates])
    beyond = None
    if lengths is not None:
        _require_lengths(layer, lengths, seq, batch)
        beyond = _beyond(lengths, seq, batch).reshape((seq, batch, 1))
    state, outputs = scan(one, start, (functional.linear(timed, weight, bias), beyond), reverse=layer.reverse)
    return outputs.swap_dims(0, 1) if layer.batch_first else outputs, state


_NAMED: Final = frozenset({"Relu", "Sigmoid", "Softsign", "Tanh"})
"""Activations without settings that operators of recurrent layers have too."""


def as_operator(
    kind: str,
    layers: Sequence[Any],
    gates: Callable[[Any], Sequence[GateController | None]],
    activations: Sequence[str],
    x: Tensor,
    states: Sequence[Tensor | None],
    lengths: Tensor | None,
    *,
    after: bool = False,
) -> tuple[Tensor, list[Tensor]] | None:
    """One layer, or one and its reverse, as one operator; None unless what is traced has one that computes the same.

    gates        of a layer, in the order of the operator; None for one that is coupled to the first
    activations  the fields of a layer that hold them, in the order of the operator
    states       (batch, d_hidden), or (2, batch, d_hidden) of two layers; None for zeros
    lengths      as `unroll` takes them

    Returns: outputs (seq, batch, directions * d_hidden) or batch first, and the last states like the first ones.
    """
    known = [state for state in states if state is not None]
    roller = roller_of(x, *known, *([] if lengths is None else [lengths]))
    names = [type(getattr(layer, name)).__name__ for layer in layers for name in activations]
    if roller is None or x.dtype is not DType.F32 or not _NAMED.issuperset(names):
        return None  # runtimes have recurrent operators of f32 alone
    if any(layer.clip is not None for layer in layers):
        return None  # operators clip what goes into the gates
    first, both = layers[0], len(layers) == 2
    shape = (batch_of(first, x, first.batch_first), first.d_hidden)
    for state in known:
        require_state(first, "hidden", state, (2, *shape) if both else shape)
    starts = [state if state is None or both else state.unsqueeze_dim(0) for state in states]
    blocks = [[_gate_blocks(gate, gates(layer)[0]) for gate in gates(layer)] for layer in layers]
    w, r, *biases = (
        Tensor.stack([Tensor.cat([gate[i] for gate in own], 0) for own in blocks], 0) for i in range(len(blocks[0][0]))
    )
    how = Recurrence(
        kind,
        first.d_hidden,
        "bidirectional" if both else "reverse" if first.reverse else "forward",
        tuple(names),
        after,
        any(gate is None for gate in gates(first)),
    )
    timed = x.swap_dims(0, 1) if first.batch_first else x
    if lengths is not None:
        _require_lengths(first, lengths, timed.shape[0], shape[0])
    y, *last = roller.recurrent(how, timed, w, r, Tensor.cat(biases, 1) if biases else None, starts, lengths)
    if lengths is not None:  # the operator gives zeros for a sequence without steps
        empty = lengths.equal(0).reshape((1, shape[0], 1))
        pairs = zip(last, starts, strict=True)
        last = [after if start is None else after.mask_where(empty, start) for after, start in pairs]
    last = last if both else [state.squeeze_dim(0) for state in last]
    seq, directions, batch, d_hidden = y.shape
    y = y.permute(0, 2, 1, 3).reshape((seq, batch, directions * d_hidden))
    return y.swap_dims(0, 1) if first.batch_first else y, last


def _gate_blocks(gate: GateController | None, like: GateController | None) -> list[Tensor]:
    """The rows of a gate in the weights of inputs and of states, and in their biases; zeros for one that is coupled."""
    if gate is None:
        return [block.zeros_like() for block in _gate_blocks(like, like)]
    linears = (gate.input_transform, gate.hidden_transform)
    biases = [linear.bias.val() for linear in linears if linear.bias is not None]
    return [*(linear.weight.val().transpose() for linear in linears), *biases]


def cell_step(
    cell: Module,
    d_hidden: int,
    x: Tensor,
    gates: Sequence[GateController],
    step: Callable[[Tensor, S], tuple[Tensor, S]],
    start: Callable[[tuple[int, int]], S],
) -> S:
    """The state after one step of time.  Shapes: x (batch, d_input)."""
    require_ndim(x, cell, "(batch, d_input)")
    weight, bias = joined([gate.input_transform for gate in gates])
    return step(functional.linear(x, weight, bias), start((x.shape[0], d_hidden)))[1]


def hidden_start(layer: Module, x: Tensor, state: Tensor | None) -> Callable[[tuple[int, int]], Tensor]:
    """The start of `unroll`: the hidden state that the caller gives, or zeros."""

    def start(sizes: tuple[int, int]) -> Tensor:
        if state is None:
            return x.new_full(sizes, 0.0)
        require_state(layer, "hidden", state, sizes)
        return state

    return start


def require_state(layer: Module, name: str, state: Tensor, shape: Shape) -> None:
    """Raises: ShapeError unless a state that the caller gives has this shape."""
    if state.shape != shape:
        raise ShapeError(
            f"{type(layer).__name__}: the {name} state does not fit the input",
            given=f"{name} {state.spec}",
            expected=f"{name} {shape}",
            mend="pass the state that a call with this batch returned, or None for zeros",
        )


def gate_sizes(gate: GateController, d_hidden: int, content: Content) -> Content:
    """Returns what Burn shows of a recurrent layer."""
    transform = gate.input_transform
    content.add("d_input", transform.weight.shape[0]).add("d_hidden", d_hidden)
    return content.add("bias", transform.bias is not None)
