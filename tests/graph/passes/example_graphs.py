"""Training steps as graphs: what the passes are for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from burn_torch import ops
from burn_torch.backend.autodiff.decorator import Autodiff
from burn_torch.core.dtype import DType
from burn_torch.core.spec import FLOAT_NUMBER, INT_NUMBER, Shape, TensorSpec
from burn_torch.graph import Graph, Trace
from burn_torch.ops import Value

Forward = Callable[..., Value]


def training_step(
    forward: Forward, shapes: Sequence[Shape], batch: Sequence[TensorSpec], *, grouped: bool = False
) -> tuple[Graph, tuple[int, ...]]:
    """One step of Adam on `forward(parameters, batch, key) -> loss`, and the positions that it may overwrite.

    Inputs: parameters, first moments, second moments, the batch, rate, step and key.  Outputs: the loss, then new
    parameters and moments.  Each parameter is updated by a call of its own, unless `grouped`.
    """
    trace = Trace()
    tape = Autodiff.over(trace)
    specs = [TensorSpec.of(shape, DType.F32, "cpu") for shape in shapes]
    parameters, means, squares = [[trace.input(s) for s in specs] for _ in range(3)]
    data = [trace.input(s) for s in batch]
    rate, time, key = trace.input(FLOAT_NUMBER), trace.input(INT_NUMBER), trace.input(INT_NUMBER)
    tracked = [Value(tape, tape.track(p.primitive, p.spec), p.spec) for p in parameters]
    loss = forward(tracked, [Value(tape, x.primitive, x.spec) for x in data], key)
    ones = ops.full.run(tape, Value, (1.0,), {"shape": loss.shape, "dtype": DType.F32, "place": "cpu"})
    slots = tape.backward([(loss.primitive, ones.primitive)])
    gradients = [Value(trace, slots[t.primitive.node.id], t.spec) for t in tracked]
    numbers = (rate, 0.9, 0.999, 1e-8, 0.0, 0.0, time)
    settings = {"amsgrad": False, "cautious": False}
    new: list[Value]
    if grouped:
        new = list(ops.adam_update(*numbers, *parameters, *gradients, *means, *squares, **settings))
    else:
        each = zip(parameters, gradients, means, squares, strict=True)
        updated = [ops.adam_update(*numbers, *tensors, **settings) for tensors in each]
        new = [u[kind] for kind in range(3) for u in updated]
    outputs = [Value(trace, tape.unwrapped(loss.primitive), loss.spec), *new]
    return trace.graph(outputs), tuple(range(3 * len(shapes)))


def mnist_step(batch: int) -> tuple[Graph, tuple[int, ...]]:
    """A step of a small convolutional network with dropout on (batch, 1, 28, 28)."""

    def forward(p: Sequence[Value], data: Sequence[Value], key: Value) -> Value:
        images, labels = data
        settings: dict[str, Any] = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}
        x = ops.relu(ops.conv(images, p[0], p[1], **settings))
        x = ops.relu(ops.conv(x, p[2], p[3], **settings))
        pool: dict[str, Any] = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1)}
        x = ops.max_pool_with_indices(x, ceil_mode=False, **pool)[0]
        x = ops.dropout(x, 0.25, key, 1)
        x = ops.reshape(x, shape=(batch, math.prod(x.shape[1:])))
        x = ops.dropout(ops.relu(ops.linear(x, p[4], p[5])), 0.5, key, 2)
        losses = ops.cross_entropy(ops.linear(x, p[6], p[7]), labels, None, 0.0, pad_tokens=())
        loss: Value = ops.mean(losses, dims=(0,))
        return loss

    shapes = [(8, 1, 3, 3), (8,), (16, 8, 3, 3), (16,), (16 * 144, 32), (32,), (32, 10), (10,)]
    images = TensorSpec.of((batch, 1, 28, 28), DType.F32, "cpu")
    labels = TensorSpec.of((batch,), DType.I64, "cpu")
    return training_step(forward, shapes, [images, labels])


def deep_mlp(layers: int, width: int = 32, batch: int = 16) -> tuple[Graph, tuple[int, ...]]:
    """A step of a multi-layer perceptron with GELU, a scale and a mean squared error."""

    def forward(p: Sequence[Value], data: Sequence[Value], key: Value) -> Value:
        x, y = data
        for i in range(layers):
            x = ops.gelu(ops.linear(x, p[2 * i], p[2 * i + 1])) * 1.5
        loss: Value = ops.mean(ops.pow(x - y, 2), dims=(0, 1))
        return loss

    shapes = [(width, width), (width,)] * layers
    tensors = TensorSpec.of((batch, width), DType.F32, "cpu")
    return training_step(forward, shapes, [tensors, tensors])
