"""JAX as a rival of single operations, in a process of its own.  Needs jax and numpy alone.

    python jax_worker.py FILE      FILE holds a list of tasks:
    {"name": "softmax 8192x4096 f", "function": "softmax", "inputs": [[[8192, 4096], "bfloat16", 0]], "graded": [0],
     "options": {}}

An input is [shape, type, limit]: normal numbers, or whole ones below the limit.  Where `graded` is not empty, forward
and backward are one function, but the upstream gradients come after the outputs, as in a program that has more layers.
All tasks are compiled at once, in threads.  It answers a line of JSON by one:
{"settle": seconds}: waits until all are compiled; what has not begun by then is given up.
{"time": name, "calls": 20}: milliseconds of a call, of so many in a queue, each behind one that overwrites the L2
cache and whose time is taken off; the median of some queues.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

import jax  # type: ignore[import-not-found]  # optional
import jax.numpy as jnp  # type: ignore[import-not-found]

EPSILON, QUEUES, COMPILERS = 1e-5, 5, 8
FLUSHED = 128 << 20
"""Whole numbers of 32 bits, which are more than any cache."""
Array = Any


def wide(x: Array) -> Array:
    return x.astype(jnp.float32)


# -- rows ----------------------------------------------------------------------------------------------
def softmax(x: Array) -> Array:
    return jax.nn.softmax(wide(x), -1).astype(x.dtype)


def normalized(x: Array, *, centred: bool) -> Array:
    x = wide(x)
    x = x - x.mean(-1, keepdims=True) if centred else x
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + EPSILON)


def layer_norm(x: Array, w: Array, b: Array) -> Array:
    return (normalized(x, centred=True) * w + b).astype(x.dtype)


def rms_norm(x: Array, w: Array) -> Array:
    return (normalized(x, centred=False) * w).astype(x.dtype)


def dropped(x: Array, prob: float) -> Array:
    if not prob:
        return x
    kept = jax.random.bernoulli(jax.random.key(1), 1 - prob, x.shape)
    return jnp.where(kept, x / (1 - prob), 0).astype(x.dtype)


def residual_layer_norm(x: Array, residual: Array, w: Array, b: Array, *, prob: float = 0.0) -> Array:
    s = residual + dropped(x, prob)
    return layer_norm(s, w, b), s


def residual_rms_norm(x: Array, residual: Array, w: Array, *, prob: float = 0.0) -> Array:
    s = residual + dropped(x, prob)
    return rms_norm(s, w), s


def cross_entropy(x: Array, targets: Array) -> Array:
    x = wide(x)
    return (jax.nn.logsumexp(x, -1) - jnp.take_along_axis(x, targets[:, None], -1)[:, 0]).mean()


def linear_cross_entropy(x: Array, w: Array, targets: Array) -> Array:
    return cross_entropy(x @ w.T, targets)


def gelu(x: Array) -> Array:
    return jax.nn.gelu(x, approximate=False)


ACTS: dict[str, Callable[[Array], Array]] = {
    "none": lambda x: x,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "gelu": gelu,
    "gelu_tanh": jax.nn.gelu,
}


def swiglu(gate: Array, up: Array) -> Array:
    return jax.nn.silu(gate) * up


def geglu(gate: Array, up: Array) -> Array:
    return gelu(gate) * up


def linear(x: Array, w: Array, b: Array, *, kind: str) -> Array:
    return ACTS[kind](x @ w.T + b)


def dropout(x: Array, *, prob: float) -> Array:
    return dropped(x, prob)


def rope(q: Array, k: Array) -> Array:
    half = q.shape[-1] // 2
    angle = jnp.arange(q.shape[1])[:, None] * 10_000.0 ** (-jnp.arange(half) / half)
    cos, sin = (f(angle)[None, :, None] for f in (jnp.cos, jnp.sin))

    def turned(x: Array) -> Array:
        left, right = wide(x[..., :half]), wide(x[..., half:])
        return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], -1).astype(x.dtype)

    return turned(q), turned(k)


def reduction(x: Array, *, kind: str, dim: list[int] | int | None) -> Array:
    axes = tuple(dim) if isinstance(dim, list) else dim
    if kind.startswith("arg"):
        return getattr(jnp, kind)(x, axis=axes)
    names = {"amax": "max", "amin": "min"}
    if kind == "logsumexp":
        return jax.nn.logsumexp(wide(x), axis=axes).astype(x.dtype)
    more = {"ddof": 1} if kind == "var" else {}
    return getattr(jnp, names.get(kind, kind))(wide(x), axis=axes, **more).astype(x.dtype)


def embedding_backward(dy: Array, indices: Array, *, rows: int) -> Array:
    return jnp.zeros((rows, dy.shape[-1]), dy.dtype).at[indices].add(dy)


# -- sequences and images ------------------------------------------------------------------------------
def attention(q: Array, k: Array, v: Array, *bias: Array, causal: bool = False, gpu: bool = True) -> Array:
    more = {"implementation": "cudnn"} if gpu else {}
    return jax.nn.dot_product_attention(q, k, v, *bias, is_causal=causal, **more)


def over(v: Array, dims: int, last: bool) -> Array:
    return v if last else v.reshape(1, -1, *(1 for _ in range(dims - 2)))


def batch_norm(x: Array, w: Array, b: Array, *, activation: str, last: bool) -> Array:
    axes = tuple(range(x.ndim - 1)) if last else (0, *range(2, x.ndim))
    y = wide(x)
    y = y - y.mean(axes, keepdims=True)
    y = y * jax.lax.rsqrt((y * y).mean(axes, keepdims=True) + EPSILON)
    return ACTS[activation](y * over(w, x.ndim, last) + over(b, x.ndim, last)).astype(x.dtype)


def group_norm(x: Array, w: Array, b: Array, *, groups: int, activation: str) -> Array:
    y = normalized(x.reshape(x.shape[0], groups, -1), centred=True).reshape(x.shape)
    return ACTS[activation](y * over(w, x.ndim, False) + over(b, x.ndim, False)).astype(x.dtype)


def convolution(
    x: Array,
    w: Array,
    b: Array,
    *,
    stride: int = 1,
    padding: int = 0,
    groups: int = 1,
    relu: bool = False,
    pool: str = "",
) -> Array:
    y = jax.lax.conv_general_dilated(
        x, w, (stride, stride), [(padding, padding)] * 2, feature_group_count=groups
    ) + over(b, 4, False)
    y = jax.nn.relu(y) if relu else y
    if pool == "max":
        y = jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    return y


# -- many tensors --------------------------------------------------------------------------------------
def adamw(*tensors: Array, lr: float = 1e-4, decay: float = 0.01, step: int = 100) -> Array:
    count = len(tensors) // 4
    found = []
    for p, g, m, s in zip(*(tensors[i * count : (i + 1) * count] for i in range(4)), strict=True):
        mean, square = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g * g
        root = jnp.sqrt(square / (1 - 0.999**step)) + 1e-8
        found.append((p * (1 - lr * decay) - lr * mean / (1 - 0.9**step) / root, mean, square))
    return found


def lion(*tensors: Array, lr: float = 1e-4, decay: float = 0.0) -> Array:
    count = len(tensors) // 3
    found = []
    for p, g, m in zip(*(tensors[i * count : (i + 1) * count] for i in range(3)), strict=True):
        found.append((p * (1 - lr * decay) - lr * jnp.sign(0.9 * m + 0.1 * g), 0.99 * m + 0.01 * g))
    return found


def tensor_norm(*tensors: Array) -> Array:
    norm = jnp.sqrt(sum(jnp.vdot(x, x) for x in tensors))
    return norm, jnp.minimum(1.0, 1.0 / (norm + 1e-6))


FUNCTIONS: dict[str, Callable[..., Array]] = {
    f.__name__: f
    for f in (softmax, layer_norm, rms_norm, residual_layer_norm, residual_rms_norm, cross_entropy, dropout,
              linear_cross_entropy, gelu, swiglu, geglu, linear, rope, reduction, embedding_backward, attention,
              batch_norm, group_norm, convolution, adamw, lion, tensor_norm)
}  # fmt: skip


# -- the worker ----------------------------------------------------------------------------------------
class Worker:
    """The tasks, each compiled in a thread."""

    def __init__(self, tasks: list[dict[str, Any]]) -> None:
        self.tasks = {task["name"]: task for task in tasks}
        pool = ThreadPoolExecutor(min(COMPILERS, len(tasks) or 1))
        self.compiled: dict[str, Future[Any]] = {name: pool.submit(self.compile, name) for name in self.tasks}

    def specs(self, name: str) -> list[Any]:
        """What the inputs are, the upstream gradients behind them."""
        task = self.tasks[name]
        inputs = [jax.ShapeDtypeStruct(tuple(shape), dtype) for shape, dtype, _ in task["inputs"]]
        if not task["graded"]:
            return inputs
        return [*inputs, *jax.tree_util.tree_leaves(jax.eval_shape(self.function(name), *inputs))]

    def function(self, name: str) -> Callable[..., Any]:
        """The function with its options."""
        task = self.tasks[name]
        return partial(FUNCTIONS[task["function"]], **task["options"])

    def compile(self, name: str) -> Any:
        """The forward, or forward and backward as one."""
        task, function = self.tasks[name], self.function(name)
        count, graded = len(task["inputs"]), task["graded"]

        def both(*given: Any) -> Any:
            inputs, upstream = list(given[:count]), given[count:]

            def of_leaves(*leaves: Any) -> Any:
                mixed = list(inputs)
                for at, x in zip(graded, leaves, strict=True):
                    mixed[at] = x
                return function(*mixed)

            y, pull = jax.vjp(of_leaves, *(inputs[at] for at in graded))
            # y is handed out too, as by the others: or the compiler leaves the forward away where no gradient needs it.
            # And gradients exist when y does, not before: or it computes both in one pass over the inputs, which no
            # program with a layer behind this one could
            upstream = jax.lax.optimization_barrier((*upstream, *jax.tree_util.tree_leaves(y)))[: len(upstream)]
            return y, pull(jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(y), upstream))

        return jax.jit(both if graded else function).lower(*self.specs(name)).compile()

    def settle(self, patience_s: float) -> int:
        """Waits for what is compiled; how many are."""
        ended = time.monotonic() + patience_s
        for future in self.compiled.values():
            with contextlib.suppress(Exception):  # told of where it is timed
                future.result(max(0.0, ended - time.monotonic()))
        for future in self.compiled.values():
            future.cancel()
        wait([future for future in self.compiled.values() if future.running()])
        return sum(
            future.done() and not future.cancelled() and future.exception() is None for future in self.compiled.values()
        )

    def milliseconds(self, name: str, calls: int) -> float:
        """Of a call, of `calls` in a queue, from a cold cache: the median of some queues."""
        future = self.compiled.pop(name)
        if future.cancelled():
            raise TimeoutError("it was not compiled in time")
        run, given = future.result(), self.inputs(name)
        old = jnp.zeros(1 if jax.default_backend() == "cpu" else FLUSHED, jnp.int32)
        flush = jax.jit(lambda old: old + 1, donate_argnums=0)
        old = flush(old)
        for _ in range(2):
            jax.block_until_ready(run(*given))

        def queue(old: Any, *, alone: bool) -> tuple[float, Any]:
            jax.block_until_ready(old)
            begun, found = time.perf_counter(), None
            for _ in range(calls):
                old = flush(old)
                found = None if alone else run(*given)
            jax.block_until_ready((old, found))
            return 1e3 * (time.perf_counter() - begun) / calls, old

        took = []
        for _ in range(QUEUES):
            both, old = queue(old, alone=False)
            alone, old = queue(old, alone=True)
            took.append(both - alone)
        return statistics.median(took)

    def inputs(self, name: str) -> list[Any]:
        """Drawn numbers."""
        specs = self.specs(name)
        keys = jax.random.split(jax.random.key(0), len(specs))
        limits = [limit for _, _, limit in self.tasks[name]["inputs"]] + [0] * len(specs)
        return [
            jax.random.randint(key, spec.shape, 0, limit, spec.dtype) if limit
            else jax.random.normal(key, spec.shape, jnp.float32).astype(spec.dtype)
            for key, spec, limit in zip(keys, specs, limits, strict=False)
        ]  # fmt: skip


def main() -> None:
    worker = Worker(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    print(json.dumps({"ready": jax.__version__, "device": str(jax.devices()[0])}), flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            if "settle" in question:
                answer: dict[str, Any] = {"ready": worker.settle(question["settle"])}
            else:
                answer = {"ms": worker.milliseconds(question["time"], question["calls"])}
        except Exception as error:  # a task that fails is a finding
            answer = {"error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
