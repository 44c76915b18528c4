"""A random training written with torch alone: neither layers, nor gradients, nor optimizers are the library's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
import torch.nn.functional as F

from burn_torch import Device
from burn_torch.core.data import TensorData
from tests.fuzz.compare import Results
from tests.fuzz.training import Training

__all__ = ["trained_by_torch", "why_not_by_torch"]

_ACTIVATIONS: Final[dict[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "Relu": F.relu, "Gelu": F.gelu, "Tanh": torch.tanh, "Sigmoid": torch.sigmoid, "Softplus": F.softplus,
    "HardSigmoid": lambda x: (0.2 * x + 0.5).clamp(0, 1),
}  # fmt: skip


def why_not_by_torch(training: Training) -> str | None:
    """Why torch cannot compute the same; None if it can."""
    if any(name == "GaussianNoise" or (name == "Dropout" and numbers[0]) for name, numbers in training.plan["layers"]):
        return "draws other random numbers than torch"
    return "torch has no cautious decay" if training.plan["optimizer"] == "cautious" else None


def trained_by_torch(training: Training) -> Results:
    """Losses, parameters and running states; the states of the optimizer, which torch keeps otherwise, as they are."""
    plan, device = training.plan, Device.cpu(fused=False)
    net = training._net(device.autodiff())
    params = [_value(param.val()).requires_grad_() for _, param in net.named_params()]
    states = [_value(state.value()) for _, state in net.named_states()]
    updates = _updates(plan, params)
    losses = []
    for (x, t), rate in zip(training.batches(device), training.rates, strict=True):
        for param in params:
            param.grad = None
        parts = zip(_value(x).chunk(plan["micro"]), _value(t).chunk(plan["micro"]), strict=True)
        for some_x, some_t in parts:
            y = _forward(plan, iter(params), iter(states), some_x)
            loss = F.mse_loss(y, some_t) if plan["loss"] == "mse" else F.cross_entropy(y, some_t)
            loss.backward()  # adds to what is there
            losses.append(loss.reshape(1))
        for update in updates:
            update(rate)
    results = [TensorData.of(x.detach().numpy()) for x in (*losses, *params, *states)]
    return [*results, *training.judge.reference[len(results) :]]


def _value(x: Any) -> torch.Tensor:
    return torch.from_numpy((x.inner() if x.device.is_autodiff() else x).into_data().array.copy())


def _forward(
    plan: dict[str, Any], params: Iterator[torch.Tensor], states: Iterator[torch.Tensor], x: torch.Tensor
) -> torch.Tensor:
    for name, _ in plan["layers"]:
        if name == "Embedding":
            x = F.embedding(x, next(params)).mean(1)
        elif name == "Linear":
            x = x @ next(params) + next(params)
        elif name == "BatchNorm":
            x = F.batch_norm(x, next(states), next(states), next(params), next(params), training=True)
        elif name == "LayerNorm":
            x = F.layer_norm(x, x.shape[1:], next(params), next(params))
        elif name in _ACTIVATIONS:
            x = _ACTIVATIONS[name](x)
    return x


# -- optimizers ----------------------------------------------------------------------------------------------------
def _updates(plan: dict[str, Any], params: list[torch.Tensor]) -> list[Callable[[float], None]]:
    """One for each group of parameters: it takes the learning rate."""
    if not plan["groups"]:
        return [_update(plan, params)]
    plain = {"optimizer": "Sgd", "decay": None, "clip": None}
    return [_update(plain, params[:1]), _update(plan, params[1:])]


def _update(plan: dict[str, Any], params: list[torch.Tensor]) -> Callable[[float], None]:
    kind, decay = plan["optimizer"], plan["decay"] or 0.0
    if kind in ("Sgd", "momentum", "nesterov"):
        step = _descent(params, decay, 0.0 if kind == "Sgd" else 0.8, kind == "nesterov")
    else:
        optimizer: Any = (
            torch.optim.AdamW(params, eps=1e-5, weight_decay=1e-4)
            if kind == "AdamW"
            else torch.optim.Adam(params, eps=1e-5, weight_decay=decay, amsgrad=kind == "amsgrad")
        )

        def step(rate: float) -> None:
            optimizer.param_groups[0]["lr"] = rate
            optimizer.step()

    def update(rate: float) -> None:
        for param in params:
            if plan["clip"] and param.grad is not None:
                _clip(param.grad, *plan["clip"])
        step(rate)

    return update


def _descent(params: list[torch.Tensor], decay: float, momentum: float, nesterov: bool) -> Callable[[float], None]:
    """torch.optim.SGD takes no dampening beside nesterov."""
    velocities: dict[int, torch.Tensor] = {}

    def step(rate: float) -> None:
        with torch.no_grad():
            for i, param in enumerate(params):
                if param.grad is None:
                    continue
                g = param.grad + decay * param
                velocities[i] = g if i not in velocities else momentum * velocities[i] + 0.9 * g
                change = velocities[i] if momentum else g
                param -= rate * (g + momentum * change if nesterov else change)

    return step


def _clip(gradient: torch.Tensor, kind: str, most: float) -> None:
    if kind == "Value":
        gradient.clamp_(-most, most)
    else:
        gradient.mul_(most / gradient.norm().clamp_min(most))
