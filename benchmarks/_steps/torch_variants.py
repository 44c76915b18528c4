"""The rivals in torch: eager, compiled, and either of them captured by hand into one CUDA graph."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import torch

from benchmarks._steps.cases import COMPILE, COMPILE_GRAPH, GRAPH, REDUCED, Array, Case
from benchmarks._steps.measure import Failed, Local

__all__ = ["ByHand", "TorchStep", "torch_variants"]

MODES: Mapping[str, Mapping[str, Any]] = {
    COMPILE: {},
    COMPILE_GRAPH: {},
    REDUCED: {"mode": "reduce-overhead"},
}


def torch_variants(case: Case, values: Mapping[str, Array], device: str, no_compile: bool) -> list[Local]:
    """The rivals of a case on a device, the reference of all others first."""
    on_gpu_alone = (REDUCED, GRAPH, COMPILE_GRAPH)
    names = [n for n in case.rivals if (device == "cuda" or n not in on_gpu_alone) and not (no_compile and n in MODES)]
    steps: list[Local] = [TorchStep(case, values, device, name) for name in names]
    by_hand = case.by_hand or {}
    return [*steps[:1], *[ByHand(case, values, device, name) for name in by_hand], *steps[1:]]


def on_device(case: Case, device: str) -> list[tuple[torch.Tensor, ...]]:
    return [tuple(torch.from_numpy(a).to(device) for a in batch) for batch in case.batches]


class TorchStep(Local):
    """A module, `backward`, and the fused optimizer."""

    def __init__(self, case: Case, values: Mapping[str, Array], device: str, name: str) -> None:
        self.case, self.values, self.device, self.name = case, values, device, name

    def start(self) -> None:
        case, device = self.case, self.device
        self.steps, self.read = 0, read
        net = case.twin()
        state = {name: torch.from_numpy(a.copy()) for name, a in case.layout(self.values).items()}
        net.load_state_dict(state, strict=True)
        self.net = net.to(device).train()
        captured = self.name in (GRAPH, COMPILE_GRAPH)
        self.optimizer = self._optimizer(captured)
        call = torch.compile(net, dynamic=False, **MODES[self.name]) if self.name in MODES else net
        batches = on_device(case, device)
        count, reduced = len(batches), self.name == REDUCED
        params, optimizer = list(net.parameters()), self.optimizer
        # the cache of cast weights may not outlive a capture
        half = torch.autocast(device, torch.bfloat16, cache_enabled=not captured) if case.half else None

        def take(batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
            if reduced:
                torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
            for param in params:
                param.grad = None
            with half or contextlib.nullcontext():
                loss: torch.Tensor = call(*batch)
            loss.backward()  # type: ignore[no-untyped-call]
            if optimizer is not None:
                optimizer.step()
            return loss

        self.step = lambda i: take(batches[i % count])
        if captured:
            static = tuple(x.clone() for x in batches[0])
            replay, loss = self._capture_step(lambda: take(static))

            def copy_and_replay(i: int) -> torch.Tensor:
                for target, source in zip(static, batches[i % count], strict=True):
                    target.copy_(source)
                replay()
                return loss

            self.step = copy_and_replay

    def _optimizer(self, captured: bool) -> torch.optim.Optimizer | None:
        adam = self.case.optimizer
        if adam is None:
            return None
        options: dict[str, Any] = {"fused": True, "capturable": captured}
        options |= {"lr": adam.lr, "betas": (adam.beta_1, adam.beta_2), "eps": adam.epsilon}
        if adam.decay is None:
            return torch.optim.Adam(self.net.parameters(), **options)
        return torch.optim.AdamW(self.net.parameters(), weight_decay=adam.decay, **options)

    def _capture_step(self, take: Any) -> tuple[Any, torch.Tensor]:
        """One graph of the whole step; the steps that warm it up leave no trace."""
        if self.device != "cuda":
            raise Failed("CUDA graphs need a GPU")
        begin = [p.detach().clone() for p in self.net.parameters()]
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                take()
        torch.cuda.current_stream().wait_stream(side)
        for param in self.net.parameters():
            param.grad = None
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = take()
        with torch.no_grad():
            for param, value in zip(self.net.parameters(), begin, strict=True):
                param.copy_(value)
            for state in self.optimizer.state.values() if self.optimizer is not None else ():
                for tensor in state.values():
                    tensor.zero_()
        return graph.replay, loss

    def numbers(self) -> list[float]:
        if self.optimizer is not None:
            return super().numbers()
        loss = read(self.step(0))
        return [loss, gradient_size([p.grad for p in self.net.parameters()])]


class ByHand(Local):
    """Functions over tensors and `autograd.grad`: no module."""

    def __init__(self, case: Case, values: Mapping[str, Array], device: str, name: str) -> None:
        self.case, self.values, self.device, self.name = case, values, device, name

    def start(self) -> None:
        assert self.case.by_hand is not None
        self.steps = 0
        function = self.case.by_hand[self.name]
        leaves = {path: torch.from_numpy(a.copy()).to(self.device) for path, a in self.values.items()}
        for leaf in leaves.values():
            leaf.requires_grad_()
        batches = on_device(self.case, self.device)
        count = len(batches)
        self.step = lambda i: function(leaves, *batches[i % count])

    def numbers(self) -> list[float]:
        loss, gradients = self.step(0)
        return [read(loss), gradient_size(gradients)]


def read(loss: torch.Tensor) -> float:
    return float(loss.detach())


def gradient_size(gradients: Any) -> float:
    """The root of the sum of squares over all gradients, in float64."""
    return float(torch.stack([g.detach().double().square().sum() for g in gradients]).sum().sqrt())
