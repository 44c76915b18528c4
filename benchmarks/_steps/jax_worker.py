"""The rival in JAX, in a process of its own: one jitted step with donated state.  Needs jax and numpy alone.

    python jax_worker.py FOLDER      FOLDER holds task.json, weights.npz (our layout, by path) and batches.npz

It answers one line of JSON a line of input.  {"numbers": 5}: the losses of so many steps, or a loss and the size of its
gradients.  {"run": 100, "clock": "wall"}: the seconds of so many steps.  {"peak": true}: the most device memory so far
in MiB.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax  # type: ignore[import-not-found]  # optional
import jax.numpy as jnp  # type: ignore[import-not-found]
import numpy as np


# -- losses -----------------------------------------------------------------------------------------------
def mlp(p: Any, key: Any, x: Any, *targets: Any) -> Any:
    y = x
    for i in range(8):
        y = jax.nn.relu(y @ p[f"linears.{i}.weight"] + p[f"linears.{i}.bias"])
    return jnp.mean((y - targets[0]) ** 2) if targets else jnp.sum(y)


def guide(p: Any, key: Any, images: Any, targets: Any, *, dropout: float) -> Any:
    keys = jax.random.split(key, 3)

    def drop(i: int, x: Any) -> Any:
        return jnp.where(jax.random.bernoulli(keys[i], 1 - dropout, x.shape), x / (1 - dropout), 0) if dropout else x

    def conv(x: Any, name: str) -> Any:
        y = jax.lax.conv_general_dilated(
            x, p[f"model.{name}.weight"], (1, 1), "VALID", dimension_numbers=("NCHW", "OIHW", "NCHW")
        )
        return y + p[f"model.{name}.bias"][None, :, None, None]

    def linear(x: Any, name: str) -> Any:
        return x @ p[f"model.{name}.weight"] + p[f"model.{name}.bias"]

    x = jax.nn.relu(drop(1, conv(drop(0, conv(images[:, None], "conv1")), "conv2")))
    batch = x.shape[0]
    x = x.reshape(batch, 16, 8, 3, 8, 3).mean((3, 5)).reshape(batch, -1)
    scores = jax.nn.log_softmax(linear(jax.nn.relu(drop(2, linear(x, "linear1"))), "linear2"))
    return -jnp.take_along_axis(scores, targets[:, None], 1).mean()


def gpt2(p: Any, key: Any, tokens: Any, targets: Any, *, heads: int, attention: str) -> Any:
    """bf16 products over float32 parameters, norms and scores in float32: where torch's autocast puts them."""
    p = jax.tree_util.tree_map(lambda w: w.astype(jnp.bfloat16) if w.ndim == 2 else w, p)

    def norm(x: Any, path: str) -> Any:
        x = x.astype(jnp.float32)
        centred = x - x.mean(-1, keepdims=True)
        y = centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return (y * p[f"{path}.gamma"] + p[f"{path}.beta"]).astype(jnp.bfloat16)

    def linear(x: Any, path: str) -> Any:
        return x @ p[f"{path}.weight"] + p[f"{path}.bias"].astype(jnp.bfloat16)

    batch, seq = tokens.shape
    x = p["tokens.weight"][tokens] + p["positions"][:seq]
    i = 0
    while (block := f"blocks.{i}") + ".qkv.weight" in p:
        packed = linear(norm(x, f"{block}.norm_1"), f"{block}.qkv").reshape(batch, seq, 3, heads, -1)
        query, key_, value = (packed[:, :, part] for part in range(3))
        read = jax.nn.dot_product_attention(query, key_, value, is_causal=True, implementation=attention)
        x = x + linear(read.reshape(batch, seq, -1), f"{block}.projection")
        inner = jax.nn.gelu(linear(norm(x, f"{block}.norm_2"), f"{block}.inner"), approximate=True)
        x = x + linear(inner, f"{block}.outer")
        i += 1
    scores = jax.nn.log_softmax((norm(x, "norm") @ p["tokens.weight"].T).astype(jnp.float32))
    return -jnp.take_along_axis(scores, targets[..., None], 2).mean()


def fastest_attention(heads: int, d_head: int) -> str:
    """cuDNN's where this machine has it."""
    if jax.default_backend() != "gpu":
        return "xla"
    try:
        x = jnp.zeros((1, 128, heads, d_head), jnp.bfloat16)
        run = jax.jit(partial(jax.nn.dot_product_attention, is_causal=True, implementation="cudnn"))
        jax.block_until_ready(run(x, x, x))
    except Exception as error:
        print(f"attention by XLA, since cuDNN's fails: {error}", file=sys.stderr)
        return "xla"
    return "cudnn"


LOSSES: dict[str, Any] = {
    "mlp": mlp,
    "mnist": partial(guide, dropout=0.0),
    "mnist dropout": partial(guide, dropout=0.5),
}


# -- the step ---------------------------------------------------------------------------------------------
def make_step(loss_of: Any, adam: dict[str, float] | None) -> Any:
    if adam is None:
        return jax.jit(lambda p, state, batch: (jax.value_and_grad(loss_of)(p, state[3], *batch), p, state))
    lr, decay, beta_1, beta_2 = adam["lr"], adam["decay"] or 0.0, adam["beta_1"], adam["beta_2"]
    over = jax.tree_util.tree_map

    def step(p: Any, state: Any, batch: Any) -> Any:
        time_, m, v, key = state
        key, now = jax.random.split(key)
        loss, g = jax.value_and_grad(loss_of)(p, now, *batch)
        time_ = time_ + 1
        m = over(lambda a, b: beta_1 * a + (1 - beta_1) * b, m, g)
        v = over(lambda a, b: beta_2 * a + (1 - beta_2) * b * b, v, g)
        c1, c2 = 1 - beta_1**time_, 1 - beta_2**time_

        def new(w: Any, a: Any, b: Any) -> Any:
            return w - lr * decay * w - lr * (a / c1) / (jnp.sqrt(b / c2) + adam["epsilon"])

        return loss, over(new, p, m, v), (time_, m, v, key)

    return jax.jit(step, donate_argnums=(0, 1))


class Worker:
    """The state of the rival."""

    def __init__(self, folder: Path) -> None:
        task = json.loads((folder / "task.json").read_text(encoding="utf-8"))
        jax.config.update("jax_default_matmul_precision", task["precision"])
        with np.load(folder / "weights.npz") as weights:
            self.p = {name: jnp.asarray(weights[name]) for name in weights.files}
        with np.load(folder / "batches.npz") as arrays:
            self.batches = [
                tuple(jnp.asarray(arrays[f"{i}.{j}"]) for j in range(task["parts"])) for i in range(task["count"])
            ]
        zeros = jax.tree_util.tree_map(jnp.zeros_like, self.p)
        zeros_too = jax.tree_util.tree_map(jnp.zeros_like, self.p)
        self.state = (jnp.float32(0), zeros, zeros_too, jax.random.key(1))
        self.adam, self.at = task["adam"], 0
        self.step = make_step(self.loss_of(task["loss"]), self.adam)

    def loss_of(self, name: str) -> Any:
        if not name.startswith("gpt2"):
            return LOSSES[name]
        heads = int(name.removeprefix("gpt2 "))
        width = self.p["tokens.weight"].shape[1]
        return partial(gpt2, heads=heads, attention=fastest_attention(heads, width // heads))

    def once(self) -> Any:
        batch = self.batches[self.at % len(self.batches)]
        self.at += 1
        loss, self.p, self.state = self.step(self.p, self.state, batch)
        return loss

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        if "numbers" in question:
            begun = time.perf_counter()
            if self.adam is None:
                loss, g = self.once()
                size = np.sqrt(sum(np.sum(np.asarray(a, np.float64) ** 2) for a in jax.tree_util.tree_leaves(g)))
                return {"numbers": [float(loss), float(size)], "first_s": time.perf_counter() - begun}
            first = float(self.once())
            first_s = time.perf_counter() - begun
            return {"numbers": [first, *(float(self.once()) for _ in range(question["numbers"] - 1))],
                    "first_s": first_s}  # fmt: skip
        if "run" in question:
            jax.block_until_ready(self.once())
            now = time.process_time if question["clock"] == "process" else time.perf_counter
            begun, out = now(), None
            for _ in range(question["run"]):
                out = self.once()
            jax.block_until_ready((out, self.p))
            return {"seconds": now() - begun}
        stats = jax.devices()[0].memory_stats() or {}
        peak = stats.get("peak_bytes_in_use")
        return {"peak_mib": None if peak is None else peak / 2**20}


def main() -> None:
    if os.environ.get("BENCH_ONE_CORE") and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    worker = Worker(Path(sys.argv[1]))
    print(json.dumps({"ready": jax.__version__, "device": str(jax.devices()[0])}), flush=True)
    for line in sys.stdin:
        print(json.dumps(worker.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
