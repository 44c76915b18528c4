"""Scans over lattices whose states move a few places a step: forward-backward algorithms as rows.

A state s of step d is reached from the states s, s - 1, ..., s - moves + 1 of the step before.  `log_band_scan` adds up
the weights of all paths in logarithms; its gradient is `band_scan`, which is linear and its own gradient, so both have
derivatives of any order.  CTC and the transducer loss are such lattices.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from burn_torch.core.dtype import FLOAT
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.comparison import equal
from burn_torch.ops.faults import shape_fault
from burn_torch.ops.functions import exp
from burn_torch.ops.moments import in_float32
from burn_torch.ops.op import Candidate, op
from burn_torch.ops.reductions import logsumexp, sum
from burn_torch.ops.rules import same_dtype
from burn_torch.ops.samples import Array, sample, uniform
from burn_torch.ops.selection import mask_where
from burn_torch.ops.shapes import flip, reshape
from burn_torch.ops.slicing import cat, narrow, pad
from burn_torch.ops.value import Value

_SHAPES = ((2, 4, 3, 5), (1, 3, 2, 4), (3, 1, 1, 2), (2, 2, 3, 1), (2, 0, 2, 3), (0, 2, 2, 3))
"""The weights of samples: (batch, steps, moves, states)."""


# -- shifted states --------------------------------------------------------------------------------------------
def _reached_from(y: Value, moves: int, fill: float) -> Value:
    """(batch, steps, states) -> (batch, steps, moves, states): for each state those that it is reached from."""
    batch, steps, states = y.shape
    shifted = []
    for move in range(moves):
        kept = max(states - move, 0)
        part = narrow(y, 2, 0, kept) if kept < states else y
        if kept < states:
            part = pad(part, fill, padding=((0, 0), (0, 0), (states - kept, 0)), mode="constant")
        shifted.append(reshape(part, shape=(batch, steps, 1, states)))
    return cat(*shifted, dim=2) if moves > 1 else shifted[0]


def sum_ahead(g: Value, factors: Value) -> Value:
    """The transpose of `band_scan` in its first input: G[d, s] = g[d, s] + sum over m of factors[d, m, s + m] G[d + 1].

    Shapes: g (batch, steps + 1, states), factors (batch, steps, moves, states) -> that of g.
    """
    batch, steps, moves, states = factors.shape
    turned = []
    for move in range(moves):
        part = reshape(narrow(factors, 2, move, move + 1), shape=(batch, steps, states))
        kept = max(states - move, 0)
        if kept < states:
            part = narrow(part, 2, states - kept, states)
            part = pad(part, 0.0, padding=((0, 0), (0, 0), (0, states - kept)), mode="constant")
        turned.append(reshape(part, shape=(batch, steps, 1, states)))
    ahead = cat(*turned, dim=2) if moves > 1 else turned[0]
    return flip(band_scan(flip(g, axes=(1, 2)), flip(ahead, axes=(1, 3))), axes=(1, 2))


def shares(y: Value, weights: Value) -> Value:
    """How much of each state comes by each move: exp(y[d - 1, s - m] + weights[d, m, s] - y[d, s]), 0 at no path."""
    batch, steps, moves, states = weights.shape
    before = _reached_from(narrow(y, 1, 0, steps), moves, -math.inf)
    after = reshape(narrow(y, 1, 1, steps + 1), shape=(batch, steps, 1, states))
    unreached = equal(after, -math.inf)
    return exp(before + weights - mask_where(after, unreached, 0.0))


def _step_by_step(first: Value, weights: Value, step: Candidate, fill: float) -> Value:
    """The states of all steps; `step(d, before, weights)` makes those behind step d of (batch, 1, moves, states)."""
    batch, steps, moves, states = weights.shape
    rows = [reshape(first, shape=(batch, 1, states))]
    for d in range(steps):
        after = step(d, _reached_from(rows[-1], moves, fill), narrow(weights, 1, d, d + 1))
        rows.append(reshape(after, shape=(batch, 1, states)))
    return cat(*rows, dim=1) if steps else rows[0]


# -- linear --------------------------------------------------------------------------------------------------------
def _torch_band_scan(x: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    batch, steps, moves, states = factors.shape
    y = x.new_zeros((batch, steps + 1, states + moves - 1))  # moves - 1 states of nothing in front
    y[:, 0, moves - 1 :] = x[:, 0]
    for d in range(steps):
        before = y[:, d].unfold(1, states, 1).flip(1)  # (batch, moves, states), no move first
        y[:, d + 1, moves - 1 :] = (before * factors[:, d]).sum(1).add_(x[:, d + 1])
    return y[..., moves - 1 :].contiguous()


def _numpy_band_scan(x: Array, factors: Array) -> Array:
    batch, steps, moves, states = factors.shape
    y = np.zeros((batch, steps + 1, states + moves - 1))
    y[:, 0, moves - 1 :] = x[:, 0]
    for d in range(steps):
        before = np.lib.stride_tricks.sliding_window_view(y[:, d], states, axis=1)[:, ::-1]
        y[:, d + 1, moves - 1 :] = (before * factors[:, d]).sum(1) + x[:, d + 1]
    return y[..., moves - 1 :].copy()


def _check(first: TensorSpec, weights: TensorSpec, name: str, axes: int) -> TensorSpec:
    same_dtype(first.require(FLOAT), weights)
    shape = (
        (weights.shape[0], *((weights.shape[1] + 1,) if axes == 3 else ()), weights.shape[3])
        if weights.ndim == 4
        else ()
    )
    if first.shape != shape or 0 in weights.shape[2:]:
        steps = ", steps + 1" if axes == 3 else ""
        raise shape_fault(
            f"{name} and the weights of moves do not fit together",
            expected=f"{name} (batch{steps}, states) and weights (batch, steps, moves, states), one move or more",
            mend="give each step of each sample a weight for each move into each state",
        )
    return first.with_shape((weights.shape[0], weights.shape[1] + 1, weights.shape[3]))


@op(
    torch=in_float32(lambda call: _torch_band_scan, everywhere=True),
    numpy=_numpy_band_scan,
    precision="high",
    samples=[
        sample(uniform(-1, 1, (batch, steps + 1, states)), uniform(-1, 1, (batch, steps, moves, states)))
        for batch, steps, moves, states in _SHAPES
    ],
)
def band_scan(x: TensorSpec, factors: TensorSpec) -> TensorSpec:
    """The linear recurrence y[d, s] = x[d, s] + sum over m of factors[d - 1, m, s] * y[d - 1, s - m], y[0] = x[0].

    States in front of the first count as 0, and so do their factors.

    Shapes: x (batch, steps + 1, states), factors (batch, steps, moves, states) -> that of x.
    Dtypes: float, both the same.  Half types compute in float32.  Deterministic.
    """
    return _check(x, factors, "x", 3)


@band_scan.gradient
def _(g, y, x, factors):
    steps, moves = factors.shape[1], factors.shape[2]
    ahead = sum_ahead(g, factors)
    batch, _, states = ahead.shape
    into = reshape(narrow(ahead, 1, 1, steps + 1), shape=(batch, steps, 1, states))
    return ahead, into * _reached_from(narrow(y, 1, 0, steps), moves, 0.0)


@band_scan.decomposes
def _(x, factors):
    def step(d: int, before: Value, weights: Value) -> Value:
        reached = sum(before * weights, dims=(2,))
        return reached + reshape(narrow(x, 1, d + 1, d + 2), shape=reached.shape)

    return _step_by_step(narrow(x, 1, 0, 1), factors, step, 0.0)


# -- in logarithms -------------------------------------------------------------------------------------------------
def _torch_log_band_scan(start: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    batch, steps, moves, states = weights.shape
    y = start.new_full((batch, steps + 1, states + moves - 1), -math.inf)
    y[:, 0, moves - 1 :] = start
    for d in range(steps):
        before = y[:, d].unfold(1, states, 1).flip(1)
        y[:, d + 1, moves - 1 :] = torch.logsumexp(before + weights[:, d], 1)
    return y[..., moves - 1 :].contiguous()


def _numpy_log_band_scan(start: Array, weights: Array) -> Array:
    batch, steps, moves, states = weights.shape
    y = np.full((batch, steps + 1, states + moves - 1), -np.inf)
    y[:, 0, moves - 1 :] = start
    for d in range(steps):
        before = np.lib.stride_tricks.sliding_window_view(y[:, d], states, axis=1)[:, ::-1]
        y[:, d + 1, moves - 1 :] = np.logaddexp.reduce(before + weights[:, d], axis=1)
    return y[..., moves - 1 :].copy()


@op(
    torch=in_float32(lambda call: _torch_log_band_scan, everywhere=True),
    numpy=_numpy_log_band_scan,
    precision="high",
    samples=[
        sample(uniform(-1, 1, (batch, states)), uniform(-1, 1, (batch, steps, moves, states)))
        for batch, steps, moves, states in _SHAPES
    ],
    source="Baum et al. 1970; Graves et al. 2006, section 4.1",
)
def log_band_scan(start: TensorSpec, weights: TensorSpec) -> TensorSpec:
    """Logarithms of the sums over all paths: y[d, s] = log(sum over m of exp(y[d - 1, s - m] + weights[d - 1, m, s])).

    y[0] is start.  -inf is a state that no path reaches, or a move that is not allowed; neither gets a gradient.

    Shapes: start (batch, states), weights (batch, steps, moves, states) -> (batch, steps + 1, states).
    Dtypes: float, both the same.  Half types compute in float32.  Deterministic.
    """
    return _check(start, weights, "start", 2)


@log_band_scan.gradient
def _(g, y, start, weights):
    batch, steps, _, states = weights.shape
    each = shares(y, weights)
    ahead = sum_ahead(g, each)
    into = reshape(narrow(ahead, 1, 1, steps + 1), shape=(batch, steps, 1, states))
    return reshape(narrow(ahead, 1, 0, 1), shape=(batch, states)), into * each


@log_band_scan.decomposes
def _(start, weights):
    return _step_by_step(start, weights, lambda d, before, weights: logsumexp(before + weights, dims=(2,)), -math.inf)
