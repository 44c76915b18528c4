"""LSTM, GRU, RNN: loops over time, one matrix product for all inputs and one a step for the state."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.onnx.operators.axes import constant, full, malformed, reshaped
from burn_torch.onnx.operators.indexing import reverse_sequence
from burn_torch.onnx.operators.registry import Host, Outputs, operator
from burn_torch.tensor import Tensor

__all__ = ["gru", "lstm", "rnn"]

Activation = Callable[[Tensor], Tensor]


def _activation(name: str, alpha: float | None, beta: float | None) -> Activation:
    def with_defaults(a: float, b: float) -> tuple[float, float]:
        return (a if alpha is None else alpha), (b if beta is None else beta)

    kinds: dict[str, Callable[[], Activation]] = {
        "sigmoid": lambda: ops.sigmoid,
        "tanh": lambda: ops.tanh,
        "relu": lambda: ops.relu,
        "softsign": lambda: lambda x: x / (x.abs() + 1.0),
        "softplus": lambda: lambda x: ops.softplus(x, 1.0),
        "leakyrelu": lambda: lambda x: ops.leaky_relu(x, with_defaults(0.01, 0.0)[0]),
        "thresholdedrelu": lambda: lambda x: ops.thresholded_relu(x, with_defaults(1.0, 0.0)[0]),
        "elu": lambda: lambda x: ops.elu(x, with_defaults(1.0, 0.0)[0]),
        "hardsigmoid": lambda: lambda x: ops.hard_sigmoid(x, *with_defaults(0.2, 0.5)),
        "affine": lambda: lambda x: x * with_defaults(1.0, 0.0)[0] + with_defaults(1.0, 0.0)[1],
        "scaledtanh": lambda: lambda x: (x * with_defaults(1.0, 1.0)[1]).tanh() * with_defaults(1.0, 1.0)[0],
    }
    make = kinds.get(name.lower())
    if make is None:
        raise malformed("no such activation", given=repr(name), expected=", ".join(sorted(kinds)))
    return make()


_WITH_ALPHA = {"leakyrelu", "thresholdedrelu", "elu", "hardsigmoid", "affine", "scaledtanh"}
_WITH_BETA = {"hardsigmoid", "affine", "scaledtanh"}


def _activations(
    names: Sequence[str] | None,
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    defaults: tuple[str, ...],
    directions: int,
    clip: float | None,
) -> list[list[Activation]]:
    """The functions of each direction, in the order of the attributes."""
    chosen = list(names) if names else list(defaults) * directions
    if len(chosen) != len(defaults) * directions:
        raise malformed(
            "not as many activations as there are gates",
            given=f"{chosen}",
            expected=f"{len(defaults)} for each of {directions} directions",
        )
    a, b = iter(alphas or ()), iter(betas or ())
    functions: list[Activation] = []
    for name in chosen:
        alpha = next(a, None) if name.lower() in _WITH_ALPHA else None
        beta = next(b, None) if name.lower() in _WITH_BETA else None
        plain = _activation(name, alpha, beta)
        functions.append(plain if clip is None else _clip(plain, clip))
    n = len(defaults)
    return [functions[i * n : (i + 1) * n] for i in range(directions)]


def _clip(function: Activation, clip: float) -> Activation:
    return lambda x: function(ops.clamp(x, -clip, clip))


def _part(x: Tensor, direction: int) -> Tensor:
    return reshaped(x.narrow(0, direction, 1), x.shape[1:])


Step = Callable[[Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]]


def _run(
    x: Tensor, step: Step, states: tuple[Tensor, ...], lens: Host | None, backwards: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """All hidden states (steps, batch, hidden) and the last ones; past its length a sample's state stays.

    The last state of a sample of no steps is 0, as in onnxruntime.
    """
    steps, batch = x.shape[:2]
    if backwards:
        x = ops.flip(x, axes=(0,)) if lens is None else reverse_sequence(x, lens, batch_axis=1, time_axis=0)
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
    if backwards:
        y = ops.flip(y, axes=(0,)) if lens is None else reverse_sequence(y, lens, batch_axis=1, time_axis=0)
    return y, states


def _directions(direction: str, w: Tensor) -> list[bool]:
    """For each direction whether it reads from the end."""
    ways = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}.get(direction)
    if ways is None or len(ways) != w.shape[0]:
        raise malformed(
            "the weights do not fit the direction",
            given=f"direction {direction!r}, weights for {w.shape[0]}",
            expected="forward, reverse or bidirectional, with one part of the weights each",
        )
    return ways


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


def _start(initial: Tensor | None, layout: int, shape: tuple[int, ...], like: Tensor) -> Tensor:
    if initial is None:
        return full(shape, 0.0, like)
    return ops.permute(initial, axes=(1, 0, 2)) if layout else initial


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
    activation_alpha: tuple[float, ...] | None = None,
    activation_beta: tuple[float, ...] | None = None,
    activations: tuple[str, ...] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
    outputs: int = 1,
) -> Outputs:
    """Long short-term memory; gates in the order input, output, forget, cell.  `clip` bounds them, and not the cell.

    The standard lets open whether the cell is clipped before h; onnxruntime, whose numbers models rely on, does not.
    """
    if layout:
        x = ops.permute(x, axes=(1, 0, 2))
    ways = _directions(direction, w)
    hidden = r.shape[-1]
    chosen = (activations, activation_alpha, activation_beta, ("Sigmoid", "Tanh", "Tanh"), len(ways))
    functions, plain = _activations(*chosen, clip), _activations(*chosen, None)
    shape = (len(ways), x.shape[1], hidden)
    h0, c0 = _start(initial_h, layout, shape, x), _start(initial_c, layout, shape, x)
    parts = []
    for i, backwards in enumerate(ways):
        f, g, h = *functions[i][:2], plain[i][2]
        recurrent = _part(r, i).transpose()
        gates = ops.matmul(x, _part(w, i).transpose())
        if b is not None:
            both = _part(b, i)
            gates = gates + (both.narrow(0, 0, 4 * hidden) + both.narrow(0, 4 * hidden, 4 * hidden))
        peep = None if p is None else [_part(p, i).narrow(0, k * hidden, hidden) for k in range(3)]

        def step(
            gate: Tensor,
            states: tuple[Tensor, ...],
            recurrent: Tensor = recurrent,
            peep: list[Tensor] | None = peep,
            f: Activation = f,
            g: Activation = g,
            h: Activation = h,
        ) -> tuple[Tensor, ...]:
            hidden_state, cell = states
            total = gate + ops.matmul(hidden_state, recurrent)
            i_t, o_t, f_t, c_t = (total.narrow(1, k * hidden, hidden) for k in range(4))
            if peep is not None:
                i_t, f_t = i_t + peep[0] * cell, f_t + peep[2] * cell
            i_t = f(i_t)
            f_t = 1.0 - i_t if input_forget else f(f_t)
            cell = f_t * cell + i_t * g(c_t)
            if peep is not None:
                o_t = o_t + peep[1] * cell
            return f(o_t) * h(cell), cell

        parts.append(_run(gates, step, (_part(h0, i), _part(c0, i)), sequence_lens, backwards))
    return _join_directions(parts, layout, outputs)


@operator("GRU", 7)
def gru(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Host | None = None,
    initial_h: Tensor | None = None,
    *,
    activation_alpha: tuple[float, ...] | None = None,
    activation_beta: tuple[float, ...] | None = None,
    activations: tuple[str, ...] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
    outputs: int = 1,
) -> Outputs:
    """Gated recurrent unit; gates in the order update, reset, hidden."""
    if layout:
        x = ops.permute(x, axes=(1, 0, 2))
    ways = _directions(direction, w)
    hidden = r.shape[-1]
    functions = _activations(activations, activation_alpha, activation_beta, ("Sigmoid", "Tanh"), len(ways), clip)
    h0 = _start(initial_h, layout, (len(ways), x.shape[1], hidden), x)
    parts = []
    for i, backwards in enumerate(ways):
        f, g = functions[i]
        inputs = ops.matmul(x, _part(w, i).transpose())
        recurrent = _part(r, i).transpose()
        reset_to = recurrent.narrow(1, 2 * hidden, hidden)
        gate_weights = recurrent.narrow(1, 0, 2 * hidden)
        own = full((3 * hidden,), 0.0, x)
        if b is not None:
            inputs = inputs + _part(b, i).narrow(0, 0, 3 * hidden)
            own = _part(b, i).narrow(0, 3 * hidden, 3 * hidden)

        def step(
            gate: Tensor,
            states: tuple[Tensor, ...],
            weights: Tensor = gate_weights,
            reset_to: Tensor = reset_to,
            own: Tensor = own,
            f: Activation = f,
            g: Activation = g,
        ) -> tuple[Tensor, ...]:
            (state,) = states
            both = gate.narrow(1, 0, 2 * hidden) + ops.matmul(state, weights) + own.narrow(0, 0, 2 * hidden)
            z, reset = f(both.narrow(1, 0, hidden)), f(both.narrow(1, hidden, hidden))
            new, bias = gate.narrow(1, 2 * hidden, hidden), own.narrow(0, 2 * hidden, hidden)
            if linear_before_reset:
                fresh = g(new + reset * (ops.matmul(state, reset_to) + bias))
            else:
                fresh = g(new + ops.matmul(reset * state, reset_to) + bias)
            return ((1.0 - z) * fresh + z * state,)

        parts.append(_run(inputs, step, (_part(h0, i),), sequence_lens, backwards))
    return _join_directions(parts, layout, outputs)


@operator("RNN", 7)
def rnn(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Host | None = None,
    initial_h: Tensor | None = None,
    *,
    activation_alpha: tuple[float, ...] | None = None,
    activation_beta: tuple[float, ...] | None = None,
    activations: tuple[str, ...] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    outputs: int = 1,
) -> Outputs:
    """Elman's network: h = f(x @ w^T + h @ r^T + b)."""
    if layout:
        x = ops.permute(x, axes=(1, 0, 2))
    ways = _directions(direction, w)
    hidden = r.shape[-1]
    functions = _activations(activations, activation_alpha, activation_beta, ("Tanh",), len(ways), clip)
    h0 = _start(initial_h, layout, (len(ways), x.shape[1], hidden), x)
    parts = []
    for i, backwards in enumerate(ways):
        (f,) = functions[i]
        inputs = ops.matmul(x, _part(w, i).transpose())
        if b is not None:
            both = _part(b, i)
            inputs = inputs + (both.narrow(0, 0, hidden) + both.narrow(0, hidden, hidden))

        recurrent = _part(r, i).transpose()

        def step(
            gate: Tensor, states: tuple[Tensor, ...], recurrent: Tensor = recurrent, f: Activation = f
        ) -> tuple[Tensor, ...]:
            return (f(gate + ops.matmul(states[0], recurrent)),)

        parts.append(_run(inputs, step, (_part(h0, i),), sequence_lens, backwards))
    return _join_directions(parts, layout, outputs)
