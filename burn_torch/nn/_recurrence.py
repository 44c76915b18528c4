"""Defines what recurrent layers share: all input products in one matrix product, and the loop over the steps of time.

Inside, time is the first axis: the products of one step then lie side by side in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from burn_torch import ops
from burn_torch.core.errors import ShapeError
from burn_torch.core.spec import Shape
from burn_torch.module import Content, Module
from burn_torch.nn._layer import require_ndim
from burn_torch.nn.gate_controller import GateController
from burn_torch.nn.linear import Linear
from burn_torch.tensor import Tensor, functional
from burn_torch.tensor.apply import apply

__all__ = ["S", "batch_of", "gate_sizes", "input_products", "joined", "parts", "require_state", "unroll"]

S = TypeVar("S")


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
) -> tuple[Tensor, S]:
    """Runs `step` over the steps of time: (products, state) -> (output, state), from `start((batch, d_hidden))` on.

    Returns: the outputs in the order of the inputs, (batch, seq, d_hidden) or (seq, batch, d_hidden), and the state
    after the step that was computed last.  No steps give an empty output.
    """
    products = input_products(layer, x, gates, layer.batch_first)
    sizes = (batch_of(layer, x, layer.batch_first), layer.d_hidden)
    state, outputs = start(sizes), []
    for product in reversed(products) if layer.reverse else products:
        output, state = step(product, state)
        outputs.append(output)
    if layer.reverse:
        outputs.reverse()
    joint = Tensor.cat(outputs, 0).reshape((len(outputs), *sizes)) if outputs else x.new_full((0, *sizes), 0.0)
    return joint.swap_dims(0, 1) if layer.batch_first else joint, state


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
