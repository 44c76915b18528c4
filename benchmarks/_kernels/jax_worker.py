"""JAX as a rival of single operations, in a process of its own.  Needs jax and numpy alone.

    python jax_worker.py FILE      FILE holds a list of tasks (with --later nothing is compiled before it is asked for):
    {"name": "softmax 8192x4096 f", "function": "softmax", "inputs": [[[8192, 4096], "bfloat16", 0]], "graded": [0],
     "options": {}}

An input is [shape, type, limit]: normal numbers, or whole ones below the limit.  Where `graded` is not empty, a call is
the forward and then the backward, in the fastest of a few ways.  All tasks are compiled at once, in threads.  It
answers a line of JSON by one:
{"settle": seconds}: waits until all are compiled; what has not begun by then is given up.
{"time": name, "calls": 20}: milliseconds of a call, of so many in a queue, each behind one that overwrites the L2
cache and whose time is taken off; the median of some queues.
{"answer": name, "file": path}: runs it on the arrays of a file of numpy, of other sizes most likely, and writes what
each way to run it hands out, gradients behind outputs, over them.
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
import numpy as np

EPSILON, QUEUES, COMPILERS = 1e-5, 5, 8
FLUSHED = 128 << 20
"""Whole numbers of 32 bits, which are more than any cache."""
KEEPING = ("linear", "linear_cross_entropy", "attention", "convolution", "batch_norm", "group_norm")
"""Functions whose backward may be faster with what the forward knew."""
Array = Any
Runner = Callable[..., Any]


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
    updated = []
    for p, g, m, s in zip(*(tensors[i * count : (i + 1) * count] for i in range(4)), strict=True):
        mean, square = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g * g
        root = jnp.sqrt(square / (1 - 0.999**step)) + 1e-8
        updated.append((p * (1 - lr * decay) - lr * mean / (1 - 0.9**step) / root, mean, square))
    return updated


def lion(*tensors: Array, lr: float = 1e-4, decay: float = 0.0) -> Array:
    count = len(tensors) // 3
    updated = []
    for p, g, m in zip(*(tensors[i * count : (i + 1) * count] for i in range(3)), strict=True):
        updated.append((p * (1 - lr * decay) - lr * jnp.sign(0.9 * m + 0.1 * g), 0.99 * m + 0.01 * g))
    return updated


def norm_and_factor(*tensors: Array) -> Array:
    norm = jnp.sqrt(sum(jnp.vdot(x, x) for x in tensors))
    return norm, jnp.minimum(1.0, 1.0 / (norm + 1e-6))


FUNCTIONS: dict[str, Callable[..., Array]] = {
    f.__name__: f
    for f in (softmax, layer_norm, rms_norm, residual_layer_norm, residual_rms_norm, cross_entropy, dropout,
              linear_cross_entropy, gelu, swiglu, geglu, linear, rope, reduction, embedding_backward, attention,
              batch_norm, group_norm, convolution, adamw, lion, norm_and_factor)
}  # fmt: skip


# -- the worker ----------------------------------------------------------------------------------------
class Worker:
    """The tasks, and what was compiled of them."""

    def __init__(self, tasks: list[dict[str, Any]]) -> None:
        self.tasks = {task["name"]: task for task in tasks}
        self.compiled: dict[str, Future[Any]] = {}

    def begin(self) -> None:
        """Compiles all, in threads."""
        pool = ThreadPoolExecutor(min(COMPILERS, len(self.tasks) or 1))
        self.compiled = {name: pool.submit(self.compile, name) for name in self.tasks}

    def specs(self, name: str) -> list[Any]:
        """Returns what the inputs are, the upstream gradients behind them."""
        task = self.tasks[name]
        inputs = [jax.ShapeDtypeStruct(tuple(shape), dtype) for shape, dtype, _ in task["inputs"]]
        if not task["graded"]:
            return inputs
        return [*inputs, *jax.tree_util.tree_leaves(jax.eval_shape(self.function(name), *inputs))]

    def function(self, name: str) -> Callable[..., Any]:
        """The function with its options."""
        task = self.tasks[name]
        return partial(FUNCTIONS[task["function"]], **task["options"])

    def ways(self, name: str, specs: list[Any], prepare: Callable[..., Callable[..., Any]]) -> dict[str, Runner]:
        """How it can be run, on inputs with upstream gradients behind them.

        Compiled as one, the gradients would be computed in the forward's pass over the inputs, which no program with a
        layer behind this one could do.  So either the upstream gradients wait for the outputs within one program, or
        forward and backward are programs of their own, and the backward computes again what it needs, or the forward
        hands it out.  JAX shall have the best of them.

        prepare  makes a program that can be called of a function and what it will be called with
        """
        task, function = self.tasks[name], self.function(name)
        count, graded = len(task["inputs"]), task["graded"]
        inputs, upstream = specs[:count], specs[count:]
        if not graded:
            run = prepare(function, *inputs)
            return {"alone": run}

        def pulled(*given: Any) -> tuple[Any, Any]:
            def of_leaves(*leaves: Any) -> Any:
                mixed = list(given)
                for at, x in zip(graded, leaves, strict=True):
                    mixed[at] = x
                return function(*mixed)

            return tuple(jax.vjp(of_leaves, *(given[at] for at in graded)))

        outputs = jax.tree_util.tree_structure(jax.eval_shape(function, *inputs))

        def again(given: Any, upstream: Any) -> Any:
            return pulled(*given)[1](jax.tree_util.tree_unflatten(outputs, upstream))

        forward, backward = prepare(function, *inputs), prepare(again, inputs, upstream)
        runners: dict[str, Runner] = {
            "computed again": lambda *given: (
                forward(*given[:count]),
                backward(list(given[:count]), list(given[count:])),
            )
        }

        def waiting(*given: Any) -> Any:
            y, pull = pulled(*given[:count])
            leaves = jax.tree_util.tree_leaves(y)
            upstream = jax.lax.optimization_barrier((*given[count:], *leaves))[: len(leaves)]
            return y, pull(jax.tree_util.tree_unflatten(outputs, upstream))

        runners["waiting"] = prepare(waiting, *specs)
        if task["function"] in KEEPING:
            kept = self._keep_between(pulled, outputs, prepare, inputs, upstream)
            runners["kept"] = lambda *given: kept(given[:count], list(given[count:]))
        return runners

    @staticmethod
    def _keep_between(pulled: Any, outputs: Any, prepare: Any, inputs: Any, upstream: Any) -> Callable[..., Any]:
        """A forward that hands out what the backward needs, and that backward."""
        structure = list[Any]()

        def both(*given: Any) -> Any:
            y, pull = pulled(*given)
            leaves, tree = jax.tree_util.tree_flatten(pull)
            structure[:] = [tree]
            return y, leaves

        def backward(leaves: Any, upstream: Any) -> Any:
            return jax.tree_util.tree_unflatten(structure[0], leaves)(jax.tree_util.tree_unflatten(outputs, upstream))

        leaves = jax.eval_shape(both, *inputs)[1]
        first, second = prepare(both, *inputs), prepare(backward, leaves, upstream)

        def run(given: Any, upstream: Any) -> Any:
            y, leaves = first(*given)
            return y, second(leaves, upstream)

        return run

    def compile(self, name: str) -> dict[str, Runner]:
        """The programs for the inputs that are timed."""
        return self.ways(name, self.specs(name), lambda f, *specs: jax.jit(f).lower(*specs).compile())

    def answer(self, name: str, file: str) -> int:
        """Returns what it computes from the arrays of a file, each way, written over them; how many ways there are."""
        with np.load(file) as arrays:
            stored = [arrays[f"arr_{at}"] for at in range(len(arrays.files))]
        types = [spec.dtype for spec in self.specs(name)]
        inputs = [jnp.asarray(x).astype(t) for x, t in zip(stored, types, strict=True)]
        ways = self.ways(name, [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in inputs], lambda f, *_: jax.jit(f))
        results = [x for run in ways.values() for x in jax.tree_util.tree_leaves(run(*inputs))]
        np.savez(file, *(np.asarray(x.astype(jnp.float32)) for x in results))
        return len(ways)

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
        """Returns the time of one call out of `calls` in a queue, from a cold cache: the median of some queues."""
        future = self.compiled.pop(name)
        if future.cancelled():
            raise TimeoutError("it was not compiled in time")
        ways, inputs = future.result(), self.inputs(name)
        old = jnp.zeros(1 if jax.default_backend() == "cpu" else FLUSHED, jnp.int32)
        flush = jax.jit(lambda old: old + 1, donate_argnums=0)
        old = flush(old)

        def queue(old: Any, run: Runner | None) -> tuple[float, Any]:
            jax.block_until_ready(old)
            begun, output = time.perf_counter(), None
            for _ in range(calls):
                old = flush(old)
                output = None if run is None else run(*inputs)
            jax.block_until_ready((old, output))
            return 1e3 * (time.perf_counter() - begun) / calls, old

        medians = []
        for run in ways.values():
            for _ in range(2):
                jax.block_until_ready(run(*inputs))
            took = []
            for _ in range(QUEUES):
                both, old = queue(old, run)
                alone, old = queue(old, None)
                took.append(both - alone)
            medians.append(statistics.median(took))
        return min(medians)

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
    if sys.argv[2:] != ["--later"]:
        worker.begin()
    print(json.dumps({"ready": jax.__version__, "device": str(jax.devices()[0])}), flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            if "answer" in question:
                answer: dict[str, Any] = {"ways": worker.answer(question["answer"], question["file"])}
            elif "settle" in question:
                answer = {"ready": worker.settle(question["settle"])}
            else:
                answer = {"ms": worker.milliseconds(question["time"], question["calls"])}
        except Exception as error:  # a task that fails is a finding
            answer = {"error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
