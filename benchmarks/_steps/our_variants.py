"""Our side: the step run eagerly, and the same function compiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch

import burn_torch
from benchmarks._steps.cases import COMPILED, EAGER, Adam, Array, Case
from benchmarks._steps.measure import CLOCKS, Failed, Local, sync
from benchmarks._steps.torch_variants import gradient_size
from burn_torch import Device, StepScope, Tensor
from burn_torch.core.dtype import DType
from burn_torch.optim import AdamConfig, AdamWConfig, GradientsParams
from burn_torch.train import fold

__all__ = ["EAGER_FUSED", "FUSED", "Ours", "loaded", "our_variants"]

FUSED, EAGER_FUSED = "burn_torch compiled, fused", "burn_torch eager, fused"
KEYS = {name: [fold(seed, i) for i in range(1024)] for seed, name in enumerate((EAGER, COMPILED, FUSED, EAGER_FUSED))}
"""Keys of the steps, others for each variant: the leaf remembers masks, and one may not find those of the other."""


def our_variants(case: Case, values: Mapping[str, Array], device: str) -> list[Ours]:
    """Eager and compiled."""
    return [Ours(case, values, device, EAGER), Ours(case, values, device, COMPILED)]


def loaded(case: Case, values: Mapping[str, Array], device: Device) -> Any:
    """A model of the case with these weights."""
    model = case.model(device)
    by_id = {param.id: values[path] for path, param in model.named_params()}
    return model.map_params(lambda p: p.with_value(Tensor.from_data(by_id[p.id], device)))


def optimizer(adam: Adam) -> Any:
    numbers: dict[str, Any] = {"beta_1": adam.beta_1, "beta_2": adam.beta_2, "epsilon": adam.epsilon}
    if adam.decay is None:
        return AdamConfig(**numbers).init()
    return AdamWConfig(**numbers, weight_decay=adam.decay).init()


# -- the steps: what a user writes ----------------------------------------------------------------------------
def train(model: Any, optim: Any, batch: tuple[Tensor, ...], lr: float, key: int) -> tuple[Any, Any, Tensor]:
    """One step; `key` is what dropout draws from."""
    with StepScope(key, model):
        loss = model.loss(*batch)
        gradients = GradientsParams.from_grads(loss.backward(), model)
    model, optim = optim.step(lr, model, gradients)
    return model, optim, loss


def train_half(model: Any, optim: Any, batch: tuple[Tensor, ...], lr: float, key: int) -> tuple[Any, Any, Tensor]:
    """The same eagerly in bf16: a copy of the float32 parameters computes, the optimizer steps the originals."""
    half = model.map_params(lambda p: p.with_value(p.val().inner().cast(DType.BF16)))
    half = half.to_device(batch[0].device)
    with StepScope(key, half):
        loss = half.loss(*batch)
        gradients = GradientsParams.from_grads(loss.backward(), half)
    wide = GradientsParams({ident: g.cast(DType.F32) for ident, g in gradients.items()})
    model, optim = optim.step(lr, model, wide)
    return model, optim, loss


def forward_backward(model: Any, batch: tuple[Tensor, ...]) -> tuple[Tensor, list[Tensor | None]]:
    """Loss and gradients."""
    loss = model.loss(*batch)
    gradients = loss.backward()
    return loss, [param.val().grad(gradients) for _, param in model.named_params()]


class Ours(Local):
    """The case's step over our model; fused where its name says so, whatever is the default."""

    def __init__(self, case: Case, values: Mapping[str, Array], device: str, name: str) -> None:
        self.case, self.values, self.place, self.name = case, values, device, name

    def start(self) -> None:
        case = self.case
        self.steps = 0
        self.read = lambda loss: float(loss.into_scalar())
        device = Device.parse(self.place, fused=self.name in (FUSED, EAGER_FUSED)).autodiff()
        model = loaded(case, self.values, device)
        self.batches = [
            tuple(Tensor.from_torch(torch.from_numpy(a).to(self.place), device) for a in batch)
            for batch in case.batches
        ]
        batches, count = self.batches, len(self.batches)
        function = self.function = self._function()
        if case.optimizer is None:
            self.model = model
            self.step = lambda i: function(model, batches[i % count])
            return
        state, lr, keys = [model, optimizer(case.optimizer)], case.optimizer.lr, KEYS[self.name]

        def step(i: int) -> Tensor:
            state[0], state[1], loss = function(state[0], state[1], batches[i % count], lr, keys[i % len(keys)])
            return loss  # type: ignore[no-any-return]

        self.step = step

    def _function(self) -> Any:
        case = self.case
        if self.name in (EAGER, EAGER_FUSED):
            return forward_backward if case.optimizer is None else train_half if case.half else train
        return compiled(case, fuse=True if self.name == FUSED else None)

    def numbers(self) -> list[float]:
        if self.case.optimizer is not None:
            losses = super().numbers()
            if self.case.half and self.name in (COMPILED, FUSED) and not self._has_half_graphs():
                raise Failed('no product of the program is in bf16, though precision="bfloat16" was asked for')
            return losses
        loss, gradients = self.step(0)
        return [self.read(loss), gradient_size([g.into_torch() for g in gradients])]

    def wait(self) -> None:
        self.batches[0][0].device.sync()  # computes what is recorded

    def _has_half_graphs(self) -> bool:
        graphs = [program.graph for program in self.function._programs.values()]
        return any(
            getattr(spec, "dtype", None) is DType.BF16
            for graph in graphs
            for node in graph.nodes
            for spec in node.call.results
        )

    @property
    def traces(self) -> int | None:
        """How often the step's Python ran; None where it is not compiled."""
        return getattr(self.function, "traces", None)

    def trace_ms(self, again: int) -> list[float]:
        """Milliseconds of first calls of fresh compilations of the step, each less the call after it."""
        case, trace_times = self.case, []
        assert case.optimizer is not None
        device, keys, now = self.batches[0][0].device, KEYS[self.name], CLOCKS[self.clock]
        for _ in range(again):
            model, optim = loaded(case, self.values, device), optimizer(case.optimizer)
            function, times = compiled(case), []
            for i in range(2):
                sync()
                begun = now()
                model, optim, _ = function(model, optim, self.batches[0], case.optimizer.lr, keys[i])
                sync()
                times.append(now() - begun)
            trace_times.append(1e3 * (times[0] - times[1]))
        return trace_times


def compiled(case: Case, fuse: bool | None = None) -> Any:
    """The step of a case, compiled: the state donated, numbers as inputs.  fuse: with generated kernels."""
    if case.optimizer is None:
        return burn_torch.compile(forward_backward, fuse=fuse)
    precision: Literal["bfloat16", "float32"] = "bfloat16" if case.half else "float32"
    limit = case.memory_limit_bytes if fuse else None
    return burn_torch.compile(
        train, donate=("model", "optim"), precision=precision, fuse=fuse, memory_limit_bytes=limit
    )
