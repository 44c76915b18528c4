"""LSTM, GRU, RNN: loops over time, one matrix product for all inputs and one a step for the state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.onnx.operators.axes import constant, full, malformed, reshaped
from burn_torch.onnx.operators.elementwise import softplus, softsign
from burn_torch.onnx.operators.indexing import reverse_sequence
from burn_torch.onnx.operators.registry import Attributes, Host, Outputs, operator
from burn_torch.tensor import Tensor
from burn_torch.transform import rolling
from burn_torch.transform.rolling import roller_of

__all__ = ["gru", "lstm", "rnn"]

Activation: TypeAlias = Callable[[Tensor], Tensor]

_PLAIN: Final[dict[str, Activation]] = {
    "sigmoid": ops.sigmoid,
    "tanh": ops.tanh,
    "relu": ops.relu,
    "softsign": softsign.function,
    "softplus": softplus.function,
}
_WITH_ALPHA: Final[dict[str, tuple[float, Callable[[Tensor, float], Tensor]]]] = {
    "leakyrelu": (0.01, ops.leaky_relu),
    "thresholdedrelu": (1.0, ops.thresholded_relu),
    "elu": (1.0, ops.elu),
}
"""Functions of x and alpha, with the default of alpha."""
_WITH_BOTH: Final[dict[str, tuple[float, float, Callable[[Tensor, float, float], Tensor]]]] = {
    "hardsigmoid": (0.2, 0.5, ops.hard_sigmoid),
    "affine": (1.0, 0.0, lambda x, alpha, beta: x * alpha + beta),
    "scaledtanh": (1.0, 1.0, lambda x, alpha, beta: (x * beta).tanh() * alpha),
}
"""Functions of x, alpha and beta, with the defaults of alpha and beta."""


@dataclass(frozen=True, kw_only=True)
class Recurrence(Attributes):
    """Attributes of recurrent layers."""

    activation_alpha: tuple[float, ...] | None = None
    activation_beta: tuple[float, ...] | None = None
    activations: tuple[str, ...] | None = None
    clip: float | None = None
    direction: str = "forward"
    hidden_size: int | None = None
    layout: int = 0

    def ways(self, w: Tensor) -> list[bool]:
        """For each direction whether it reads from the end."""
        ways = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}.get(self.direction)
        if ways is None or len(ways) != w.shape[0]:
            raise malformed(
                "the weights do not fit the direction",
                given=f"direction {self.direction!r}, weights for {w.shape[0]}",
                expected="forward, reverse or bidirectional, with one part of the weights each",
            )
        return ways

    def functions(self, defaults: tuple[str, ...], w: Tensor) -> list[list[Activation]]:
        """The activations of each direction, in the order of the attributes; `clip` is not applied."""
        directions = len(self.ways(w))
        chosen = list(self.activations) if self.activations else list(defaults) * directions
        if len(chosen) != len(defaults) * directions:
            raise malformed(
                "not as many activations as there are gates",
                given=f"{chosen}",
                expected=f"{len(defaults)} for each of {directions} directions",
            )
        alphas, betas = iter(self.activation_alpha or ()), iter(self.activation_beta or ())
        functions = [_activation(name, alphas, betas) for name in chosen]
        n = len(defaults)
        return [functions[i * n : (i + 1) * n] for i in range(directions)]

    def clipped(self, function: Activation) -> Activation:
        """A function of values that are clipped before."""
        clip = self.clip
        return function if clip is None else lambda x: function(ops.clamp(x, -clip, clip))


def _activation(name: str, alphas: Iterator[float], betas: Iterator[float]) -> Activation:
    """The function of this name, which takes the next alpha and beta if it has any."""
    word = name.lower()
    if word in _WITH_ALPHA:
        a, function = _WITH_ALPHA[word]
        alpha = next(alphas, a)
        return lambda x: function(x, alpha)
    if word in _WITH_BOTH:
        a, b, function_of_both = _WITH_BOTH[word]
        alpha, beta = next(alphas, a), next(betas, b)
        return lambda x: function_of_both(x, alpha, beta)
    if word not in _PLAIN:
        known = sorted((*_PLAIN, *_WITH_ALPHA, *_WITH_BOTH))
        raise malformed("no such activation", given=repr(name), expected=", ".join(known))
    return _PLAIN[word]


def _part(x: Tensor, direction: int) -> Tensor:
    return reshaped(x.narrow(0, direction, 1), x.shape[1:])


Step: TypeAlias = Callable[[Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]]
Products: TypeAlias = Callable[[Tensor, int], Tensor]
"""The product of a tensor and the weights of a direction."""


def _run(
    x: Tensor, step: Step, states: tuple[Tensor, ...], lens: Host | None, backwards: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """All hidden states (steps, batch, hidden) and the last ones; past its length a sample's state stays.

    The last state of a sample of no steps is 0, as in onnxruntime.
    """
    steps, batch = x.shape[:2]

    def turned(x: Tensor) -> Tensor:
        if not backwards:
            return x
        return ops.flip(x, axes=(0,)) if lens is None else reverse_sequence(x, lens, batch_axis=1, time_axis=0)

    x = turned(x)
    roller = roller_of(x, *states) if lens is None else None
    if roller is not None:

        def roll(before: tuple[Tensor, ...], part: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
            after = step(part, before)
            return after, after[0]

        last, y = roller.scan(roll, states, x, 0, steps, False)
        return turned(y), last
    seen: list[Tensor] = []
    for t in range(steps):
        new = step(reshaped(x.narrow(0, t, 1), x.shape[1:]), states)
        if lens is None or (t < np.asarray(lens)).all():
            hidden = new[0]
        else:
            over = constant((t >= np.asarray(lens)).reshape(batch, 1), x.device, DType.BOOL)
            new = tuple(ops.mask_where(fresh, over, old) for fresh, old in zip(new, states, strict=True))
            hidden = ops.mask_where(new[0], over, full((), 0.0, x))
        states = new
        seen.append(reshaped(hidden, (1, *hidden.shape)))
    if lens is not None and (np.asarray(lens) == 0).any():
        none = constant((np.asarray(lens) == 0).reshape(batch, 1), x.device, DType.BOOL)
        states = tuple(state.mask_fill(none, 0.0) for state in states)
    y = Tensor.cat(seen, 0) if seen else full((0, *states[0].shape), 0.0, x)
    return turned(y), states


def _join_directions(parts: list[tuple[Tensor, tuple[Tensor, ...]]], layout: int, outputs: int = 1) -> Outputs:
    """Y (steps, directions, batch, hidden) and the last states (directions, batch, hidden), or batch first."""
    y = Tensor.cat([reshaped(hidden, (hidden.shape[0], 1, *hidden.shape[1:])) for hidden, _ in parts], 1)
    last = [
        Tensor.cat([reshaped(states[i], (1, *states[i].shape)) for _, states in parts], 0)
        for i in range(len(parts[0][1]))
    ]
    if layout:
        y = ops.permute(y, axes=(2, 0, 1, 3))
        last = [ops.permute(state, axes=(1, 0, 2)) for state in last]
    return y if outputs == 1 else (y, *last)[:outputs]


def _recur(
    x: Tensor,
    w: Tensor,
    hidden: int,
    lens: Host | None,
    initial: Sequence[Tensor | None],
    how: Recurrence,
    cell: Callable[[Tensor, int], tuple[Tensor, Step]],
    outputs: int,
) -> Outputs:
    """All directions of a layer; `cell` gives the part of the gates that comes from the inputs, and a step."""
    if how.layout:
        x = ops.permute(x, axes=(1, 0, 2))
    ways = how.ways(w)

    def start(state: Tensor | None) -> Tensor:
        if state is None:
            return full((len(ways), x.shape[1], hidden), 0.0, x)
        return ops.permute(state, axes=(1, 0, 2)) if how.layout else state

    starts = [start(state) for state in initial]
    parts = [
        _run(*cell(x, i), tuple(_part(start, i) for start in starts), lens, backwards)
        for i, backwards in enumerate(ways)
    ]
    return _join_directions(parts, how.layout, outputs)


def _add_biases(y: Tensor, b: Tensor | None, i: int) -> Tensor:
    """Products of the inputs of a direction, and both of its biases: of the inputs, and of the state."""
    if b is None:
        return y
    both, width = _part(b, i), y.shape[-1]
    return y + (both.narrow(0, 0, width) + both.narrow(0, width, width))


def _roll(
    how: Recurrence,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None,
    states: Sequence[Tensor | None],
    defaults: tuple[str, ...],
    outputs: int,
    **more: bool,
) -> Outputs | None:
    """The layer as one node, where what is traced is exported again and a node has all that it needs; else None."""
    roller = roller_of(x, w, r)
    names = how.activations or defaults * len(how.ways(w))
    plain = how.clip is None and not how.activation_alpha and not how.activation_beta and not how.layout
    if roller is None or x.dtype is not DType.F32 or not plain or not _ALONE.issuperset(names):
        return None
    kind = {3: "LSTM", 2: "GRU", 1: "RNN"}[len(defaults)]
    own = rolling.Recurrence(kind, r.shape[-1], how.direction, tuple(names), **more)
    results = roller.recurrent(own, x, w, r, b, states, None)
    return results[0] if outputs == 1 else tuple(results[:outputs])


_ALONE: Final = frozenset({"Relu", "Sigmoid", "Softsign", "Tanh"})
"""Activations without numbers."""


@operator("LSTM", 7)
def lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Host | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    p: Tensor | None = None,
    *,
    input_forget: int = 0,
    how: Recurrence,
    outputs: int = 1,
) -> Outputs:
    """Long short-term memory; gates in the order input, output, forget, cell.  `clip` bounds them, and not the cell.

    The standard lets open whether the cell is clipped before h; onnxruntime, whose numbers models rely on, does not.
    """
    states = (initial_h, initial_c)
    if p is None and sequence_lens is None:
        rolled = _roll(how, x, w, r, b, states, ("Sigmoid", "Tanh", "Tanh"), outputs, coupled=bool(input_forget))
        if rolled is not None:
            return rolled
    products = _plain_products(w), _plain_products(r)
    return lstm_with(products, x, w, r.shape[-1], b, sequence_lens, states, p, input_forget, how, outputs)


def _plain_products(w: Tensor) -> Products:
    """Products with the weights of each direction."""
    turned = [_part(w, i).transpose() for i in range(w.shape[0])]
    return lambda x, i: ops.matmul(x, turned[i])


def lstm_with(
    products: tuple[Products, Products],
    x: Tensor,
    w: Tensor,
    hidden: int,
    b: Tensor | None,
    sequence_lens: Host | None,
    initial: tuple[Tensor | None, Tensor | None],
    p: Tensor | None,
    input_forget: int,
    how: Recurrence,
    outputs: int,
) -> Outputs:
    """LSTM; `products` compute those with the weights of inputs and of states, for each direction."""
    functions = how.functions(("Sigmoid", "Tanh", "Tanh"), w)

    def cell(x: Tensor, i: int) -> tuple[Tensor, Step]:
        f, g, h = how.clipped(functions[i][0]), how.clipped(functions[i][1]), functions[i][2]
        peep = None if p is None else [_part(p, i).narrow(0, k * hidden, hidden) for k in range(3)]

        def step(gate: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            hidden_state, cell = states
            total = gate + products[1](hidden_state, i)
            i_t, o_t, f_t, c_t = (total.narrow(1, k * hidden, hidden) for k in range(4))
            if peep is not None:
                i_t, f_t = i_t + peep[0] * cell, f_t + peep[2] * cell
            i_t = f(i_t)
            f_t = 1.0 - i_t if input_forget else f(f_t)
            cell = f_t * cell + i_t * g(c_t)
            if peep is not None:
                o_t = o_t + peep[1] * cell
            return f(o_t) * h(cell), cell

        return _add_biases(products[0](x, i), b, i), step

    return _recur(x, w, hidden, sequence_lens, initial, how, cell, outputs)


@operator("GRU", 7)
def gru(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Host | None = None,
    initial_h: Tensor | None = None,
    *,
    linear_before_reset: int = 0,
    how: Recurrence,
    outputs: int = 1,
) -> Outputs:
    """Gated recurrent unit; gates in the order update, reset, hidden."""
    if sequence_lens is None:
        after = bool(linear_before_reset)
        rolled = _roll(how, x, w, r, b, [initial_h], ("Sigmoid", "Tanh"), outputs, after=after)
        if rolled is not None:
            return rolled
    hidden = r.shape[-1]
    functions = how.functions(("Sigmoid", "Tanh"), w)

    def cell(x: Tensor, i: int) -> tuple[Tensor, Step]:
        f, g = map(how.clipped, functions[i])
        inputs = ops.matmul(x, _part(w, i).transpose())
        recurrent = _part(r, i).transpose()
        reset_to = recurrent.narrow(1, 2 * hidden, hidden)
        weights = recurrent.narrow(1, 0, 2 * hidden)
        own = full((3 * hidden,), 0.0, x)
        if b is not None:
            inputs = inputs + _part(b, i).narrow(0, 0, 3 * hidden)
            own = _part(b, i).narrow(0, 3 * hidden, 3 * hidden)

        def step(gate: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            (state,) = states
            both = gate.narrow(1, 0, 2 * hidden) + ops.matmul(state, weights) + own.narrow(0, 0, 2 * hidden)
            z, reset = f(both.narrow(1, 0, hidden)), f(both.narrow(1, hidden, hidden))
            new, bias = gate.narrow(1, 2 * hidden, hidden), own.narrow(0, 2 * hidden, hidden)
            if linear_before_reset:
                fresh = g(new + reset * (ops.matmul(state, reset_to) + bias))
            else:
                fresh = g(new + ops.matmul(reset * state, reset_to) + bias)
            return ((1.0 - z) * fresh + z * state,)

        return inputs, step

    return _recur(x, w, r.shape[-1], sequence_lens, (initial_h,), how, cell, outputs)


@operator("RNN", 7)
def rnn(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Host | None = None,
    initial_h: Tensor | None = None,
    *,
    how: Recurrence,
    outputs: int = 1,
) -> Outputs:
    """Elman's network: h = f(x @ w^T + h @ r^T + b)."""
    if sequence_lens is None:
        rolled = _roll(how, x, w, r, b, [initial_h], ("Tanh",), outputs)
        if rolled is not None:
            return rolled
    functions = how.functions(("Tanh",), w)

    def cell(x: Tensor, i: int) -> tuple[Tensor, Step]:
        f, recurrent = how.clipped(functions[i][0]), _part(r, i).transpose()
        return _add_biases(_plain_products(w)(x, i), b, i), lambda gate, states: (
            f(gate + ops.matmul(states[0], recurrent)),
        )

    return _recur(x, w, r.shape[-1], sequence_lens, (initial_h,), how, cell, outputs)
