"""The operations that are timed alone: each as its users write it, from primitives, for us and for torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks._kernels.judged import Bar
from benchmarks._kernels.timing import Call, results_of
from burn_torch import Device, Tensor, ops, vjp
from burn_torch.core.dtype import DType
from burn_torch.tensor import activation

__all__ = ["COMPILED", "OURS", "Operation", "operations"]

OURS = "ours"
COMPILED = ("compile", "compile max-autotune")
EPSILON, PROB = 1e-5, 0.1


@dataclass(frozen=True)
class Operation:
    """A function of tensors, the first `graded` of which want gradients.

    moved    bytes that must cross the memory bus, forward; and forward and backward as one program, which reads what
             both of them need once.  Two programs read it twice, and reach less than the whole share
    kept     bytes of the results, likewise: all that may be there after the call, beside the inputs
    wanted   bars: (pass, share of copy, times as fast as torch.compile); None where none is asked
    """

    name: str
    dtype: torch.dtype
    shapes: Sequence[tuple[int, ...]]
    graded: Sequence[int]
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    jax: str
    moved: tuple[int, int]
    kept: tuple[int, int]
    wanted: Sequence[tuple[str, float | None, float | None]]
    random: bool = False

    # -- tensors ---------------------------------------------------------------------------------------
    def inputs(self, device: str, rows: int = 0) -> list[torch.Tensor]:
        """Random ones; `rows` in place of the first size of those that are as large as the first."""
        first = self.shapes[0]
        shapes = [(rows, *s[1:]) if rows and s == first else s for s in self.shapes]
        return [torch.randn(s, device=device).to(self.dtype) for s in shapes]

    def bars(self) -> list[Bar]:
        """Returns what the variant `ours` must reach; memory at the floor, an intermediate of one element more is too
        much.
        """
        listed = []
        for passed, kept in zip(("f", "fb"), self.kept, strict=True):
            share, ahead = next(((s, a) for p, s, a in self.wanted if p == passed), (None, None))
            most = 1.01 * kept / 2**20 + 0.1  # rows round to a tenth
            listed.append(Bar(case=self.name, passed=passed, share=share, ahead=ahead, against=COMPILED, peak_mib=most))
        return listed

    # -- variants --------------------------------------------------------------------------------------
    def lazily(self, inputs: Sequence[torch.Tensor], upstream: Sequence[torch.Tensor] | None, device: Device) -> Call:
        """Ours on a fused device: recorded, computed, and held, all results of it.

        `device.flush()` alone may leave a cheap result under a tape as the recipe for it.
        """
        if upstream is None:
            tape = device.autodiff()
            tracked = [Tensor.from_torch(x, tape) for x in inputs]
            tracked = [x.require_grad() if i in self.graded else x for i, x in enumerate(tracked)]

            def forward() -> Any:
                y = self.ours(*tracked)
                results_of(y)
                return y

            return forward
        plain = [Tensor.from_torch(x, device) for x in inputs]
        pulled = tuple(Tensor.from_torch(g, device) for g in upstream)
        leaves = [plain[i] for i in self.graded]

        def of_leaves(*moved: Tensor) -> Any:
            mixed = list(plain)
            for i, x in zip(self.graded, moved, strict=True):
                mixed[i] = x
            return self.ours(*mixed)

        def both() -> Any:
            y, pull = vjp(of_leaves, *leaves)
            gradients = pull(pulled if isinstance(y, tuple) else pulled[0])
            del pull  # the tape, which holds what the backward read
            results_of((y, gradients))
            return y, gradients

        return both

    def by_torch(
        self, inputs: Sequence[torch.Tensor], upstream: Sequence[torch.Tensor] | None, function: Callable[..., Any]
    ) -> Call:
        """A torch function, with torch's tape."""
        leaves_and_constants = [x.clone().requires_grad_(i in self.graded) for i, x in enumerate(inputs)]
        leaves = [leaves_and_constants[i] for i in self.graded]

        def call() -> Any:
            y = function(*leaves_and_constants)
            if upstream is None:
                return y
            outputs = y if isinstance(y, tuple) else (y,)
            return y, torch.autograd.grad(outputs, leaves, list(upstream))

        return call

    def upstream(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """A random gradient for each result."""
        with torch.no_grad():
            outputs = self.theirs(*inputs)
        return [torch.randn_like(y) for y in (outputs if isinstance(outputs, tuple) else (outputs,))]

    # -- what they compute -----------------------------------------------------------------------------
    def errors(self, passed: str, place: str, device: Device, rows: int) -> dict[str, float]:
        """The relative errors (root mean square) against float64 of ours and of torch; none of random results."""
        if self.random:
            return {}
        inputs = self.inputs(place, rows)
        pulled = self.upstream(inputs) if passed == "fb" else None
        exact = results_of(
            self.by_torch([x.double() for x in inputs], pulled and [g.double() for g in pulled], self.theirs)()
        )
        calls = {OURS: self.lazily(inputs, pulled, device), "eager": self.by_torch(inputs, pulled, self.theirs)}
        return {
            name: max(_apart(y, z) for y, z in zip(results_of(call()), exact, strict=True))
            for name, call in calls.items()
        }


def _apart(actual: torch.Tensor, exact: torch.Tensor) -> float:
    return float((actual.double() - exact).norm() / exact.norm())


# -- as users write them ----------------------------------------------------------------------------------
def gelu(x: Tensor) -> Tensor:
    """As the README of Burn has it."""
    return x * ((x / math.sqrt(2)).erf() + 1.0) / 2.0


def gelu_twin(x: torch.Tensor) -> torch.Tensor:
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def chain12(x: Tensor, bias: Tensor, scale: Tensor, residual: Tensor) -> Tensor:
    """Twelve operations with broadcasts: bias, scale, two activations, a residual."""
    y = activation.sigmoid(x + bias) * scale
    y = y.tanh() + residual
    return (y * y - y * 0.5).clamp(-2.0, 2.0) + y.abs().neg().exp()


def chain12_twin(x: torch.Tensor, bias: torch.Tensor, scale: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    y = torch.sigmoid(x + bias) * scale
    y = torch.tanh(y) + residual
    return torch.clamp(y * y - 0.5 * y, -2.0, 2.0) + torch.exp(-y.abs())


def dropout_residual_norm(x: Tensor, residual: Tensor, gamma: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """A transformer's way from one sublayer to the next."""
    h = residual + ops.dropout(x, PROB, 7, 11)
    return ops.layer_norm(h, gamma, beta, EPSILON)[0], h


def dropout_residual_norm_twin(
    x: torch.Tensor, residual: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    h = residual + F.dropout(x, PROB, True)
    return F.layer_norm(h, gamma.shape, gamma, beta, EPSILON), h


def batch_norm_relu(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    """By the statistics of the batch."""
    y: Tensor = ops.batch_norm(x, gamma, beta, EPSILON)[0]
    return y.relu()


def batch_norm_relu_twin(x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    return F.relu(F.batch_norm(x, None, None, gamma, beta, True, eps=EPSILON))


def operations(quick: bool) -> list[Operation]:
    """All of them; quick: few elements."""
    size = 32 if quick else 8192
    rows, cols = (32, 64) if quick else (16_384, 4096)
    images = (4, 4, 4, 4) if quick else (256, 64, 56, 56)
    listed = []
    for dtype, share, ahead in ((torch.float32, 0.97, None), (torch.bfloat16, 0.90, 1.25)):
        n = size * size * dtype.itemsize
        listed.append(
            Operation(
                f"gelu {_type(dtype)} {size}x{size}", dtype, [(size, size)], [0], gelu, gelu_twin, "gelu",
                (2 * n, 4 * n), (n, 2 * n), [("f", share, ahead), ("fb", share, ahead)],
            )
        )  # fmt: skip
    half, n = torch.bfloat16, 2 * size * size
    listed.append(
        Operation(
            f"chain12 bf16 {size}x{size}", half, [(size, size), (1, size), (1, size), (size, size)], [0, 3], chain12,
            chain12_twin, "chain12", (3 * n, 6 * n), (n, 3 * n), [("f", None, 1.3), ("fb", None, 1.2)],
        )
    )  # fmt: skip
    n = 2 * rows * cols
    listed.append(
        Operation(
            f"dropout+residual+norm {rows}x{cols}", half, [(rows, cols), (rows, cols), (cols,), (cols,)], [0, 1, 2, 3],
            dropout_residual_norm, dropout_residual_norm_twin, "dropout_residual_norm", (4 * n, 8 * n), (2 * n, 4 * n),
            [("f", None, 2.2)], random=True,
        )
    )  # fmt: skip
    n = 2 * math.prod(images)
    listed.append(
        Operation(
            f"batch_norm+relu {'x'.join(map(str, images))}", half, [images, images[1:2], images[1:2]], [0, 1, 2],
            batch_norm_relu, batch_norm_relu_twin, "batch_norm_relu", (3 * n, 7 * n), (n, 2 * n), [("f", None, 1.3)],
        )
    )  # fmt: skip
    return listed


def _type(dtype: torch.dtype) -> str:
    return str({torch.float32: DType.F32, torch.bfloat16: DType.BF16}[dtype])
