"""Functions of tensors that tests fuse: written once over the table, on values of any backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from burn_torch.core.dtype import DType
from burn_torch.core.spec import FLOAT_NUMBER, INT_NUMBER, Spec, TensorSpec
from burn_torch.graph.ir import Graph
from burn_torch.graph.trace import Trace
from burn_torch.ops.op import REGISTRY


def row(name: str) -> Any:
    return REGISTRY[name]


def tensor(*shape: int, dtype: DType = DType.F32, place: str = "cpu") -> TensorSpec:
    return TensorSpec.of(shape, dtype, place)


def traced(function: Callable[..., Any], specs: Sequence[Spec]) -> Graph:
    trace = Trace()
    output = function(*[trace.input(spec) for spec in specs])
    return trace.graph(list(output) if isinstance(output, tuple) else [output]).dense()


def gelu(x: Any) -> Any:
    """GELU from primitives, as the README of Burn writes it."""
    return x * (row("erf")(x / 1.4142135623730951) + 1.0) / 2.0


def chain12(x: Any, y: Any) -> Any:
    """Twelve element-wise operations."""
    z = row("tanh")(x * y + 0.5) - row("sigmoid")(y)
    z = row("exp")(row("neg")(row("abs")(z))) * x + row("relu")(y)
    return row("sqrt")(z * z + 1.0)


def softmax(x: Any) -> Any:
    return row("softmax")(x * 0.5, dim=1)


def layer_norm(x: Any, gamma: Any, beta: Any, eps: Any) -> Any:
    y, _, _ = row("layer_norm")(x * 2.0, gamma, beta, eps)
    return y


def dropout_residual_norm(x: Any, y: Any, gamma: Any, beta: Any, eps: Any, key: Any, stream: Any) -> Any:
    h = y + row("dropout")(x, 0.1, key, stream)
    normed, _, _ = row("layer_norm")(h, gamma, beta, eps)
    return normed, h


def norm_backward(g: Any, x: Any, mean: Any, rstd: Any, gamma: Any) -> Any:
    return row("layer_norm_backward")(g * 2.0, x, mean, rstd, gamma)


def bias_gradient(g: Any, x: Any) -> Any:
    h = row("relu_backward")(g, x)
    return h, row("sum_to_shape")(h, shape=(x.shape[-1],))


def rotated(x: Any, cosine: Any, sine: Any) -> Any:
    """Half of the columns turned by the other half."""
    half = x.shape[-1] // 2
    a, b = row("split")(x, sizes=(half, half), dim=1)
    return a * cosine - b * sine, b * cosine + a * sine


def rotary(x: Any, cos: Any, sin: Any) -> Any:
    """Rotary embedding with halves that change sides, as most write it."""
    half = x.shape[1] // 2
    left, right = row("split")(x, sizes=(half, half), dim=1)
    return x * cos + row("cat")(row("neg")(right), left, dim=1) * sin


def joined(x: Any, y: Any, z: Any) -> Any:
    """The gradient of a split, and what the bias below it gets."""
    g = row("cat")(row("relu")(x), y * z, z + 1.0, dim=1)
    return g, row("sum")(g, dims=(0,))


def surrounded(x: Any) -> Any:
    """A padded border, and a softmax over it."""
    return row("softmax")(row("pad")(x * 2.0, 1.5, padding=((1, 0), (2, 3)), mode="constant"), dim=1)


def assigned(x: Any, y: Any) -> Any:
    """A range of columns that is written to."""
    rows, cols = x.shape
    left = row("slice")(y, ranges=((0, rows, 1), (0, cols // 2, 1)))
    right = ((0, rows, 1), (cols // 2, cols // 2 * 2, 1))
    return row("slice_assign")(x * 2.0, row("abs")(left), ranges=right) + 1.0


ROWS, COLS = 6, 10
MATRIX, VECTOR, COLUMN = tensor(ROWS, COLS), tensor(COLS), tensor(ROWS, 1)

PROGRAMS: dict[str, tuple[Callable[..., Any], list[Spec], int]] = {
    "gelu": (gelu, [MATRIX], 1),
    "chain12": (chain12, [MATRIX, MATRIX], 1),
    "softmax": (softmax, [MATRIX], 1),
    "layer_norm": (layer_norm, [MATRIX, VECTOR, VECTOR, FLOAT_NUMBER], 1),
    "dropout_residual_norm": (
        dropout_residual_norm,
        [MATRIX, MATRIX, VECTOR, VECTOR, FLOAT_NUMBER, INT_NUMBER, INT_NUMBER],
        1,
    ),
    "norm_backward": (norm_backward, [MATRIX, MATRIX, COLUMN, COLUMN, VECTOR], 1),
    "bias_gradient": (bias_gradient, [MATRIX, MATRIX], 1),
    "rotary": (rotary, [MATRIX, MATRIX, MATRIX], 1),
    "joined": (joined, [MATRIX, MATRIX, MATRIX], 1),
    "surrounded": (surrounded, [MATRIX], 1),
    "assigned": (assigned, [MATRIX, MATRIX], 1),
    "rotated": (rotated, [MATRIX, tensor(ROWS, COLS // 2), tensor(ROWS, COLS // 2)], 1),
}
"""Each function, its inputs, and how many kernels it is."""
