"""The rival in JAX for single operations, in a process of its own.  Needs jax and numpy alone.

    python jax_worker.py FILE      FILE holds a list of operations: {"name", "function", "shapes", "dtype", "graded"}

It answers one line of JSON a line of input.  {"time": [name, "fb"], "calls": 20}: milliseconds of a call, of so many in
a queue, whose tensors are larger than any cache; forward and backward are one jitted function.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax  # type: ignore[import-not-found]  # optional
import jax.numpy as jnp  # type: ignore[import-not-found]

EPSILON, PROB = 1e-5, 0.1


def gelu(key: Any, x: Any) -> Any:
    return x * (1 + jax.lax.erf(x / jnp.sqrt(jnp.asarray(2, x.dtype)))) / 2


def chain12(key: Any, x: Any, bias: Any, scale: Any, residual: Any) -> Any:
    y = jax.nn.sigmoid(x + bias) * scale
    y = jnp.tanh(y) + residual
    return jnp.clip(y * y - y * 0.5, -2.0, 2.0) + jnp.exp(-jnp.abs(y))


def dropout_residual_norm(key: Any, x: Any, residual: Any, gamma: Any, beta: Any) -> Any:
    kept = jax.random.bernoulli(key, 1 - PROB, x.shape)
    h = residual + jnp.where(kept, x / (1 - PROB), 0).astype(x.dtype)
    wide = h.astype(jnp.float32)
    centred = wide - wide.mean(-1, keepdims=True)
    y = centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + EPSILON)
    return (y * gamma + beta).astype(x.dtype), h


def batch_norm_relu(key: Any, x: Any, gamma: Any, beta: Any) -> Any:
    wide, axes = x.astype(jnp.float32), (0, *range(2, x.ndim))
    beside = (1, -1, *(1 for _ in range(x.ndim - 2)))
    centred = wide - wide.mean(axes, keepdims=True)
    y = centred * jax.lax.rsqrt((centred**2).mean(axes, keepdims=True) + EPSILON)
    return jax.nn.relu(y * gamma.reshape(beside) + beta.reshape(beside)).astype(x.dtype)


FUNCTIONS = {f.__name__: f for f in (gelu, chain12, dropout_residual_norm, batch_norm_relu)}


class Worker:
    """The operations, each compiled when it is first asked for."""

    def __init__(self, operations: list[dict[str, Any]]) -> None:
        self.operations = {operation["name"]: operation for operation in operations}
        self.name = ""
        self.inputs: list[Any] = []

    def milliseconds(self, name: str, passed: str, calls: int) -> float:
        """Returns the time of one call out of `calls` in a queue."""
        operation = self.operations[name]
        if self.name != name:  # the memory of one operation at a time
            self.name, keys = name, jax.random.split(jax.random.key(0), len(operation["shapes"]))
            shapes = [tuple(shape) for shape in operation["shapes"]]
            drawn = zip(keys, shapes, strict=True)
            self.inputs = [jax.random.normal(k, s).astype(operation["dtype"]) for k, s in drawn]
        run = self.call(FUNCTIONS[operation["function"]], operation["graded"], passed)
        for _ in range(3):
            jax.block_until_ready(run())
        begun, outputs = time.perf_counter(), None
        for _ in range(calls):
            outputs = run()
        jax.block_until_ready(outputs)
        return 1e3 * (time.perf_counter() - begun) / calls

    def call(self, function: Any, graded: list[int], passed: str) -> Any:
        """The jitted function on its inputs; forward and backward as one."""
        key = jax.random.key(1)
        if passed == "f":
            return partial(jax.jit(function), key, *self.inputs)
        upstream = jax.tree_util.tree_map(jnp.ones_like, jax.jit(function)(key, *self.inputs))

        def both(upstream: Any, *inputs: Any) -> Any:
            def of_leaves(*leaves: Any) -> Any:
                mixed = list(inputs)
                for i, x in zip(graded, leaves, strict=True):
                    mixed[i] = x
                return function(key, *mixed)

            y, pull = jax.vjp(of_leaves, *[inputs[i] for i in graded])
            return y, pull(upstream)

        return partial(jax.jit(both), upstream, *self.inputs)


def main() -> None:
    worker = Worker(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    print(json.dumps({"ready": jax.__version__, "device": str(jax.devices()[0])}), flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            name, passed = question["time"]
            answer: dict[str, Any] = {"ms": worker.milliseconds(name, passed, question["calls"])}
        except Exception as error:  # an operation that fails is a finding
            answer = {"error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
