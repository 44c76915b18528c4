"""Values on a tape, for tests below the level of Tensor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from burn_torch.backend.autodiff.decorator import Autodiff
from burn_torch.backend.autodiff.tape import Node
from burn_torch.backend.libtorch.leaf import LibTorch
from burn_torch.core.data import TensorData
from burn_torch.ops import Value

Array = NDArray[Any]

TORCH = LibTorch()
TAPE = Autodiff(TORCH)


def constant(data: Any, backend: Any = TAPE) -> Value:
    """An untracked float64 value."""
    held = TensorData.of(np.asarray(data, dtype=np.float64))
    primitive = backend.from_data(held, "cpu")
    return Value(backend, primitive, backend.spec(primitive))


def tracked(data: Any, tape: Autodiff = TAPE) -> Value:
    """A leaf of the tape."""
    held = constant(data, tape)
    return Value(tape, tape.track(held.primitive, held.spec), held.spec)


def backward(loss: Value, seed: Any = 1.0, *, retain_graph: bool = False) -> dict[int, Any]:
    """Gradients by leaf, from a seed that broadcasts to the loss."""
    tape = loss.backend
    assert isinstance(tape, Autodiff)
    data = np.broadcast_to(np.asarray(seed, dtype=np.float64), loss.shape).copy()
    root = tape.from_data(TensorData(data, loss.dtype), "cpu")
    return tape.backward([(loss.primitive, root)], retain_graph=retain_graph)


def of(gradients: dict[int, Any], leaf: Value) -> Array:
    """A leaf's gradient as an array."""
    tape = leaf.backend
    assert isinstance(tape, Autodiff)
    return np.asarray(tape.into_data(gradients[leaf.primitive.node.id]).array)


def nodes(value: Value) -> Iterator[Node]:
    """The nodes of a value's tape, leaves too, each once."""
    seen: dict[int, Node] = {}
    left = [value.primitive.node]
    while left:
        node = left.pop()
        if node.id not in seen:
            seen[node.id] = node
            left += [parent for parent, _ in node.edges]
    return iter(seen.values())
