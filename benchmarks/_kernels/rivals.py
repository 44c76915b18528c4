"""Every family beside every rival that has it: which cases, and what Liger and JAX call them.

JAX compiles and runs in a process of its own; all of it before anything is timed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks._kernels.attending import Problem
from benchmarks._steps.asking import Asked, jax_environment
from benchmarks._steps.measure import Failed
from burn_kernels import REGISTRY
from burn_kernels.reduce import references as reduce_parts

__all__ = ["CHOSEN", "Jax", "Task", "attention_task", "liger_function", "task", "tensors_task"]

CHOSEN: Mapping[str, tuple[str, ...]] = {
    "batch_norm 256x64x56x56 relu": ("fb",),
    "batch_norm 256x64x56x56 relu channels last": ("fb",),
    "batch_norm 256x512x7x7 relu": ("fb",),
    "group_norm 8x320x64x64 silu": ("fb",),
    "convolution 64x1x28x28 to 8 float32": ("fb",),
    "convolution 512x8x26x26 to 16 float32": ("f", "fb"),
    "convolution 64x8x26x26 to 16 float32 relu max": ("fb",),
    "convolution 32x3x224x224 to 64 7x7 float32": ("fb",),
    "convolution 64x96x56x56 depthwise": ("fb",),
    "linear 8192x4096x16384 gelu": ("f", "fb"),
    "linear 16384x768x3072 gelu_tanh": ("f", "fb"),
    "linear 16384x128x8192 silu": ("f", "fb"),
    "attention 16x12x1024x64 causal": ("f", "fb"),
    "attention 8x32x4096x128 causal, 8 kv heads": ("f", "fb"),
    "attention 8x16x2048x64": ("f", "fb"),
    "attention 4x16x2048x64 bias": ("f", "fb"),
    "attention 4x16x4096x128 causal, softcap, window 1024": ("f", "fb"),
    "attention_packed 16x16 to 4096x64 causal, packed": ("f", "fb"),
    "rope 4x4096x32/8x128 packed": ("fb",),
    "swiglu 8192x14336": ("fb",),
    "geglu 8192x14336": ("fb",),
    "gelu 8192x8192": ("fb",),
    "dropout 8192x8192": ("f",),
    "embedding_backward 16384 of 50257x768": ("f",),
    **{f"{spec.name} {row.tag}": (row.passed,) for spec in REGISTRY.values() for row in spec.rows},
    "lion 124M": ("step",),
    "adamw 124M": ("step",),
    "residual_rms_norm 16384x4096": ("fb",),
    "residual_layer_norm 16384x4096 dropout": ("fb",),
    "softmax 8192x4096": ("f", "fb"),
    "softmax 8192x32768": ("f", "fb"),
    "layer_norm 8192x4096": ("fb",),
    "layer_norm 8192x16384": ("fb",),
    "rms_norm 8192x4096": ("fb",),
    "rms_norm 8192x32768": ("fb",),
    "sum 16384x16384 dim 1": ("f",),
    "sum 16384x16384 dim 0": ("f",),
    "var 16384x16384 dim 1": ("f",),
    "logsumexp 16384x16384 dim 1": ("f",),
    "argmax 16384x16384 dim 1": ("f",),
    "cross_entropy 8192x32000": ("fb",),
    "cross_entropy 8192x128256": ("fb",),
    "linear_cross_entropy 8192x4096x128256": ("fb",),
}
"""Cases and passes in the order in which they are timed: the families that no bar names first."""


# -- Liger -----------------------------------------------------------------------------------------------
def liger_function(name: str, options: Mapping[str, Any]) -> Callable[..., Any] | None:
    """Returns what Liger has for an operation, called as the operation is; None where it has nothing, or is not
    there.
    """
    try:
        from liger_kernel import ops  # type: ignore[import-not-found]  # optional
    except ImportError:
        return None
    functions: dict[str, Callable[..., Any]] = {
        "softmax": ops.LigerSoftmaxFunction.apply,
        "layer_norm": lambda x, w, b: ops.LigerLayerNormFunction.apply(x, w, b, 1e-5),
        "rms_norm": lambda x, w: ops.LigerRMSNormFunction.apply(x, w, 1e-5, 0.0, "llama", False),
        "swiglu": ops.LigerSiLUMulFunction.apply,
        "geglu": ops.LigerGELUMulFunction.apply,  # by tanh, which is less work
        "cross_entropy": lambda x, targets: ops.LigerCrossEntropyFunction.apply(x, targets, None)[0],  # over x
        "linear_cross_entropy": lambda x, w, targets: ops.LigerFusedLinearCrossEntropyFunction.apply(x, w, targets)[0],
    }
    if name == "residual_rms_norm" and not options["prob"] and hasattr(ops, "LigerFusedAddRMSNormFunction"):
        functions[name] = lambda x, r, w: ops.LigerFusedAddRMSNormFunction.apply(x, r, w, 1e-5, 0.0, "llama", False)
    if name == "group_norm":
        functions[name] = lambda x, w, b, groups: torch.nn.functional.silu(
            ops.LigerGroupNormFunction.apply(x, w, b, x.shape[1], groups, 1e-5)
        )
    if name == "rope" and not options["interleaved"]:
        # heads before positions, doubled tables; it writes over q and k
        cos, sin = (torch.cat([options[part]] * 2, -1)[None].bfloat16() for part in ("cos", "sin"))

        def turned(q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, ...]:
            written = ops.LigerRopeFunction.apply(q.transpose(1, 2).clone(), k.transpose(1, 2).clone(), cos, sin)
            return tuple(x.transpose(1, 2) for x in written)

        functions["rope"] = turned
    return functions.get(name)


# -- JAX -------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Task:
    """One function for JAX; its inputs are (shape, type, limit), where a limit makes whole numbers below it."""

    name: str
    function: str
    inputs: Sequence[tuple[Sequence[int], str, int]]
    graded: Sequence[int] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


TAKEN: Mapping[str, tuple[str, ...]] = {
    "residual_layer_norm": ("prob",),
    "residual_rms_norm": ("prob",),
    "embedding_backward": ("rows",),
    "linear": ("kind",),
    "batch_norm": ("activation",),
    "group_norm": ("activation",),
    "convolution": ("stride", "padding", "groups", "relu", "pool"),
    "dropout": ("prob",),
}
"""The options that a function of the worker has too."""


def task(case: str, passed: str, name: str, inputs: Sequence[Any], options: Mapping[str, Any]) -> Task | None:
    """An operation for JAX; None where JAX has no such thing."""
    taken: dict[str, Any] = {key: options[key] for key in TAKEN.get(name, ()) if key in options}
    function, last = name, case.endswith("channels last")
    if name in reduce_parts.KINDS:
        function, taken = "reduction", {"kind": name, "dim": options["dim"]}
    elif name == "batch_norm":
        taken["last"] = last
    elif name == "group_norm":
        taken["groups"] = inputs[3]
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    limit = options.get("rows", tensors[0].shape[-1] if name == "cross_entropy" else 0)
    if name == "linear_cross_entropy":
        limit = tensors[1].shape[0]
    descriptions = [_input(x.movedim(1, -1) if last and x.dim() > 2 else x, limit) for x in tensors]
    graded = [at for at, x in enumerate(tensors) if x.is_floating_point()] if passed == "fb" else []
    return Task(f"{case} {passed}", function, descriptions, graded, taken)


def _input(x: torch.Tensor, limit: int) -> tuple[list[int], str, int]:
    if x.is_floating_point():
        return list(x.shape), str(x.dtype).removeprefix("torch."), 0
    return list(x.shape), "int32", limit


def attention_task(case: str, passed: str, problem: Problem, *, gpu: bool) -> Task | None:
    """Attention for JAX, by cuDNN on a GPU; a softcap, a window or packed sequences it has not, or not so."""
    if problem.packed or set(problem.options) - {"causal"}:
        return None
    shapes = [(problem.batch, problem.seq, heads, problem.dim)
              for heads in (problem.heads, problem.kv_heads, problem.kv_heads)]  # fmt: skip
    if problem.bias:
        shapes.append((1, problem.heads, problem.seq, problem.seq))
    options = {"causal": bool(problem.options.get("causal")), "gpu": gpu}
    graded = list(range(len(shapes))) if passed == "fb" else []
    return Task(f"{case} {passed}", "attention", [(shape, "bfloat16", 0) for shape in shapes], graded, options)


def tensors_task(case: str, passed: str, function: str, groups: int, tensors: Sequence[torch.Tensor]) -> Task:
    """A step of an optimizer, or the norm, over so many lists of such tensors."""
    inputs = [(list(x.shape), "float32", 0) for x in tensors] * groups
    return Task(f"{case} {passed}", function, inputs)


SHORTEST_MS = 0.03
"""If a copy is shorter, so is a call; the queue, in which launches overlap, would flatter it by
microseconds.
"""


class Jax:
    """JAX in a process of its own, which compiles all tasks at once; without JAX it answers nothing, and says why."""

    def __init__(self, tasks: Sequence[Task], python: str, device: str, *, timed: bool = True) -> None:
        self.version = ""
        self._asked: Asked | None = None
        self._known = {one.name for one in tasks}
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "tasks.json"
            file.write_text(json.dumps([vars(one) for one in tasks]), encoding="utf-8")
            command = [python or sys.executable, str(Path(__file__).with_name("jax_worker.py")), str(file)]
            command += [] if timed else ["--later"]
            try:
                self._asked = Asked(command, jax_environment(device, torch.get_num_threads()))
            except (Failed, OSError) as error:
                print(f"  no JAX: {error}", flush=True)
                return
        self.version = f"{self._asked.ready['ready']} on {self._asked.ready['device']}"

    def settle(self, patience_s: float) -> None:
        """Waits until nothing compiles: what has not begun by then is given up."""
        answer = self._answer({"settle": patience_s})
        print(f"    JAX: {answer.get('ready', 0)} of {len(self._known)} functions compiled", flush=True)

    def row(
        self, case: str, passed: str, calls: int, beside: Mapping[str, Any] | None, *, tiny: bool = False
    ) -> dict[str, Any] | None:
        """The row of a case, with the copy that stands `beside` it; None where there is none, told of if it failed."""
        if self._asked is None or f"{case} {passed}" not in self._known:
            return None
        if beside is not None and beside["copy_ms"] < SHORTEST_MS and not tiny:
            return None
        answer = self._answer({"time": f"{case} {passed}", "calls": calls})
        if "error" in answer:
            print(f"    {case} {passed} jax: {answer['error']}", flush=True)
            return None
        ms = answer["ms"]
        entry = {"case": case, "pass": passed, "variant": "jax", "median_ms": round(ms, 5)}
        if beside is not None:
            entry |= {name: beside[name] for name in ("floor_bytes", "copy_ms")}
            entry["share_of_copy"] = round(beside["copy_ms"] / ms, 4)
        print(f"{case:<46} {passed:<5}{'jax':<19}{ms:9.4f} ms{100 * entry.get('share_of_copy', 0):7.1f} %", flush=True)
        return entry

    def apart(
        self, case: str, passed: str, outputs: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]
    ) -> float | str | None:
        """The relative root mean square of what differs between its results and exact ones, the worst of them; None
        where there is no such task, words where it failed."""
        if f"{case} {passed}" not in self._known:
            return None
        if case.endswith("channels last"):
            outputs, exact = ([x.movedim(1, -1) if x.dim() > 2 else x for x in tensors] for tensors in (outputs, exact))
        with tempfile.TemporaryDirectory() as folder:
            file = str(Path(folder) / "arrays.npz")
            numbers = [x.float() if x.is_floating_point() else x.int() for x in outputs]
            np.savez(file, *(x.detach().cpu().numpy() for x in numbers))
            answer = self._answer({"answer": f"{case} {passed}", "file": file})
            if "error" in answer:
                return str(answer["error"])
            with np.load(file) as arrays:
                expected = [torch.from_numpy(arrays[f"arr_{at}"]).double() for at in range(len(arrays.files))]
        wanted = [x.detach().cpu().double() for x in exact] * answer["ways"]
        if [x.shape for x in expected] != [x.shape for x in wanted]:
            return f"shapes {[tuple(x.shape) for x in expected]}, expected {[tuple(x.shape) for x in wanted]}"
        pairs = zip(expected, wanted, strict=True)
        return max(float((x - y).norm()) / (float(y.norm()) or 1.0) for x, y in pairs)

    def _answer(self, question: dict[str, Any]) -> dict[str, Any]:
        if self._asked is None:
            return {"error": "no JAX"}
        try:
            return self._asked.ask(question)
        except Failed as error:
            self._asked = None
            return {"error": str(error)}

    def close(self) -> None:
        """Ends it."""
        if self._asked is not None:
            self._asked.close()
