"""Random training: a model of layers in training mode, a loss and an optimizer, and a few steps that must agree.

A step is a function of a model, an optimizer, a batch and numbers, as users write it: modules are arguments of
`compile`, running statistics leave through the scope, optimizer states go in and come out, dropout draws from the
scope's key.  What is compared are the losses, and parameters, running states and optimizer states at the end.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from burn_torch import Device, DType, Module, Param, RunningState, StepScope, Tensor, nn, optim
from burn_torch.core.data import TensorData
from burn_torch.module.tree import rebuild
from tests.fuzz.compare import Judge, Noisy, Results

__all__ = ["Training"]

_ACTIVATIONS: Final = ("Relu", "Gelu", "Tanh", "Sigmoid", "Softplus", "HardSigmoid")
FACTOR_OF_STEPS: Final = 64.0
"""The factor of a judge: over three steps of an optimizer that divides by roots of squares, an H200's sums in another
order left up to 1.8 times what `compare.FACTOR` allows (4 of 117 trainings)."""
_BATCHES: Final = (5, 5, 3)
"""Items of the batches: the last one is shorter, so a compiled step is traced again."""


class Net(Module):
    """Layers one after the other."""

    layers: tuple[Module, ...]

    def forward(self, x: Tensor) -> Tensor:
        """Their result."""
        for layer in self.layers:
            x = layer.forward(x)  # type: ignore[attr-defined]
            if isinstance(layer, nn.Embedding):
                x = x.mean_dim(1).squeeze_dim(1)
        return x


@dataclass(frozen=True)
class Training:
    """The training of a seed."""

    seed: int

    # -- what is drawn ----------------------------------------------------------------------------
    @cached_property
    def plan(self) -> dict[str, Any]:
        """Layers, optimizer and numbers, as text and numbers."""
        draw = random.Random(self.seed)
        width = draw.choice((3, 4, 6))
        layers: list[tuple[str, Any]] = [("Embedding" if draw.random() < 0.15 else "Linear", (5, width))]
        for _ in range(draw.randint(1, 4)):
            kind = draw.choice(
                ("BatchNorm", "BatchNorm", "Dropout", "LayerNorm", "GaussianNoise", "act", "act", "Linear")
            )
            numbers = {"Dropout": (draw.choice((0.0, 0.2, 0.5)),), "GaussianNoise": (0.1,), "Linear": (width, width)}
            layers.append((draw.choice(_ACTIVATIONS), ()) if kind == "act" else (kind, numbers.get(kind, (width,))))
        layers.append(("Linear", (width, 3)))
        clip = draw.choice((None, None, ("Value", 0.05), ("Norm", 0.3)))
        return {
            "layers": layers,
            "loss": draw.choice(("mse", "cross entropy")),
            "optimizer": draw.choice(("Sgd", "momentum", "nesterov", "Adam", "amsgrad", "AdamW", "cautious")),
            "decay": draw.choice((None, 0.01)),
            "clip": clip,
            "groups": draw.random() < 0.2,
            "rate": draw.choice(("constant", "cosine", "exponential", "linear", "step", "noam")),
            "micro": 2 if draw.random() < 0.25 else 1,
            "donated": draw.random() < 0.5,
            "by": draw.choice(("backward", "value_and_grad")),
            "dtype": draw.choice(("f64", "f64", "f32")),
        }

    def __str__(self) -> str:
        return f"Training({self.seed}): {self.plan}"

    def _net(self, device: Device) -> Net:
        generator = np.random.default_rng(self.seed)
        dtype = DType.of(self.plan["dtype"])
        net = Net(tuple(_layer(name, numbers, device) for name, numbers in self.plan["layers"]))

        def leaf(x: Any) -> Any:
            value = generator.uniform(-0.8, 0.8, x.shape if isinstance(x, Param) else x.value().shape)
            if isinstance(x, RunningState):
                return x.with_value(_tensor(np.abs(value), dtype, device.inner()))
            return x.with_value(_tensor(value, dtype, device)) if isinstance(x, Param) else x

        return rebuild(net, leaf)

    def _optimizer(self, net: Net) -> Any:
        plan = self.plan
        clip = plan["clip"] and getattr(optim.GradientClippingConfig, plan["clip"][0])(plan["clip"][1])
        decay = plan["decay"] and optim.WeightDecayConfig(plan["decay"])
        kind = plan["optimizer"]
        if kind in ("Sgd", "momentum", "nesterov"):
            momentum = optim.MomentumConfig(momentum=0.8, dampening=0.1, nesterov=kind == "nesterov")
            used = None if kind == "Sgd" else momentum
            optimizer: Any = optim.SgdConfig(weight_decay=decay, momentum=used, gradient_clipping=clip).init()
        elif kind in ("Adam", "amsgrad"):
            optimizer = optim.AdamConfig(amsgrad=kind == "amsgrad", weight_decay=decay, grad_clipping=clip).init()
        else:
            optimizer = optim.AdamWConfig(cautious_weight_decay=kind == "cautious", grad_clipping=clip).init()
        if not plan["groups"]:
            return optimizer
        first = optim.ParamGroup.from_path("layers.0.weight")
        return optim.GroupedOptimizer.of(net, {"first": (first, optim.SgdConfig().init())}, optimizer)

    @cached_property
    def rates(self) -> list[float]:
        """Learning rates of the steps."""
        configs: dict[str, Any] = {
            "cosine": lambda: optim.CosineAnnealingLrSchedulerConfig(0.1, 5),
            "exponential": lambda: optim.ExponentialLrSchedulerConfig(0.1, 0.7),
            "linear": lambda: optim.LinearLrSchedulerConfig(0.1, 0.01, 4),
            "step": lambda: optim.StepLrSchedulerConfig(0.1, 1, gamma=0.5),
            "noam": lambda: optim.NoamLrSchedulerConfig(0.5, warmup_steps=2, model_size=16),
        }
        config = configs.get(self.plan["rate"])
        if config is None:
            return [0.05] * len(_BATCHES)
        scheduler, rates = config().init(), []
        for _ in _BATCHES:
            stepped = scheduler.step()
            scheduler, rate = stepped if isinstance(stepped, tuple) else (scheduler, stepped)
            rates.append(float(rate))
        return rates

    def batches(self, device: Device) -> list[tuple[Tensor, Tensor]]:
        """Inputs and targets."""
        generator = np.random.default_rng(self.seed + 1)
        dtype, batches = DType.of(self.plan["dtype"]), []
        for items in _BATCHES:
            items *= self.plan["micro"]
            if self.plan["layers"][0][0] == "Embedding":
                x = _tensor(generator.integers(0, 5, (items, 4)), DType.I64, device)
            else:
                x = _tensor(generator.uniform(-1, 1, (items, 5)), dtype, device)
            if self.plan["loss"] == "mse":
                t = _tensor(generator.uniform(-1, 1, (items, 3)), dtype, device)
            else:
                t = _tensor(generator.integers(0, 3, (items,)), DType.I64, device)
            batches.append((x, t))
        return batches

    # -- steps ----------------------------------------------------------------------------------------
    def _loss(self, net: Net, x: Tensor, t: Tensor) -> Tensor:
        y = net.forward(x)
        if self.plan["loss"] == "mse":
            return (y - t).square().mean()
        return nn.CrossEntropyLossConfig().init(y.device).forward(y, t)

    def step(self, net: Net, optimizer: Any, x: Tensor, t: Tensor, rate: Any, key: Any) -> Any:
        """One step: the model and the optimizer after it, and the loss."""
        from burn_torch import value_and_grad

        sums, micro = optim.GradientsAccumulator(), self.plan["micro"]
        with StepScope(key, net) as scope:
            losses = []
            for part in range(micro):
                size = x.shape[0] // micro
                some = [v.narrow(0, part * size, size) for v in (x, t)] if micro > 1 else [x, t]
                if self.plan["by"] == "backward":
                    loss = self._loss(net, *some)
                    gradients = optim.GradientsParams.from_grads(loss.backward(), net)
                    losses.append(loss.inner())
                else:
                    loss, gradients = value_and_grad(self._loss)(net, *some)
                    losses.append(loss.no_grad())
                if micro > 1:
                    sums.accumulate(net, gradients)
        net = net.with_states(scope.states)
        net, optimizer = optimizer.step(rate, net, sums.grads() if micro > 1 else gradients)
        return net, optimizer, losses

    def run(self, device: Device, wrap: Callable[[Any], Any] = lambda step: step) -> Results:
        """Losses, then parameters, running states and optimizer states after all steps, on a device without a tape."""
        tape = device.autodiff()
        net = self._net(tape)
        optimizer, step = self._optimizer(net), wrap(self.step)
        results: list[Tensor] = []
        for i, (x, t) in enumerate(self.batches(tape)):
            net, optimizer, losses = step(net, optimizer, x, t, self.rates[i], 100 + i)
            results += losses
        results += [param.val().no_grad() for _, param in net.named_params()]
        results += [state.value().no_grad() for _, state in net.named_states()]
        every = optimizer.optimizers.values() if isinstance(optimizer, optim.GroupedOptimizer) else [optimizer]
        for one in every:
            for group in one.groups:
                results += [x.no_grad() for slot in group.slots for x in slot]
        return [x.into_data() for x in results]

    @cached_property
    def judge(self) -> Judge:
        """The judge of all results: the reference is the tape over LibTorch."""
        plain = self.run(Device.cpu(fused=False))
        names = [f"value {i}" for i in range(len(plain))]
        return Judge(plain, lambda seed: self.run(Device(Noisy().seeded(seed))), names, FACTOR_OF_STEPS)


def _layer(name: str, numbers: Sequence[Any], device: Device) -> Module:
    config = getattr(nn, f"{name}Config", None)
    layer: Module = getattr(nn, name)() if config is None else config(*numbers).init(device)
    return layer


def _tensor(values: Any, dtype: DType, device: Device) -> Tensor:
    return Tensor.from_data(TensorData.of(np.asarray(values)).convert(dtype), device)
